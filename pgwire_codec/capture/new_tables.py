"""NewTables: published tables that a log has nothing of, which are to be copied."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from pgwire_codec.capture.catalog.published_tables import published_tables
from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.capture.connection.error_hints import capture_error
from pgwire_codec.capture.sent_relations import sent_relations
from pgwire_codec.protocol.quoting import qualified_name

if TYPE_CHECKING:
    from pgwire_codec.capture.batch import MessageBatch
    from pgwire_codec.capture.connection.interrupt import Interrupt
    from pgwire_codec.capture.start_replication import StreamRequest


class NewTables:
    """Requests the copy of each table that the log has nothing of yet.

    A table without changes is found when a connection begins, another one by its first Relation.
    That request is durable before the Relation is written, so that a crash loses neither.

    Parameters
    ----------
    log : str or path
        Location of the log.
    """

    def __init__(self, log: str | os.PathLike[str]) -> None:
        from pgwire_codec.log import Log
        from pgwire_codec.log.table_requests import TableRequests

        self._requests = TableRequests(log)
        self._known = {each.oid for each in Log(log).relations}

    def request_published(self, dsn: str, request: StreamRequest, interrupt: Interrupt) -> None:
        """Request the tables that are published now; raise ``CaptureError`` if that fails."""
        with closing(connect(dsn, interrupt)) as connection:
            try:
                tables = published_tables(connection.cursor(), request.options.publications)
            except load_psycopg2().Error as error:
                raise capture_error(error, request.slot) from error
            finally:
                interrupt.release(connection)
        self._request(
            (each.relation.oid, qualified_name(each.schema, each.relation.name)) for each in tables
        )

    def request_sent(self, batch: MessageBatch) -> None:
        """Request the tables whose Relations are in a batch."""
        self._request(
            (each.oid, qualified_name(each.namespace or "pg_catalog", each.name))
            for each in sent_relations(batch)
        )

    def _request(self, tables: Iterable[tuple[int, str]]) -> None:
        new = {oid: name for oid, name in tables if oid not in self._known}
        if new:
            self._requests.add(list(new.values()), is_automatic=True)
            self._known.update(new)

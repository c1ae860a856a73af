"""TypeRecorder: records the user-defined types of the columns that a stream sends."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from pgwire_codec.capture.catalog.user_types import is_user_type, read_user_types
from pgwire_codec.capture.connection.connect import connect, load_psycopg2
from pgwire_codec.capture.connection.error_hints import capture_error
from pgwire_codec.capture.sent_relations import sent_relations

if TYPE_CHECKING:
    from pgwire_codec.capture.batch import MessageBatch
    from pgwire_codec.capture.connection.interrupt import Interrupt
    from pgwire_codec.log.type_record import TypeRecord


class TypeRecorder:
    """Records the types of Relations before these are written, so that a crash loses neither.

    A type that was dropped before its Relation came cannot be recorded.

    Parameters
    ----------
    dsn : str
        Of the database.
    slot : str
        Name of the replication slot, for errors.
    record : TypeRecord
        Of the log.
    interrupt : Interrupt
        Ends a query from another thread.
    """

    def __init__(self, dsn: str, slot: str, record: TypeRecord, interrupt: Interrupt) -> None:
        self._dsn = dsn
        self._slot = slot
        self._record = record
        self._interrupt = interrupt
        self._known = {each.oid for each in record.read()}

    def record_sent(self, batch: MessageBatch) -> None:
        """Record the types of a batch's Relations; raise ``CaptureError`` if that fails."""
        oids = {
            column.type_oid for relation in sent_relations(batch) for column in relation.columns
        }
        new = {oid for oid in oids - self._known if is_user_type(oid)}
        if not new:
            return
        with closing(connect(self._dsn, self._interrupt)) as connection:
            try:
                found = read_user_types(connection.cursor(), new)
            except load_psycopg2().Error as error:
                raise capture_error(error, self._slot) from error
            finally:
                self._interrupt.release(connection)
        self._record.add(found.values())
        self._known |= new | found.keys()

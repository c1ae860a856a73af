"""LogChanges: changes of a range of a log, decoded as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pgwire_codec.changes import display
from pgwire_codec.changes.arrow_stream import ArrowStream, polars_options
from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.table_schema import stream_options, stream_schema, to_reader
from pgwire_codec.errors import TableError
from pgwire_codec.format import format_count
from pgwire_codec.log.partition import LogPlan, with_types
from pgwire_codec.options import DecoderOptions
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.transactions.carry import RelationVersion, Scope
from pgwire_codec.types import UserType


class LogChanges(ArrowStream):
    """Changes of a range of a log, decoded as they are read. Iterating yields the batches.

    polars, DuckDB and pyarrow take the changes of one table as they are, with the columns of
    :meth:`Log.to_reader`. Each iteration and each stream reads the range again; it is not in
    memory as a whole. Jupyter shows the first rows.

    Attributes
    ----------
    plan : LogPlan
        The range, and its partitions.
    """

    def __init__(
        self,
        plan: LogPlan,
        relations: frozenset[int] | None,
        options: DecoderOptions,
        types: tuple[UserType, ...],
        scope: Callable[[], Scope],
    ) -> None:
        self.plan = plan
        self._relations = relations
        self._options = options
        self._types = types
        self._scope = scope

    def __iter__(self) -> Iterator[ChangeBatch]:
        return self._decode(self._options)

    def _decode(self, options: DecoderOptions) -> Iterator[ChangeBatch]:
        for partition in self.plan.partitions:
            for batch in partition.decode(options):
                if self._relations is None or batch.relation.oid in self._relations:
                    yield batch

    def _stream(self, *, for_polars: bool = False) -> Any:
        return self.reader(**(polars_options(self._options) if for_polars else {}))

    def reader(self, **options: Any) -> pa.RecordBatchReader:
        """Return the changes of one table as a stream, under other values of some options."""
        newest = self._newest()
        changed = stream_options(replace(self._options, **options))
        versions = [*dict.fromkeys([*self.plan.versions, newest])]
        schema = stream_schema(newest, versions, with_types(changed, self._types))
        return to_reader(self._decode(changed), schema)

    def _newest(self) -> RelationVersion:
        """Return the newest version of the table, at the end of the range."""
        known = self._scope().relations
        oids = sorted(known) if self._relations is None else sorted(self._relations)
        if len(oids) != 1:
            names = [known[oid][1].qualified_name for oid in oids]
            raise TableError(
                "an Arrow stream has the columns of one table, and these are changes of "
                f"{len(names)}: {display.names_text(names) or 'none'}",
                hint="Name one table, as in log.read('schema.table').",
            )
        return known[oids[0]][1]

    def __repr__(self) -> str:
        names = sorted({version.qualified_name for version in self.plan.versions})
        after, until = format_lsn(self.plan.after), format_lsn(self.plan.until)
        partitions = format_count(len(self.plan.partitions), "partition")
        tables = display.names_text(names) or "no tables"
        return f"<LogChanges of {tables}: commit LSN after {after} until {until}, {partitions}>"

    def _repr_html_(self) -> str:
        """Return the first rows, with the range."""
        batch = next(iter(self), None)
        first = "" if batch is None else batch._repr_html_()
        return f"<div>{display.html_text(repr(self))}</div>{first}"

"""Result of one call of a decoder: batches of changes, transactions, and rejected messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from pgwire_codec.arrow.export import array_type
from pgwire_codec.changes import display
from pgwire_codec.changes.arrow_stream import ArrowStream, polars_options, to_stream
from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.errors import DecodeError, Rejected, TableError
from pgwire_codec.format import format_count, suggest_table
from pgwire_codec.protocol.messages import Message
from pgwire_codec.transactions.committed import Transactions

_SHOWN_TABLES: Final = 20


@dataclass(frozen=True, slots=True, repr=False)
class Changes(ArrowStream):
    """Result of one call of ``Decoder.decode``. Iterating yields the batches.

    polars, DuckDB, nanoarrow and pyarrow take the changes of one table as they are, see
    :meth:`table`. Jupyter shows the number of changes of each table.

    Attributes
    ----------
    batches : list of ChangeBatch
        Committed changes, one batch a Relation version and input array.
    transactions : Transactions
        The committed transactions.
    logical_messages : list of Message
        Logical decoding messages: transactional ones when their transaction committed, others
        when they came.
    rejected : list of Rejected
        Messages set aside, under ``on_error="skip"``.
    warnings : list of DecodeError
        Irregularities that were decoded all the same: tuples wider or narrower than their Relation.
    """

    batches: list[ChangeBatch]
    transactions: Transactions
    logical_messages: list[Message] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    warnings: list[DecodeError] = field(default_factory=list)

    def __iter__(self) -> Iterator[ChangeBatch]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def num_rows(self) -> int:
        """Number of rows of all batches."""
        return sum(map(len, self.batches))

    def table(self, name: str) -> Changes:
        """Return the changes of one table, which is exported as one Arrow stream.

        If the table has several versions in these changes, the columns of the stream are those of
        the newest one. Columns of older versions are matched by name, and one that an older version
        lacks is null. A column whose type changed is the wider of two integers, floats or decimals,
        and otherwise a string. That needs the extra ``arrow``.

        Parameters
        ----------
        name : str
            ``schema.table``, as the newest changes have it. Changes under earlier names of the same
            relation are included.

        Raises
        ------
        TableError
            If no changes have the name. The hint lists the names.
        """
        named = [batch for batch in self.batches if batch.version.qualified_name == name]
        if not named:
            names = {batch.version.qualified_name for batch in self.batches}
            raise TableError(f"the changes have no table {name!r}", hint=suggest_table(name, names))
        oid = _newest(named).relation.oid
        return replace(self, batches=[each for each in self.batches if each.relation.oid == oid])

    def _stream(self, *, for_polars: bool = False) -> Any:
        names = {batch.relation.oid: batch.version.qualified_name for batch in self.batches}
        if len(names) != 1:
            shown = display.names_text([*names.values()]) or "none"
            raise TableError(
                "an Arrow stream has the columns of one table, and these are changes of "
                f"{len(names)}: {shown}",
                hint=next(
                    (f"Select a table, as in changes.table({name!r})." for name in names.values()),
                    None,
                ),
            )
        batches = self.batches
        if for_polars:
            batches = [batch.with_options(**polars_options(batch.options)) for batch in batches]
        structs = [batch.struct() for batch in batches]
        if len({array_type(struct) for struct in structs}) == 1:
            return to_stream(batches[0].codec, structs)
        return _unified(batches)

    def __repr__(self) -> str:
        rows = format_count(self.num_rows, "change")
        transactions = format_count(len(self.transactions), "transaction")
        counts = self._counts()
        tables = [f"{name} ({display.operations_text(counts[name])})" for name in counts]
        others = {
            "logical message": len(self.logical_messages),
            "rejected message": len(self.rejected),
            "warning": len(self.warnings),
        }
        text = f"<Changes: {rows} in {transactions}"
        if tables:
            text += f": {display.names_text(tables)}"
        for noun, number in others.items():
            if number:
                text += f"; {format_count(number, noun)}"
        return f"{text}>"

    def _repr_html_(self) -> str:
        """Return the first rows if there is one batch, otherwise a table of counts."""
        if len(self.batches) == 1:
            return self.batches[0]._repr_html_()
        counts = self._counts()
        rows = [
            [display.html_text(name), *counts[name].values()] for name in [*counts][:_SHOWN_TABLES]
        ]
        if len(counts) > _SHOWN_TABLES:
            rows.append(["…", *[""] * len(display.OPERATIONS)])
        caption = format_count(self.num_rows, "change")
        caption += f" of {format_count(len(counts), 'table')}"
        plurals = [f"{noun}s" for noun in display.OPERATIONS.values()]
        return display.html_table(caption, ["table", *plurals], rows)

    def _counts(self) -> dict[str, dict[str, int]]:
        """Return how many changes of each operation each table has, by name."""
        operations: dict[str, list[Any]] = {}
        for batch in self.batches:
            operations.setdefault(batch.version.qualified_name, []).append(batch.op)
        return {
            name: display.operation_counts(np.concatenate(arrays))
            for name, arrays in operations.items()
        }


def _newest(batches: list[ChangeBatch]) -> ChangeBatch:
    """Return the batch with the last change."""
    return max(batches, key=lambda batch: (batch.commit_lsn[-1], batch.seq[-1]))


def _unified(batches: list[ChangeBatch]) -> Any:
    """Return batches of a table, whose columns differ, as a stream with those of the newest one."""
    from pgwire_codec.changes.table_schema import stream_options, stream_schema, to_reader

    options = stream_options(batches[0].options)
    versions = [*dict.fromkeys(batch.version for batch in batches)]
    schema = stream_schema(_newest(batches).version, versions, options)
    types = options.arrow_types
    return to_reader((batch.with_options(arrow_types=types) for batch in batches), schema)

"""Batches of committed changes: the rows of one Relation version in one input array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import ArrowBuffers
from pgwire_codec.changes import display
from pgwire_codec.changes.arrow_stream import ArrowStream, polars_options, to_stream
from pgwire_codec.changes.column import Column, Decoding, capsules
from pgwire_codec.changes.plan import RecordPlan, Selection, TablePlan
from pgwire_codec.changes.record_batch import build
from pgwire_codec.codec.interface import Codec
from pgwire_codec.codec.tables import (
    NOT_SENT,
    NULL,
    UNCHANGED,
    VALUE,
    DecodedColumns,
    ScannedArray,
    TupleTable,
)
from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import DecodeError
from pgwire_codec.format import format_count
from pgwire_codec.options import DecoderOptions
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.transactions.carry import RelationVersion
from pgwire_codec.transactions.committed import Transactions

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST_KEY: Final = 200  # characters of a row's key in an error
_SHOWN_ROWS: Final = 10
_SHOWN_COLUMNS: Final = 20

#: Texts in place of values that are missing, by the state.
_STATES: Final = {NULL: "NULL", UNCHANGED: "unchanged", NOT_SENT: "not sent"}


class _Tuples(Mapping[str, Column]):
    """The columns of the old or of the new tuples, by name.

    It has no reference to its batch, which keeps it: both would last until Python looks for cycles.
    """

    def __init__(
        self,
        table: TupleTable,
        plan: TablePlan,
        source: ScannedArray,
        rows: npt.NDArray[np.int64],
        decoding: Decoding,
    ) -> None:
        self._table = table
        self._plan = plan
        self._source = source
        self._rows = rows
        self._decoding = decoding
        self._columns: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._columns:
            number = self._plan.numbers[name]
            self._columns[name] = Column(
                name,
                self._plan.types[number],
                self._table.state[number],
                self._table.offset[number],
                self._table.length[number],
                self._table.format[number],
                self._source,
                self._rows,
                self._decoding,
            )
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan.numbers)

    def __len__(self) -> int:
        return len(self._plan.numbers)


class ChangeBatch(ArrowStream):
    """Committed changes of one Relation version, from one input array, in commit order.

    polars, DuckDB, nanoarrow and pyarrow take a batch as it is, with the columns of
    :meth:`to_arrow`. Jupyter shows its first rows.

    Attributes
    ----------
    relation : Relation
        The table, as the publisher declared it.
    op : numpy.ndarray of uint8, rows
        ``ord`` of I (insert), U (update), D (delete) or T (truncate).
    xid : numpy.ndarray of uint32, rows
        The top-level transaction.
    commit_lsn : numpy.ndarray of uint64, rows
        Of the transaction.
    commit_time : numpy.ndarray of datetime64[us], rows
        Of the transaction, UTC.
    seq : numpy.ndarray of int64, rows
        Number of the change in its transaction, from 0; ``(commit_lsn, seq)`` is a total order.
        A truncate takes a number for each table that it names.
    lsn : numpy.ndarray of uint64 or None, rows
        The LSNs that were given with the messages.
    origin : numpy.ndarray of object, rows
        The transaction's replication origin, a str or None.
    """

    def __init__(
        self,
        version: RelationVersion,
        source: ScannedArray,
        rows: npt.NDArray[np.int64],
        seq: npt.NDArray[np.int64],
        transactions: Transactions,
        transaction: npt.NDArray[np.int64],
        decoding: Decoding,
    ) -> None:
        self.version = version
        self.relation: Relation = version.relation
        self.seq = seq
        self.transactions = transactions
        self.transaction = transaction
        self._source = source
        self._rows = rows
        self._decoding = decoding

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<ChangeBatch {self._summary()}, columns {display.names_text([*self.new])}>"

    def _summary(self) -> str:
        counts = display.operations_text(display.operation_counts(self.op))
        return f"{self.version.qualified_name}: {format_count(len(self), 'row')} ({counts})"

    def _repr_html_(self) -> str:
        """Return a table of the first rows: the server's text of each value."""
        hidden = np.arange(len(self)) >= _SHOWN_ROWS
        first = self.without(hidden).with_options(types="text", strings="copy")
        shown = [*first.current.values()][:_SHOWN_COLUMNS]
        head = [
            f"{display.html_text(each.name)} {display.special(each.type.pg.name)}" for each in shown
        ]
        columns = [_cells(each) for each in shown]
        if len(shown) < len(first.current):
            head.append("…")
            columns.append([""] * len(first))
        operations = map(chr, first.op)
        lsns = (format_lsn(int(lsn)) for lsn in first.commit_lsn)
        rows = [*zip(operations, *columns, lsns, strict=True)]
        if hidden.any():
            rows.append(("…", *[""] * len(head), ""))
        return display.html_table(self._summary(), ["operation", *head, "commit LSN"], rows)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self)

    @cached_property
    def op(self) -> npt.NDArray[np.uint8]:
        return self._source.kind[self._rows]

    @cached_property
    def lsn(self) -> npt.NDArray[np.uint64] | None:
        return None if self._source.lsn is None else self._source.lsn[self._rows]

    @cached_property
    def xid(self) -> npt.NDArray[np.uint32]:
        return self.transactions.xid[self.transaction]

    @cached_property
    def commit_lsn(self) -> npt.NDArray[np.uint64]:
        return self.transactions.commit_lsn[self.transaction]

    @cached_property
    def commit_time(self) -> npt.NDArray[np.datetime64]:
        return self.transactions.commit_time[self.transaction]

    @cached_property
    def origin(self) -> npt.NDArray[np.object_]:
        return self.transactions.origin[self.transaction]

    @property
    def codec(self) -> Codec:
        """The implementation."""
        return self._decoding.codec

    @property
    def _plan(self) -> TablePlan:
        return self._decoding.plans.of(self.version)

    def record_plan(self, columns: Sequence[str] | None = None) -> RecordPlan:
        """Return the plan of :meth:`to_arrow`'s record batch."""
        return self._plan.record(self.version, columns)

    @cached_property
    def _body(self) -> npt.NDArray[np.int64]:
        return self._source.body[self._rows]

    @cached_property
    def _tables(self) -> tuple[TupleTable, TupleTable]:
        old, new = self._decoding.codec.tuples(
            self._source.messages,
            self._rows,
            self._body,
            len(self.relation.columns),
        )
        # A key tuple has NULL for each column outside the key, and a key has no NULL. The key is
        # that of the leaf partition, which can be another one than the relation's.
        is_key = old.marker == ord("K")
        if is_key.any():
            old.state[(old.state == NULL) & is_key] = NOT_SENT
        return old, new

    @cached_property
    def partial_keys(self) -> npt.NDArray[np.bool_]:
        """Rows whose old tuple is a key that lacks columns of the relation's key."""
        old = self._tables[0]
        is_key: npt.NDArray[np.bool_] = old.marker == ord("K")
        numbers = [n for n, column in enumerate(self.relation.columns) if column.flags & 1]
        if numbers:
            is_key &= (old.state[numbers] == NOT_SENT).any(axis=0)
        return is_key

    def old_tuple_plan(self, plan: RecordPlan) -> RecordPlan:
        """Return a plan with the columns that old tuples have, if one lacks a part of the key."""
        if plan.option_before == "full" or not self.partial_keys.any():
            return plan
        sent = (self._tables[0].state != NOT_SENT).any(axis=1)
        columns = zip(self.relation.columns, sent, strict=True)
        before = [column.name for column, is_sent in columns if is_sent]
        return self._plan.record(self.version, plan.current.names, before)

    @cached_property
    def old(self) -> Mapping[str, Column]:
        """Old tuples, or old keys, by column name; not sent for inserts and most updates."""
        return self._tuples(self._tables[0])

    @cached_property
    def new(self) -> Mapping[str, Column]:
        """New tuples by column name; not sent for deletes and truncates."""
        return self._tuples(self._tables[1])

    @cached_property
    def current(self) -> Mapping[str, Column]:
        """New tuples, and for deletes the old ones, by column name: as in :meth:`to_arrow`."""
        table = TupleTable.current(*self._tables)
        return self.new if table is self._tables[1] else self._tuples(table)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return a ``pyarrow.RecordBatch``: the table's columns, then the metadata columns.

        Parameters
        ----------
        columns : sequence of str, optional
            Only these of the table's columns; by default all.

        Notes
        -----
        The metadata columns are ``_op`` string, ``_xid`` int64, ``_lsn`` int64, ``_commit_lsn``
        int64, ``_commit_time`` timestamp[us, UTC], ``_seq`` int64, ``_origin`` string,
        ``_unchanged`` list<string> (names of unchanged TOAST columns, else null),
        ``_before`` struct (the old tuple's key columns, or all of them with ``before="full"``; not
        there with ``before="none"`` or without a replica identity), and, unless
        ``unrepresentable="raise"``, ``_invalid`` list<string> (names of the columns whose value was
        made null or clamped; ``_before.name`` for one of the old tuple). A metadata column whose
        name the table has, too, gets a further underscore in front.

        Changes of a partition that are published as those of its root have old tuples with the
        columns of the partition's own replica identity. If one of them lacks a column of the
        root's, ``_before`` has the columns that the server sent.
        """
        plan = self.record_plan(columns)
        options = self._decoding.options
        made: pa.RecordBatch | None = self.codec.change_batch(
            self._source,
            self._rows,
            self.seq,
            self.transactions,
            self.transaction,
            plan,
            unrepresentable=options.unrepresentable,
            threads=options.threads,
        )
        if made is None:
            struct, plan = build(self, plan)
            made = self.codec.record_batch(struct, plan.schema(struct))
        return made

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return a dict a row, of the columns of :meth:`to_arrow`; needs no pyarrow."""
        from pgwire_codec.arrow.values import to_pylist

        return to_pylist(self.struct())

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Export :meth:`to_arrow`'s columns by the Arrow PyCapsule interface."""
        struct, plan = build(self, self.record_plan())
        return capsules(self.codec, struct, plan.c_schema(struct), requested_schema)

    def struct(self) -> ArrowBuffers:
        """Return the columns of :meth:`to_arrow` as one struct."""
        return build(self, self.record_plan())[0]

    @property
    def options(self) -> DecoderOptions:
        """Options of the decoder."""
        return self._decoding.options

    def _stream(self, *, for_polars: bool = False) -> Any:
        batch = self.with_options(**polars_options(self.options)) if for_polars else self
        return to_stream(self.codec, [batch.struct()])

    def decode(self, which: str, selection: Selection) -> DecodedColumns:
        """Decode columns of the ``"old"`` or the ``"current"`` tuples, all at once."""
        try:
            return self.codec.decode_columns(
                self._source.messages,
                self._rows,
                self._body,
                len(self.relation.columns),
                which,
                selection.columns,
                unrepresentable=self._decoding.options.unrepresentable,
                threads=self._decoding.options.threads,
            )
        except ValueProblem:
            # Column by column it says which column and which message.
            for name in selection.names:
                try:
                    getattr(self, which)[name].decode()
                except DecodeError as error:
                    index = (error.message_index or 0) - self._source.base
                    row = int(np.flatnonzero(self._rows == index)[0])
                    raise self._with_key(error, row) from None
            raise

    def _with_key(self, error: DecodeError, row: int) -> DecodeError:
        """Return the error of a value with the key of its row, if the row has one."""
        key = [
            f"{column.name}={shown}"
            for column in self.relation.columns
            if column.flags & 1 and (shown := self.current[column.name].shown(row)) is not None
        ]
        if not key:
            return error
        row_key = f"row {', '.join(key)}"
        return error.at(error.message_index, f"{error.context}, {row_key[:_LONGEST_KEY]}")

    def with_options(self, **options: Any) -> ChangeBatch:
        """Return the batch with its columns decoded under other values of some options."""
        batch = ChangeBatch(
            self.version,
            self._source,
            self._rows,
            self.seq,
            self.transactions,
            self.transaction,
            self._decoding.with_options(**options),
        )
        if "_tables" in self.__dict__:  # they have been read
            batch._tables = self._tables
        return batch

    def without(self, rows: npt.NDArray[np.bool_]) -> ChangeBatch:
        """Return the batch less the rows where the mask is true."""
        keep = ~rows
        return ChangeBatch(
            self.version,
            self._source,
            self._rows[keep],
            self.seq[keep],
            self.transactions,
            self.transaction[keep],
            self._decoding,
        )

    @property
    def message_bytes(self) -> npt.NDArray[np.int64]:
        """How many bytes each row's message has."""
        offsets = self._source.messages.offsets
        return offsets[self._rows + 1] - offsets[self._rows]

    def errors(self) -> dict[int, DecodeError]:
        """Return the first error of each row that has a value which does not decode, by row."""
        found: dict[int, DecodeError] = {}
        for columns in (self.current, self.old):
            for column in columns.values():
                for row, error in column.errors():
                    found.setdefault(row, self._with_key(error, row))
        return found

    def message_index(self, row: int) -> int:
        """Return the index of a row's message in the call that it came in."""
        return self._source.base + int(self._rows[row])

    def message(self, row: int) -> bytes:
        """Return the bytes of a row's message."""
        return self._source.messages[int(self._rows[row])]

    def _tuples(self, table: TupleTable) -> _Tuples:
        return _Tuples(table, self._plan, self._source, self._rows, self._decoding)


def _cells(column: Column) -> list[str]:
    """Return the HTML of each row of a column of texts."""
    try:
        texts = column.to_pylist()
    except DecodeError:
        texts = [column.shown(row) for row in range(len(column))]
    return [
        display.value(str(text)) if state == VALUE else display.special(_STATES[state])
        for state, text in zip(column.state.tolist(), texts, strict=True)
    ]

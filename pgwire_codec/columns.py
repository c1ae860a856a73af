"""Batches of changes, and their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pgwire_codec._arrow import to_c_array, to_pyarrow
from pgwire_codec._arrow_values import to_numpy, to_pylist
from pgwire_codec._input import Messages
from pgwire_codec.carry import RelationVersion
from pgwire_codec.errors import DecodeError, ErrorCode, MissingExtraError
from pgwire_codec.messages import Relation, RelationColumn
from pgwire_codec.record_batch import build
from pgwire_codec.reference.values import Decoded, ValueProblem
from pgwire_codec.spec import WITH_OLD_TUPLE
from pgwire_codec.tables import NOT_SENT, NULL, VALUE, DecodedColumns, TupleTable, tagged
from pgwire_codec.types import ColumnType, TypeOptions, TypeRegistry, column_type

if TYPE_CHECKING:
    import pyarrow as pa

    from pgwire_codec.changes import Transactions

_LONGEST_KEY: Final = 200  # characters of a row's key in an error
_SHOWN_BYTES: Final = 60  # of a value in an error


@dataclass(frozen=True, slots=True)
class Decoding:
    """How values are decoded: the options of a decoder, and its implementation's functions."""

    tuples: Callable[..., tuple[TupleTable, TupleTable]]
    decode_values: Callable[..., Decoded]
    decode_columns: Callable[..., DecodedColumns]
    types: TypeOptions
    registry: TypeRegistry
    unrepresentable: str
    before: str
    threads: int


class Column:
    """One column of the old or the new tuples of a batch.

    Attributes
    ----------
    name : str
        The column's name.
    type : ColumnType
        Its PostgreSQL and its Arrow type.
    state : numpy.ndarray of uint8, rows
        0 NULL, 1 value, 2 unchanged TOAST, 3 not sent.
    offsets : numpy.ndarray of int64, rows
        Where in ``buffer`` a value starts; meaningless unless ``state`` is 1.
    lengths : numpy.ndarray of int32, rows
        A value's length in bytes; 0 is an empty value, not NULL.
    formats : numpy.ndarray of uint8, rows
        A value's wire form: 0 text, 1 binary.
    buffer : numpy.ndarray of uint8
        The bytes of the messages themselves: a read-only view, nothing is copied.

    Notes
    -----
    Values are decoded when first asked for. Then bytes that are no value of the type, and under
    ``unrepresentable="raise"`` values that the Arrow type cannot hold, raise ``DecodeError`` with
    the message's index and the byte's offset in it.
    """

    __slots__ = (
        "_decoded",
        "_decoding",
        "_rows",
        "_source",
        "buffer",
        "formats",
        "lengths",
        "name",
        "offsets",
        "state",
        "type",
    )

    def __init__(
        self,
        name: str,
        column_type: ColumnType,
        state: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int32],
        formats: npt.NDArray[np.uint8],
        source: Source,
        rows: npt.NDArray[np.int64],
        decoding: Decoding,
    ) -> None:
        self.name = name
        self.type = column_type
        self.state = state
        self.offsets = offsets
        self.lengths = lengths
        self.formats = formats
        self.buffer = source.messages.data
        self._source = source
        self._rows = rows
        self._decoding = decoding
        self._decoded: Decoded | None = None

    def __len__(self) -> int:
        return len(self.state)

    def __repr__(self) -> str:
        return f"<Column {self.name} {self.type.pg.name}, {len(self)} rows>"

    def decode(self, start: int = 0) -> Decoded:
        """Decode the values from row ``start`` on into Arrow-shaped buffers."""
        if self._decoded is not None and start == 0:
            return self._decoded
        try:
            decoded = self._decoding.decode_values(
                self.type,
                self.buffer,
                self.offsets[start:],
                self.lengths[start:],
                self.state[start:],
                self.formats[start:],
                unrepresentable=self._decoding.unrepresentable,
            )
        except ValueProblem as problem:
            raise self._placed(problem, start) from None
        if start == 0:
            self._decoded = decoded
        return decoded

    def errors(self) -> Iterator[tuple[int, DecodeError]]:
        """Give the rows whose values do not decode, with the error of each."""
        start = 0
        while start < len(self):
            try:
                self.decode(start)
            except DecodeError as error:
                row = self._row_of(error)
                yield row, error
                start = row + 1
            else:
                return

    def to_pylist(self) -> list[Any]:
        """Give Python values; None for what is NULL, unchanged or not sent (see ``state``)."""
        return to_pylist(self.decode().array)

    def to_numpy(self) -> npt.NDArray[Any]:
        """Give a typed array of one element a row.

        Where a row has no value (``state`` tells why), the array is a ``numpy.ma.MaskedArray``, or
        has NaT (datetime64) or None (object) there.
        """
        return to_numpy(self.decode().array)

    def to_arrow(self) -> pa.Array:
        """Give a ``pyarrow.Array``; null for what is NULL, unchanged or not sent."""
        return to_pyarrow(self.decode().array)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Export by the Arrow PyCapsule interface."""
        exported = to_c_array(self.decode().array)
        capsules: tuple[object, object] = exported.__arrow_c_array__(requested_schema)
        return capsules

    def shown(self, row: int) -> str | None:
        """Return the beginning of a row's value as the server sent it, for people.

        None if the row has no value.
        """
        if self.state[row] != VALUE:
            return None
        start, length = int(self.offsets[row]), int(self.lengths[row])
        raw = self.buffer[start : start + min(length, _SHOWN_BYTES)].tobytes()
        more = "" if length <= _SHOWN_BYTES else "..."
        if self.formats[row]:
            return f"0x{raw.hex()}{more}"
        return repr(raw.decode("utf-8", "replace") + more)

    def _placed(self, problem: ValueProblem, start: int) -> DecodeError:
        row = start + problem.row
        index = int(self._rows[row])
        in_message = int(self.offsets[row] - self._source.messages.offsets[index])
        is_unrepresentable = problem.code == ErrorCode.UNREPRESENTABLE
        value = f", value {self.shown(row)}" if is_unrepresentable else ""
        return DecodeError(
            problem.code,
            offset=in_message + problem.offset,
            expected=problem.expected,
            message_index=self._source.base + index,
            context=f"column {self.name} ({self.type.pg.name}){value}",
        )

    def _row_of(self, error: DecodeError) -> int:
        index = (error.message_index or 0) - self._source.base
        return int(np.flatnonzero(self._rows == index)[0])


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """An input array, and where its first message stands in the call that it came in."""

    messages: Messages
    kind: npt.NDArray[np.uint8]
    body: npt.NDArray[np.int64]
    lsn: npt.NDArray[np.uint64] | None
    base: int


class _Tuples(Mapping[str, Column]):
    """The columns of the old or of the new tuples, by name."""

    def __init__(self, batch: ChangeBatch, table: TupleTable) -> None:
        self._batch = batch
        self._table = table
        self._columns: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._columns:
            self._columns[name] = self._batch._column(name, self._table)
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch._numbers)

    def __len__(self) -> int:
        return len(self._batch._numbers)


class ChangeBatch:
    """Committed changes of one Relation version, from one input array, in commit order.

    Attributes
    ----------
    relation : Relation
        The table, as the publisher told it.
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
        source: Source,
        rows: npt.NDArray[np.int64],
        seq: npt.NDArray[np.int64],
        transactions: Transactions,
        transaction: npt.NDArray[np.int64],
        decoding: Decoding,
    ) -> None:
        self.version = version
        self.relation: Relation = version.relation
        self.op = source.kind[rows]
        self.seq = seq
        self.lsn = None if source.lsn is None else source.lsn[rows]
        self._source = source
        self._rows = rows
        self._transactions = transactions
        self._transaction = transaction
        self._decoding = decoding
        self._numbers = {column.name: i for i, column in enumerate(self.relation.columns)}

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<ChangeBatch {self.version.qualified_name}, {len(self)} rows>"

    @cached_property
    def xid(self) -> npt.NDArray[np.uint32]:
        return self._transactions.xid[self._transaction]

    @cached_property
    def commit_lsn(self) -> npt.NDArray[np.uint64]:
        return self._transactions.commit_lsn[self._transaction]

    @cached_property
    def commit_time(self) -> npt.NDArray[np.datetime64]:
        return self._transactions.commit_time[self._transaction]

    @cached_property
    def origin(self) -> npt.NDArray[np.object_]:
        return self._transactions.origin[self._transaction]

    @property
    def has_origin(self) -> bool:
        """Whether any of the transactions came from a replication origin."""
        return any(origin is not None for origin in self._transactions.origin)

    @cached_property
    def _tables(self) -> tuple[TupleTable, TupleTable]:
        old, new = self._decoding.tuples(
            self._source.messages,
            self._rows,
            self._source.body[self._rows],
            len(self.relation.columns),
        )
        # A key tuple sends the columns outside the key as NULL: they are not sent.
        key_only = old.marker == ord("K")
        for number, column in enumerate(self.relation.columns if key_only.any() else ()):
            if not column.flags & 1:
                old.state[number][key_only & (old.state[number] == NULL)] = NOT_SENT
        return old, new

    @cached_property
    def old(self) -> Mapping[str, Column]:
        """Old tuples, or old keys, by column name; not sent for inserts and most updates."""
        return _Tuples(self, self._tables[0])

    @cached_property
    def new(self) -> Mapping[str, Column]:
        """New tuples by column name; not sent for deletes and truncates."""
        return _Tuples(self, self._tables[1])

    @cached_property
    def current(self) -> Mapping[str, Column]:
        """New tuples, and for deletes the old ones, by column name: as in :meth:`to_arrow`."""
        table = TupleTable.current(*self._tables)
        return self.new if table is self._tables[1] else _Tuples(self, table)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Give a ``pyarrow.RecordBatch``: the table's columns, then the metadata columns.

        Parameters
        ----------
        columns : sequence of str, optional
            Only these of the table's columns; by default all.

        Notes
        -----
        The metadata columns are ``_op`` string, ``_xid`` int64, ``_lsn`` int64, ``_commit_lsn``
        int64, ``_commit_time`` timestamp[us, UTC], ``_seq`` int64, ``_origin`` string,
        ``_unchanged`` list<string> (names of unchanged TOAST columns, null where there are none),
        ``_before`` struct (the old tuple's key columns, or all of them with ``before="full"``; not
        there with ``before="none"`` or without a replica identity), and, unless
        ``unrepresentable="raise"``, ``_invalid`` list<string> (names of the columns whose value was
        made null or clamped; ``_before.name`` for one of the old tuple). A metadata column whose
        name the table has, too, gets a further underscore in front.
        """
        try:
            import pyarrow
        except ImportError:
            raise MissingExtraError(
                "to_arrow() needs pyarrow: pip install 'pgwire-codec[arrow]'"
            ) from None
        struct: pa.StructArray = to_pyarrow(build(self, columns))
        return pyarrow.RecordBatch.from_struct_array(struct)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Give a dict a row, of the columns of :meth:`to_arrow`; needs no pyarrow."""
        return to_pylist(build(self, None))

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Export :meth:`to_arrow`'s columns by the Arrow PyCapsule interface."""
        exported = to_c_array(build(self, None))
        capsules: tuple[object, object] = exported.__arrow_c_array__(requested_schema)
        return capsules

    def decode(self, which: str, names: Sequence[str]) -> DecodedColumns:
        """Decode columns of the ``"old"`` or the ``"current"`` tuples, all at once."""
        columns = self.relation.columns
        numbers = [self._numbers[name] for name in names]
        body = self._source.body[self._rows]
        if which == "old":  # only updates and deletes have old tuples: do not look at the others
            body[~tagged(self.op, WITH_OLD_TUPLE)] = -1
        try:
            return self._decoding.decode_columns(
                self._source.messages,
                self._rows,
                body,
                len(columns),
                which,
                [(number, self.column_type(columns[number])) for number in numbers],
                unrepresentable=self._decoding.unrepresentable,
                threads=self._decoding.threads,
            )
        except ValueProblem:
            # Column by column it says which column and which message.
            for name in names:
                try:
                    getattr(self, which)[name].decode()
                except DecodeError as error:
                    raise self._with_key(error) from None
            raise

    def _with_key(self, error: DecodeError) -> DecodeError:
        """Return the error of a value with the key of its row, if the row has one."""
        index = error.message_index or 0
        row = int(np.flatnonzero(self._rows == index - self._source.base)[0])
        key = [
            f"{column.name}={shown}"
            for column in self.relation.columns
            if column.flags & 1 and (shown := self.current[column.name].shown(row)) is not None
        ]
        if not key:
            return error
        row_key = f"row {', '.join(key)}"
        return error.at(index, f"{error.context}, {row_key[:_LONGEST_KEY]}")

    @property
    def before_columns(self) -> list[str]:
        """Names of the columns of ``_before``, by the decoder's option ``before``."""
        if self._decoding.before == "none":
            return []
        full = self._decoding.before == "full"
        return [column.name for column in self.relation.columns if full or column.flags & 1]

    @property
    def invalid_is_told(self) -> bool:
        """Whether values that a type cannot hold are named in ``_invalid``."""
        return self._decoding.unrepresentable != "raise"

    def retyped(self, types: TypeOptions) -> ChangeBatch:
        """Give the batch with its columns decoded as other types."""
        batch = ChangeBatch(
            self.version,
            self._source,
            self._rows,
            self.seq,
            self._transactions,
            self._transaction,
            replace(self._decoding, types=types),
        )
        batch._tables = self._tables
        return batch

    def without(self, rows: npt.NDArray[np.bool_]) -> ChangeBatch:
        """Give the batch less the rows where the mask is true."""
        keep = ~rows
        return ChangeBatch(
            self.version,
            self._source,
            self._rows[keep],
            self.seq[keep],
            self._transactions,
            self._transaction[keep],
            self._decoding,
        )

    @property
    def message_bytes(self) -> npt.NDArray[np.int64]:
        """How many bytes each row's message has."""
        offsets = self._source.messages.offsets
        return offsets[self._rows + 1] - offsets[self._rows]

    def errors(self) -> dict[int, DecodeError]:
        """Give the first error of each row that has a value which does not decode, by row."""
        found: dict[int, DecodeError] = {}
        for columns in (self.current, self.old):
            for column in columns.values():
                for row, error in column.errors():
                    found.setdefault(row, self._with_key(error))
        return found

    def message_index(self, row: int) -> int:
        """Give the index of a row's message in the call that it came in."""
        return self._source.base + int(self._rows[row])

    def message(self, row: int) -> bytes:
        """Give the bytes of a row's message."""
        return self._source.messages[int(self._rows[row])]

    def _column(self, name: str, table: TupleTable) -> Column:
        number = self._numbers[name]
        return Column(
            name,
            self.column_type(self.relation.columns[number]),
            table.state[number],
            table.offset[number],
            table.length[number],
            table.format[number],
            self._source,
            self._rows,
            self._decoding,
        )

    def column_type(self, column: RelationColumn) -> ColumnType:
        """Give a column's type under the decoder's options."""
        return column_type(
            column.type_oid,
            column.type_modifier,
            self._decoding.types,
            user_types={each.oid: (each.namespace, each.name) for each in self.version.types},
            registry=self._decoding.registry,
        )

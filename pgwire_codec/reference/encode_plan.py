"""Arguments of encode_batch, checked and arranged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import nanoarrow
import numpy as np
import numpy.typing as npt

from pgwire_codec.errors import EncodeError, OptionError
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import qualified_name
from pgwire_codec.reference.cursor import write_int
from pgwire_codec.reference.families import family_of
from pgwire_codec.reference.families.family import Family
from pgwire_codec.types import ColumnType, TypeOptions, TypeRegistry, column_type

_AS_TEXT = TypeOptions(types="text")


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Values of one column, for the rows of one part.

    Attributes
    ----------
    name : str
        The column's name.
    column : ColumnType
        Its type; of the format that is asked for, only text form or binary form matters.
    family : Family
        Codec of the type's values.
    array : nanoarrow.c_array.CArray
        The values; `start` is the part's first row in it.
    formats : tuple of str
        Arrow format of the array, of a list's elements, of theirs.
    binary : bool
        Whether values are written in binary form.
    unchanged : numpy.ndarray of bool, or None
        Rows of the part whose value is declared unchanged and is not sent.
    """

    name: str
    column: ColumnType
    family: Family
    array: Any
    start: int
    formats: tuple[str, ...]
    binary: bool
    unchanged: npt.NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class EncodeTuple:
    """Tuple that each message of a part has: its marker, and a source a column or None: NULL."""

    marker: bytes
    sources: tuple[ValueSource | None, ...]


@dataclass(frozen=True, slots=True)
class EncodePart:
    """Rows whose columns are in one array each."""

    first_row: int
    rows: int
    tuples: tuple[EncodeTuple, ...]


@dataclass(frozen=True, slots=True)
class EncodePlan:
    """Messages to write: the bytes before the first tuple of each, and the parts."""

    op: str
    xid: int | None
    relation_oid: int
    head: bytes
    parts: tuple[EncodePart, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one array."""

    array: Any
    start: int
    length: int


def prepare(
    relation: Relation,
    columns: object,
    op: str,
    old: object,
    unchanged: Mapping[str, npt.ArrayLike] | None,
    xid: int | None,
    binary: bool,
    registry: TypeRegistry,
) -> EncodePlan:
    """Check and arrange the arguments of encode_batch; raises as documented there."""
    if not isinstance(relation, Relation):
        raise TypeError(f"relation must be a Relation, not {type(relation).__name__}")
    if op not in ("I", "U", "D"):
        raise OptionError(f"op={op!r}: one of I, U, D")
    for name, value in (("old", old), ("unchanged", unchanged)):
        if value is not None and op != "U":
            raise OptionError(f"{name}= goes with op='U', not {op!r}")
    head = [op.encode()]
    if xid is not None:
        head.append(write_int("UInt32", xid, "xid"))
    head.append(write_int("UInt32", relation.oid, "relation.oid"))
    write_int("Int16", len(relation.columns), "the number of relation.columns")

    inputs: list[tuple[bytes, dict[str, list[_Piece]], int]] = []
    if op == "D" or old is not None:
        marker, names = _identity(relation)
        inputs.append((marker, *_pieces(relation, columns if op == "D" else old, names)))
    if op != "D":
        names = [column.name for column in relation.columns]
        inputs.append((b"N", *_pieces(relation, columns, names)))
    rows = inputs[0][2]
    if inputs[-1][2] != rows:
        raise EncodeError(f"old has {rows} rows and columns {inputs[-1][2]}: one each a message")
    masks = _masks(relation, unchanged or {}, rows)

    types = {
        column.name: column_type(column.type_oid, column.type_modifier, _AS_TEXT, registry=registry)
        for column in relation.columns
    }
    parts = []
    for low, high in _ranges(
        rows, (pieces for _, by_name, _ in inputs for pieces in by_name.values())
    ):
        tuples = []
        for marker, by_name, _ in inputs:
            sources: list[ValueSource | None] = []
            for column in relation.columns:
                pieces = by_name.get(column.name)
                if pieces is None:
                    sources.append(None)
                    continue
                mask = masks.get(column.name) if marker == b"N" else None
                sources.append(
                    _source(
                        column.name,
                        types[column.name],
                        _piece_at(pieces, low),
                        binary,
                        None if mask is None else mask[low:high],
                    )
                )
            tuples.append(EncodeTuple(marker, tuple(sources)))
        parts.append(EncodePart(low, high - low, tuple(tuples)))
    return EncodePlan(op, xid, relation.oid, b"".join(head), tuple(parts))


def _identity(relation: Relation) -> tuple[bytes, list[str]]:
    """Return the marker of the relation's old tuples and the columns that they have."""
    if relation.replica_identity == "f":
        return b"O", [column.name for column in relation.columns]
    names = [column.name for column in relation.columns if column.flags & 1]
    if not names:
        name = qualified_name(relation.namespace, relation.name)
        raise EncodeError(
            f"{name} has no replica identity: no column is of the key, and it is not FULL"
        )
    return b"K", names


def _pieces(
    relation: Relation, columns: object, names: Sequence[str]
) -> tuple[dict[str, list[_Piece]], int]:
    """Return the arrays of the columns that are wanted, and their number of rows."""
    known = [column.name for column in relation.columns]
    if isinstance(columns, Mapping):
        found = {name: _column_pieces(name, value) for name, value in columns.items()}
    elif hasattr(columns, "__arrow_c_stream__") or hasattr(columns, "__arrow_c_array__"):
        return _table_pieces(known, columns, names)
    elif isinstance(columns, (list, tuple)):
        if len(columns) != len(names):
            raise EncodeError(f"{len(columns)} columns given, for the {len(names)} of {names}")
        found = {
            name: _column_pieces(name, value) for name, value in zip(names, columns, strict=True)
        }
    else:
        raise TypeError(
            "columns must be an Arrow table or record batch, a mapping of names to Arrow arrays "
            f"or a sequence of them, not {type(columns).__name__}"
        )
    _check_names(known, found, names)
    counts = {name: sum(piece.length for piece in found[name]) for name in names}
    for name, count in counts.items():
        if count != counts[names[0]]:
            raise EncodeError(
                f"column {name!r} has {count} rows, column {names[0]!r} {counts[names[0]]}"
            )
    return {name: found[name] for name in names}, counts[names[0]] if names else 0


def _check_names(known: Sequence[str], given: Iterable[str], names: Sequence[str]) -> None:
    given = list(given)
    for name in given:
        if name not in known:
            raise EncodeError(f"column {name!r} is not one of the relation's: {', '.join(known)}")
    for name in names:
        if name not in given:
            raise EncodeError(f"column {name!r} is missing: {', '.join(names)} are wanted")


def _chunks(value: object) -> tuple[Any, list[Any]]:
    """Return a schema and the arrays that have it."""
    if hasattr(value, "__arrow_c_stream__"):
        stream = nanoarrow.c_array_stream(value)
        return stream.get_schema(), list(stream)
    array = nanoarrow.c_array(value)
    return array.schema, [array]


def _column_pieces(name: str, value: object) -> list[_Piece]:
    try:
        _, chunks = _chunks(value)
    except (TypeError, ValueError, NotImplementedError):
        raise EncodeError(
            f"column {name!r}: an Arrow array is wanted, not {type(value).__name__}"
        ) from None
    return [_Piece(chunk, 0, chunk.length) for chunk in chunks]


def _table_pieces(
    known: Sequence[str], columns: object, names: Sequence[str]
) -> tuple[dict[str, list[_Piece]], int]:
    schema, chunks = _chunks(columns)
    if schema.format != "+s":
        raise TypeError(f"columns must be a table, not an Arrow array of format {schema.format!r}")
    children = {schema.child(index).name: index for index in range(schema.n_children)}
    if len(children) != schema.n_children:
        raise EncodeError("columns has two columns of one name")
    _check_names(known, children, names)
    found: dict[str, list[_Piece]] = {name: [] for name in names}
    rows = 0
    for chunk in chunks:
        if chunk.null_count:
            raise EncodeError("columns has rows that are null as a whole")
        for name in names:
            found[name].append(_Piece(chunk.child(children[name]), chunk.offset, chunk.length))
        rows += chunk.length
    return found, rows


def _masks(
    relation: Relation, unchanged: Mapping[str, npt.ArrayLike], rows: int
) -> dict[str, npt.NDArray[np.bool_]]:
    _check_names([column.name for column in relation.columns], unchanged, ())
    masks = {name: np.asarray(mask) for name, mask in unchanged.items()}
    for name, mask in masks.items():
        if mask.dtype != np.bool_ or mask.shape != (rows,):
            raise EncodeError(
                f"unchanged[{name!r}] must be {rows} booleans, not {mask.dtype} of shape "
                f"{mask.shape}"
            )
    return masks


def _ranges(rows: int, columns: Iterable[list[_Piece]]) -> Iterable[tuple[int, int]]:
    """Cut the rows wherever a column continues in another array."""
    cuts = {0, rows}
    for pieces in columns:
        cuts.update(np.cumsum([piece.length for piece in pieces]).tolist())
    ends = sorted(cuts)
    return pairwise(ends)


def _piece_at(pieces: list[_Piece], row: int) -> _Piece:
    for piece in pieces:
        if row < piece.length:
            return _Piece(piece.array, piece.start + row, piece.length - row)
        row -= piece.length
    raise AssertionError("a row beyond the column's last")


def _source(
    name: str,
    column: ColumnType,
    piece: _Piece,
    binary: bool,
    unchanged: npt.NDArray[np.bool_] | None,
) -> ValueSource:
    family, formats = family_of(column), _formats(piece.array)
    if not family.is_written_from(formats):
        raise EncodeError(
            f"column {name!r} of type {column.pg.name}: wanted {family.wanted_arrow}, not Arrow "
            f"{'/'.join(formats)}"
        )
    # A binary form of unknown meaning has no text form.
    always = column.pg.family == "unknown"
    return ValueSource(
        name,
        column,
        family,
        piece.array,
        piece.start,
        formats,
        (binary or always) and family.has_binary_form(formats),
        unchanged,
    )


def _formats(array: Any) -> tuple[str, ...]:
    if array.dictionary is not None:
        return ("dictionary",)
    own = str(array.schema.format)
    if own.startswith("+") and array.n_children == 1:
        return (own, *_formats(array.child(0)))
    return (own,)

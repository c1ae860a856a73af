"""Columns as Arrow lays them out: numpy buffers, and what Python, numpy and Arrow make of them.

The buffers are those of the Arrow columnar format, so that wrapping them costs nothing. The format
strings are those of the Arrow C data interface.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import nanoarrow
import numpy as np
import numpy.typing as npt
from nanoarrow._schema import CSchemaBuilder

from pgwire_codec.errors import MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa

#: A month_day_nano interval as Arrow stores it.
INTERVAL_DTYPE: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])

#: Arrow format to the dtype of the values' buffer, of the types that have one.
DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "s": np.dtype("<i2"),
    "i": np.dtype("<i4"),
    "l": np.dtype("<i8"),
    "C": np.dtype("u1"),
    "I": np.dtype("<u4"),
    "L": np.dtype("<u8"),
    "f": np.dtype("<f4"),
    "g": np.dtype("<f8"),
    "tdD": np.dtype("<i4"),
    "ttu": np.dtype("<i8"),
    "tsu:": np.dtype("<i8"),
    "tsu:UTC": np.dtype("<i8"),
    "tin": INTERVAL_DTYPE,
}


@dataclass(slots=True)
class ArrowBuffers:
    """One array in Arrow's layout.

    Attributes
    ----------
    format : str
        Arrow C data interface format.
    length, null_count : int
        Rows, and how many of them are null.
    validity : numpy.ndarray of uint8 or None
        Bitmap, least significant bit first, 1 for a value; None where nothing is null.
    buffers : list of numpy.ndarray
        The layout's buffers after the validity bitmap, with the dtype of what is in them: values;
        or offsets (int32) and bytes (uint8); or, of a view, views (int32, four a row) and each of
        the buffers that they point into.
    children : list of ArrowBuffers
        Fields of a struct, elements of a list.
    names : list of str
        Names of a struct's fields.
    extension : str or None
        Name of the Arrow extension type.
    numeric : bool
        Whether the strings are numerics, whose Python value is a Decimal.
    """

    format: str
    length: int
    null_count: int
    validity: npt.NDArray[np.uint8] | None
    buffers: list[npt.NDArray[Any]]
    children: list[ArrowBuffers] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    extension: str | None = None
    numeric: bool = False


def validity_bitmap(valid: npt.ArrayLike) -> tuple[int, npt.NDArray[np.uint8] | None]:
    """Give the null count and the bitmap of a boolean array, None where nothing is null."""
    flags = np.asarray(valid, dtype=bool)
    null_count = len(flags) - int(np.count_nonzero(flags))
    return null_count, np.packbits(flags, bitorder="little") if null_count else None


def valid_rows(array: ArrowBuffers) -> npt.NDArray[np.bool_]:
    """Give a boolean a row: whether it has a value."""
    if array.validity is None:
        return np.ones(array.length, dtype=bool)
    return np.unpackbits(array.validity, count=array.length, bitorder="little").astype(bool)


def is_view(array: ArrowBuffers) -> bool:
    """Say whether rows are views into other buffers."""
    return array.format in ("vu", "vz")


def value_bytes(array: ArrowBuffers, row: int) -> bytes:
    """Give the bytes of one row of strings or binaries, of either layout."""
    if is_view(array):
        views, *pool = array.buffers
        length, _, index, offset = (int(word) for word in views[4 * row : 4 * row + 4])
        if length <= 12:
            return views[4 * row + 1 : 4 * row + 4].tobytes()[:length]
        return bytes(pool[index][offset : offset + length].tobytes())
    offsets, data = array.buffers
    return bytes(data[offsets[row] : offsets[row + 1]].tobytes())


def without_views(array: ArrowBuffers) -> ArrowBuffers:
    """Give the array with its views copied into plain strings."""
    if not is_view(array):
        return array
    valid = valid_rows(array)
    values = [value_bytes(array, row) if valid[row] else b"" for row in range(array.length)]
    offsets = np.zeros(array.length + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    data = np.frombuffer(b"".join(values), np.uint8)
    return ArrowBuffers(
        array.format[1:],
        array.length,
        array.null_count,
        array.validity,
        [offsets, data],
        numeric=array.numeric,
    )


def c_schema(array: ArrowBuffers, name: str = "") -> Any:
    """Give the nanoarrow.c_schema.CSchema that :func:`to_c_array` has for the array."""
    return _schema_builder(array, name).finish()


def _schema_builder(array: ArrowBuffers, name: str) -> Any:
    builder = CSchemaBuilder.allocate()
    builder.set_format(array.format.removeprefix("v"))
    builder.set_name(name)
    builder.set_nullable(True)
    if array.extension is not None:
        builder.append_metadata(
            {b"ARROW:extension:name": array.extension.encode(), b"ARROW:extension:metadata": b""}
        )
    builder.allocate_children(len(array.children))
    names = array.names or ["item"] * len(array.children)
    for index, (child, child_name) in enumerate(zip(array.children, names, strict=True)):
        builder.set_child(index, child_name, c_schema(child))
    return builder


def to_c_array(array: ArrowBuffers, name: str = "") -> Any:
    """Wrap the buffers as a nanoarrow.c_array.CArray without copying them.

    Views are the exception, and become plain strings: nanoarrow's Python bindings (0.9) corrupt
    memory when they hand on an array of views. :func:`to_pyarrow` keeps them.
    """
    array = without_views(array)
    buffers = [array.validity, *(_plain(buffer) for buffer in array.buffers)]
    return nanoarrow.c_array_from_buffers(
        c_schema(array, name),
        array.length,
        buffers,
        null_count=array.null_count,
        children=[to_c_array(child) for child in array.children],
    )


def _plain(buffer: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Give a buffer whose elements the buffer protocol can name: bytes for a structured one."""
    return buffer.view(np.uint8) if buffer.dtype.names else buffer


def to_pyarrow(array: ArrowBuffers) -> pa.Array:
    """Wrap the buffers as a pyarrow.Array without copying them, views included.

    Raises
    ------
    MissingExtraError
        If pyarrow is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError(
            "pyarrow is needed for this: pip install 'pgwire-codec[arrow]'"
        ) from error
    if not _has_views(array):
        return pyarrow.array(to_c_array(array))
    validity = None if array.validity is None else pyarrow.py_buffer(array.validity)
    buffers = [validity, *(pyarrow.py_buffer(_plain(buffer)) for buffer in array.buffers)]
    children = [to_pyarrow(child) for child in array.children]
    if array.format == "+s":
        fields = [
            pyarrow.field(name, child.type)
            for name, child in zip(array.names, children, strict=True)
        ]
        kind = pyarrow.struct(fields)
    else:
        kind = pyarrow.string_view() if array.format == "vu" else pyarrow.binary_view()
    return pyarrow.Array.from_buffers(
        kind, array.length, buffers, null_count=array.null_count, children=children
    )


def _has_views(array: ArrowBuffers) -> bool:
    return is_view(array) or any(_has_views(child) for child in array.children)

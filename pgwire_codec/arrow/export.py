"""Columns in Arrow's layout, and what Arrow, numpy and Python make of them.

The buffers are those of the Arrow columnar format, so that wrapping them costs nothing. The format
strings are those of the Arrow C data interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import nanoarrow
import numpy as np
import numpy.typing as npt
from nanoarrow._schema import CSchemaBuilder

from pgwire_codec.arrow.layout import (
    ArrowBuffers,
    valid_rows,
    validity_bitmap,
    value_bytes,
    without_views,
)
from pgwire_codec.arrow.values import Interval, to_numpy, to_pylist
from pgwire_codec.errors import MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ArrowBuffers",
    "Interval",
    "c_schema",
    "to_c_array",
    "to_numpy",
    "to_pyarrow",
    "to_pylist",
    "valid_rows",
    "validity_bitmap",
    "value_bytes",
    "without_views",
]


#: Arrow format to the name of the pyarrow function that gives the type.
_PYARROW_TYPES: Final = {
    "b": "bool_",
    "s": "int16",
    "i": "int32",
    "l": "int64",
    "C": "uint8",
    "I": "uint32",
    "L": "uint64",
    "f": "float32",
    "g": "float64",
    "u": "string",
    "z": "binary",
    "vu": "string_view",
    "vz": "binary_view",
    "tdD": "date32",
    "ttu": "time64",
    "tin": "month_day_nano_interval",
}


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

    pyarrow's own constructor, not the C data interface: a batch of many columns is wrapped in a
    fraction of the time.

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
    return _to_pyarrow(array, pyarrow)


def _to_pyarrow(array: ArrowBuffers, pyarrow: Any) -> pa.Array:
    children = [_to_pyarrow(child, pyarrow) for child in array.children]
    validity = None if array.validity is None else pyarrow.py_buffer(array.validity)
    storage = pyarrow.Array.from_buffers(
        _pyarrow_type(array, children, pyarrow),
        array.length,
        [validity, *(pyarrow.py_buffer(_plain(buffer)) for buffer in array.buffers)],
        null_count=array.null_count,
        children=children,
    )
    if array.extension == "arrow.uuid":
        return pyarrow.ExtensionArray.from_storage(pyarrow.uuid(), storage)
    return storage


def _pyarrow_type(array: ArrowBuffers, children: Sequence[pa.Array], pyarrow: Any) -> pa.DataType:
    """Give the pyarrow type of a format of the C data interface."""
    form = array.format
    if form == "+s":
        types = [child.type for child in children]
        return pyarrow.struct([*map(pyarrow.field, array.names, types)])
    if form == "+l":
        return pyarrow.list_(children[0].type)
    if form.startswith("w:"):
        return pyarrow.binary(int(form[2:]))
    if form.startswith("d:"):
        precision, scale, *wide = map(int, form[2:].split(","))
        return (pyarrow.decimal256 if wide else pyarrow.decimal128)(precision, scale)
    if form.startswith("tsu:"):
        return pyarrow.timestamp("us", form[4:] or None)
    return getattr(pyarrow, _PYARROW_TYPES[form])(*(["us"] if form == "ttu" else []))

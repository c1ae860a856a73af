"""Columns in Arrow's layout, and what Arrow, numpy and Python make of them.

The buffers are those of the Arrow columnar format, so that wrapping them costs nothing. The format
strings are those of the Arrow C data interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nanoarrow
import numpy as np
import numpy.typing as npt
from nanoarrow._schema import CSchemaBuilder

from pgwire_codec._arrow_layout import (
    ArrowBuffers,
    is_view,
    valid_rows,
    validity_bitmap,
    value_bytes,
    without_views,
)
from pgwire_codec._arrow_values import Interval, to_numpy, to_pylist
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

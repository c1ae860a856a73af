"""Export of columns through Arrow's C data interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgwire_codec.arrow.export import import_pyarrow, to_c_array, to_pyarrow
from pgwire_codec.arrow.layout import ArrowBuffers

if TYPE_CHECKING:
    import pyarrow as pa


def array_capsule(array: ArrowBuffers) -> object:
    """Return an array as a capsule named ``arrow_array``, without copying its buffers.

    Views are the exception: :func:`to_c_array` makes plain strings of them. The array must not be
    changed afterwards.
    """
    capsules: tuple[object, object] = to_c_array(array).__arrow_c_array__()
    return capsules[1]


def record_batch(array: ArrowBuffers, schema: pa.Schema) -> pa.RecordBatch:
    """Return a struct as a ``pyarrow.RecordBatch``, without copying its buffers, views included.

    ``schema`` has the fields of the struct, as ``pyarrow_schema`` returns them. The array must not
    be changed afterwards.

    Raises ``MissingExtraError`` if pyarrow is not installed.
    """
    pyarrow = import_pyarrow()
    children = [to_pyarrow(child) for child in array.children]
    return pyarrow.RecordBatch.from_arrays(children, schema=schema)

"""Export of columns in Arrow's layout, to nanoarrow and pyarrow.

The buffers are those of the Arrow columnar format, so that wrapping them costs nothing. The format
strings are those of the Arrow C data interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import ArrowBuffers, without_views
from pgwire_codec.errors import missing_extra

if TYPE_CHECKING:
    import pyarrow as pa

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
    "tDu": "duration",
}
#: Formats whose type takes a unit.
_MICROSECONDS: Final = ("ttu", "tDu")


#: Arrow format to the name of nanoarrow's function that returns the type.
_NANOARROW_TYPES: Final = _PYARROW_TYPES | {
    "tin": "interval_month_day_nano",
}


class ArrayType(NamedTuple):
    """Type of an array, hashable: its format and extension name, and those of its children."""

    format: str
    extension: str | None
    names: tuple[str, ...]
    children: tuple[ArrayType, ...]


def array_type(array: ArrowBuffers) -> ArrayType:
    """Return the type of an array, with the names of a struct's fields; views are strings."""
    children = tuple(array_type(child) for child in array.children)
    return ArrayType(array.format.removeprefix("v"), array.extension, tuple(array.names), children)


def c_schema(array: ArrowBuffers, name: str = "") -> Any:
    """Return the nanoarrow.c_schema.CSchema that :func:`to_c_array` has for the array."""
    return _c_schema(array_type(array), name)


# A schema takes nanoarrow longer than a small batch takes to decode.
@lru_cache(maxsize=1024)
def _c_schema(type_: ArrayType, name: str) -> Any:
    import nanoarrow

    return nanoarrow.c_schema(nanoarrow.Schema(_nanoarrow_type(type_), name=name))


def _nanoarrow_type(type_: ArrayType) -> Any:
    """Return the nanoarrow type of a format of the C data interface."""
    import nanoarrow

    form = type_.format
    if type_.extension is not None:
        storage = _nanoarrow_type(type_._replace(extension=None))
        return nanoarrow.extension_type(storage, type_.extension, b"")
    if form == "+s":
        children = zip(type_.children, type_.names, strict=True)
        return nanoarrow.struct(
            [nanoarrow.Schema(_nanoarrow_type(child), name=name) for child, name in children]
        )
    if form == "+l":
        return nanoarrow.list_(_nanoarrow_type(type_.children[0]))
    if form.startswith("w:"):
        return nanoarrow.fixed_size_binary(int(form[2:]))
    if form.startswith("d:"):
        precision, scale, *wide = map(int, form[2:].split(","))
        return (nanoarrow.decimal256 if wide else nanoarrow.decimal128)(precision, scale)
    if form.startswith("tsu:"):
        return nanoarrow.timestamp("us", form[4:] or None)
    return getattr(nanoarrow, _NANOARROW_TYPES[form])(*(["us"] if form in _MICROSECONDS else []))


def to_c_array(array: ArrowBuffers, name: str = "") -> Any:
    """Wrap the buffers as a nanoarrow.c_array.CArray without copying them.

    Views are the exception, and become plain strings: nanoarrow's Python bindings (0.9) corrupt
    memory when they hand on an array of views. :func:`to_pyarrow` keeps them.
    """
    import nanoarrow

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
    """Return a buffer whose elements the buffer protocol can name: bytes for a structured one."""
    return buffer.view(np.uint8) if buffer.dtype.names else buffer


def import_pyarrow() -> Any:
    """Return the module.

    Raises
    ------
    MissingExtraError
        If pyarrow is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise missing_extra("pyarrow is not installed", "arrow") from error
    return pyarrow


def to_pyarrow(array: ArrowBuffers) -> pa.Array:
    """Wrap the buffers as a pyarrow.Array without copying them, views included.

    Raises ``MissingExtraError`` if pyarrow is not installed.
    """
    return _to_pyarrow(array, import_pyarrow())


def _to_pyarrow(array: ArrowBuffers, pyarrow: Any) -> pa.Array:
    children = [_to_pyarrow(child, pyarrow) for child in array.children]
    validity = None if array.validity is None else pyarrow.py_buffer(array.validity)
    storage = pyarrow.Array.from_buffers(
        _storage_type(array, [child.type for child in children], pyarrow),
        array.length,
        [validity, *(pyarrow.py_buffer(_plain(buffer)) for buffer in array.buffers)],
        null_count=array.null_count,
        children=children,
    )
    if array.extension == "arrow.uuid":
        return pyarrow.ExtensionArray.from_storage(pyarrow.uuid(), storage)
    return storage


def pyarrow_schema(struct: ArrowBuffers) -> pa.Schema:
    """Return the fields of a struct as a pyarrow.Schema.

    Raises ``MissingExtraError`` if pyarrow is not installed.
    """
    pyarrow = import_pyarrow()
    types = [_pyarrow_type(child, pyarrow) for child in struct.children]
    return pyarrow.schema(list(map(pyarrow.field, struct.names, types)))


def pyarrow_type(array: ArrowBuffers) -> pa.DataType:
    """Return the type of an array as pyarrow's.

    Raises ``MissingExtraError`` if pyarrow is not installed.
    """
    return _pyarrow_type(array, import_pyarrow())


def _pyarrow_type(array: ArrowBuffers, pyarrow: Any) -> pa.DataType:
    if array.extension == "arrow.uuid":
        return pyarrow.uuid()
    children = [_pyarrow_type(child, pyarrow) for child in array.children]
    return _storage_type(array, children, pyarrow)


def _storage_type(
    array: ArrowBuffers, children: Sequence[pa.DataType], pyarrow: Any
) -> pa.DataType:
    """Return the pyarrow type of a format of the C data interface."""
    form = array.format
    if form == "+s":
        return pyarrow.struct([*map(pyarrow.field, array.names, children)])
    if form == "+l":
        return pyarrow.list_(children[0])
    if form.startswith("w:"):
        return pyarrow.binary(int(form[2:]))
    if form.startswith("d:"):
        precision, scale, *wide = map(int, form[2:].split(","))
        return (pyarrow.decimal256 if wide else pyarrow.decimal128)(precision, scale)
    if form.startswith("tsu:"):
        return pyarrow.timestamp("us", form[4:] or None)
    return getattr(pyarrow, _PYARROW_TYPES[form])(*(["us"] if form in _MICROSECONDS else []))

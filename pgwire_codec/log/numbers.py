"""Numbers of Arrow arrays as numpy arrays, and the other way round.

``pyarrow.array``, ``pyarrow.scalar`` and ``to_numpy`` import pandas where it is installed. That
takes half a second, in which a capture would not write its first messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(array: pa.Array, unknown: int = 0) -> npt.NDArray[Any]:
    """Return the values of an array of integers, with ``unknown`` for nulls."""
    if not array.null_count:
        return np.from_dlpack(array)
    buffers = [None, array.buffers()[1]]
    plain = pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset)
    return np.where(is_known(array), np.from_dlpack(plain), unknown)


def is_known(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return for each value of an array whether it is not null."""
    valid = array.is_valid()
    bits = np.frombuffer(valid.buffers()[1], np.uint8)
    stop = valid.offset + len(valid)
    return np.unpackbits(bits, count=stop, bitorder="little")[valid.offset :].view(np.bool_)


def to_array(
    values: npt.NDArray[Any], kind: pa.DataType, known: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Return numbers as an Arrow array of a type with as many bits; null where not known."""
    bits = None
    if known is not None and not known.all():
        bits = pa.py_buffer(np.packbits(known, bitorder="little"))
    buffers = [bits, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)

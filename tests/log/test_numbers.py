"""Numbers of Arrow arrays, without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec.log.numbers import is_known, numbers, to_array
from tests.support.build import column, insert, relation, transaction

ARRAYS = [
    pa.array([3, None, -1, 2**40, None, 7, 8, 9, 10, 11], pa.int64()),
    pa.array([3, 0, 5, 2**32 - 1], pa.uint32()),
    pa.array([None] * 9, pa.int32()),
    pa.array([], pa.int64()),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.type))
@pytest.mark.parametrize("start", [0, 1, 3])
def test_numbers_are_those_of_arrow(array: pa.Array, start: int) -> None:
    array = array.slice(start)
    found = numbers(array, unknown=-5 if array.type != pa.uint32() else 0)
    assert found.tolist() == [-5 if each is None else each for each in array.to_pylist()]
    assert found.dtype == np.dtype(str(array.type))
    assert is_known(array).tolist() == [each is not None for each in array.to_pylist()]
    assert to_array(found, array.type, is_known(array)).equals(array)


WRITE = """
import sys, numpy, pyarrow
from pgwire_codec import log
data, path = {data!r}, {path!r}
lengths = numpy.cumsum([0, *map(len, data)], dtype="i4")
buffers = [None, pyarrow.py_buffer(lengths), pyarrow.py_buffer(b"".join(data))]
messages = pyarrow.Array.from_buffers(pyarrow.binary(), len(data), buffers)
times = numpy.array(["2026-01-02", "NaT", "2026-01-03", "2026-01-03"], "M8[us]")
with log.LogWriter(path, log.LogSource("1", 1, "d", "s", 1)) as writer:
    writer.append(messages, numpy.arange(4, dtype="u8"), times)
    writer.flush(110)
    assert "pandas" not in sys.modules, "after a flush"
    [batch] = log.Log(path).read("public.t")
    assert batch.to_arrow().column("id").to_pylist() == [7]
    assert "pandas" not in sys.modules, "after a growing segment was read"
"""


def test_until_a_segment_is_sealed_pandas_is_not_imported(tmp_path: Path) -> None:
    """Its import takes half a second, in which a capture does not write."""
    messages = transaction(relation(1, column("id", "int4")), insert(1, "7"))
    data, path = [pgc.encode_message(each) for each in messages], str(tmp_path)
    code = WRITE.format(data=data, path=path)
    subprocess.run([sys.executable, "-c", code], check=True)

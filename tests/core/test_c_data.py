"""The compiled export through Arrow's C data interface: who owns the buffers, and until when."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pgwire_codec.arrow.export import c_schema, pyarrow_schema, to_pyarrow
from pgwire_codec.arrow.layout import ArrowBuffers, validity_bitmap
from tests.support.build import batch, insert
from tests.support.implementations import Implementation, implementation
from tests.support.values import decode as decode_values

pytest.importorskip("pgwire_codec._core", reason="no compiled core is built")
core = implementation("cython")

UUID = b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"


class CArray(ctypes.Structure):
    """struct ArrowArray."""


Release = ctypes.CFUNCTYPE(None, ctypes.POINTER(CArray))
CArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(CArray))),
    ("dictionary", ctypes.c_void_p),
    ("release", Release),
    ("private_data", ctypes.c_void_p),
]


def pointed_to(capsule: object) -> CArray:
    """The structure that a capsule points to."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(capsule, b"arrow_array")
    return ctypes.cast(address, ctypes.POINTER(CArray)).contents


def moved(array: CArray) -> CArray:
    """The array in memory of its own; what it was moved from is released."""
    copy = CArray()
    ctypes.memmove(ctypes.byref(copy), ctypes.byref(array), ctypes.sizeof(CArray))
    array.release = Release()
    return copy


def watched(values: Any) -> tuple[np.ndarray[Any, Any], weakref.ref[Any]]:
    """An array, and a reference that ends with it."""
    array = np.array(values)
    return array, weakref.ref(array)


def alive(references: list[weakref.ref[Any]]) -> list[bool]:
    gc.collect()
    return [reference() is not None for reference in references]


class TestCapsule:
    def test_frees_the_buffers_with_its_own_end(self) -> None:
        buffer, reference = watched([1, 2])
        capsule = core.array_capsule(ArrowBuffers("l", 2, 0, None, [buffer]))
        del buffer
        assert alive([reference]) == [True]
        del capsule
        assert alive([reference]) == [False]

    def test_hands_the_buffers_to_who_takes_it(self) -> None:
        buffer, reference = watched([1, 2])
        made = ArrowBuffers("l", 2, 0, None, [buffer])
        schema, capsule = c_schema(made).__arrow_c_schema__(), core.array_capsule(made)
        address = buffer.ctypes.data
        del buffer, made
        taken = pa.Array._import_from_c_capsule(schema, capsule)
        assert not pointed_to(capsule).release
        del capsule  # has nothing left to release
        assert taken.buffers()[1].address == address
        assert taken.to_pylist() == [1, 2]
        assert alive([reference]) == [True]
        part = taken.slice(1)
        del taken
        assert part.to_pylist() == [2]
        del part
        assert alive([reference]) == [False]

    def test_cannot_be_taken_twice(self) -> None:
        made = ArrowBuffers("l", 2, 0, None, [np.array([1, 2])])
        capsule = core.array_capsule(made)
        for _ in pa.Array._import_from_c_capsule(c_schema(made).__arrow_c_schema__(), capsule):
            pass
        with pytest.raises(pa.ArrowInvalid, match="released"):
            pa.Array._import_from_c_capsule(c_schema(made).__arrow_c_schema__(), capsule)

    def test_a_child_that_is_moved_outlives_its_parent(self) -> None:
        kept, first = watched([1, 2])
        gone, second = watched([3, 4])
        children = [ArrowBuffers("l", 2, 0, None, [each]) for each in (kept, gone)]
        capsule = core.array_capsule(ArrowBuffers("+s", 2, 0, None, [], children, ["a", "b"]))
        address = kept.ctypes.data
        del kept, gone, children
        parent = moved(pointed_to(capsule))
        child = moved(parent.children[0].contents)
        parent.release(parent)
        del capsule
        assert not parent.release
        # The struct's own reference is gone, and the child's column is all that is left.
        assert alive([first, second]) == [True, False]
        assert child.buffers[1] == address
        child.release(child)
        assert alive([first]) == [False]

    def test_may_be_released_by_any_thread(self) -> None:
        buffer, reference = watched([1, 2])
        capsule = core.array_capsule(ArrowBuffers("l", 2, 0, None, [buffer]))
        del buffer
        array = moved(pointed_to(capsule))
        thread = threading.Thread(target=lambda: array.release(array))
        thread.start()
        thread.join()
        assert alive([reference]) == [False]

    def test_a_requested_schema(self) -> None:
        made = batch(insert(1, "1", "a", None))
        requested = made.to_arrow().schema.__arrow_c_schema__()
        for exporter in (made, made.new["id"]):
            with pytest.raises(NotImplementedError):
                exporter.__arrow_c_array__(requested)

    def test_an_error_releases_what_was_exported(self) -> None:
        buffer, reference = watched([1, 2])
        strided = np.arange(4)[::2]
        children = [ArrowBuffers("l", 2, 0, None, [each]) for each in (buffer, strided)]
        struct = ArrowBuffers("+s", 2, 0, None, [], children, ["a", "b"])
        with pytest.raises(ValueError, match="contiguous"):
            core.array_capsule(struct)
        with pytest.raises(ValueError, match="contiguous"):
            core.record_batch(struct, pa.schema({"a": pa.int64(), "b": pa.int64()}))
        del buffer, children, struct
        assert alive([reference]) == [False]


class TestRecordBatch:
    def test_frees_the_buffers_with_its_last_column(self) -> None:
        buffer, reference = watched([1, 2])
        struct = ArrowBuffers(
            "+s", 2, 0, None, [], [ArrowBuffers("l", 2, 0, None, [buffer])], ["a"]
        )
        record = core.record_batch(struct, pyarrow_schema(struct))
        del buffer, struct
        values = record.column(0)
        del record
        assert alive([reference]) == [True]
        assert values.to_pylist() == [1, 2]
        del values
        assert alive([reference]) == [False]

    def test_another_number_of_fields(self) -> None:
        buffer, reference = watched([1, 2])
        struct = ArrowBuffers(
            "+s", 2, 0, None, [], [ArrowBuffers("l", 2, 0, None, [buffer])], ["a"]
        )
        with pytest.raises(pa.ArrowInvalid, match="children"):
            core.record_batch(struct, pa.schema({"a": pa.int64(), "b": pa.int64()}))
        del buffer, struct
        assert alive([reference]) == [False]

    @pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 100])
    @pytest.mark.parametrize("strings", ["copy", "view"])
    def test_every_layout(self, codec: Implementation, rows: int, strings: str) -> None:
        values = {
            "int4": b"1", "text": b"longer than twelve bytes", "bool": b"t", "uuid": UUID,
            "numeric": b"1.5", "numeric(15,2)": b"1.50", "_text": b"{a,NULL}", "bytea": b"\\x00ff",
            "interval": b"1 day", "_uuid": b"{" + UUID + b"}",
        }  # fmt: skip
        fields = [
            decode_values(codec, name, [value, None] * rows, strings=strings).array
            for name, value in values.items()
        ]
        valid = np.arange(2 * rows) % 3 > 0
        inner = ArrowBuffers(
            "+s", 2 * rows, *validity_bitmap(valid), [], list(fields), list(values)
        )
        struct = ArrowBuffers(
            "+s", 2 * rows, 0, None, [], [*fields, inner], [*values, "all of them"]
        )
        schema = pyarrow_schema(struct)
        record = core.record_batch(struct, schema)
        record.validate(full=True)
        assert record.schema == schema
        for name, array in zip(schema.names, struct.children, strict=True):
            assert record[name].equals(to_pyarrow(array))
            assert record[name].null_count == array.null_count
        assert record.slice(1, 3).to_pylist() == record.to_pylist()[1:4]
        taken = pa.RecordBatch._import_from_c_capsule(
            c_schema(struct).__arrow_c_schema__(), core.array_capsule(struct)
        )
        taken.validate(full=True)
        assert taken.to_pylist() == record.to_pylist()


def test_batches_among_threads() -> None:
    """Record batches are made, sliced and dropped by four threads at once."""
    made = batch(*[insert(1, str(number), "a", None) for number in range(100)])
    wanted = made.to_arrow().to_pylist()
    wrong = []

    def work() -> None:
        for _ in range(200):
            taken = pa.record_batch(made)
            if taken.slice(40, 2).to_pylist() != wanted[40:42] or made.to_arrow()["id"][0].as_py():
                wrong.append(taken)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

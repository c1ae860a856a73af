"""arrow_messages: the messages of an Arrow array, which keeps its buffers.

The counterpart, which reads arrays of any type, is :mod:`pgwire_codec.codec.message_array`.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t

import sys

import numpy as np

from pgwire_codec._core.columns.c_data cimport ArrowArray

from pgwire_codec._core.wire.join import join_views
from pgwire_codec.codec.message_array import Messages, from_arrow

UINT8, INT32, INT64 = np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.int64)

cdef struct ArrowSchema:
    # Its first field alone is read.
    const char* format


cdef class Borrowed:
    """Read-only memory of an Arrow array, which lives as long as its capsule."""

    cdef object capsule
    cdef const void* p
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*> self.p, self.size, True, flags)


cdef object borrowed(object capsule, const void* p, int64_t size, object dtype):
    """Return so many bytes at p as an array."""
    cdef Borrowed memory
    if size == 0:
        return np.frombuffer(b"", dtype)
    memory = Borrowed()
    memory.capsule, memory.p, memory.size = capsule, p, size
    return np.frombuffer(memory, dtype)


cdef bint has_null(const ArrowArray* array) noexcept:
    cdef const uint8_t* validity = <const uint8_t*> array.buffers[0]
    cdef int64_t row
    if array.null_count == 0 or validity == NULL:
        return False
    for row in range(array.offset, array.offset + array.length):
        if not validity[row >> 3] >> (row & 7) & 1:
            return True
    return False


def arrow_messages(array):
    """Return the messages of an Arrow array; see ``reference.join.arrow_messages``."""
    # nanoarrow ends the process when it exports the views of a stream's chunk. Its arrays exist
    # only after their class was imported.
    nanoarrow_class = getattr(sys.modules.get("nanoarrow.c_array"), "CArray", ())
    messages = None if isinstance(array, nanoarrow_class) else binary_messages(array)
    return from_arrow(array, join_views) if messages is None else messages


cdef binary_messages(array):
    """Return the messages of a binary or large_binary array without nulls; None of another one."""
    schema_capsule, capsule = array.__arrow_c_array__()
    cdef const char* form = (<ArrowSchema*> PyCapsule_GetPointer(
        schema_capsule, "arrow_schema"
    )).format
    cdef ArrowArray* exported = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    cdef bint is_large = form[0] == b"Z"
    cdef int64_t first = exported.offset, length = exported.length
    cdef int64_t end
    if form[0] not in b"zZ" or form[1] != 0 or has_null(exported):
        return None
    if length == 0:
        return Messages(np.frombuffer(b"", UINT8), np.zeros(1, INT64))
    if is_large:
        end = (<const int64_t*> exported.buffers[1])[first + length]
        offsets = borrowed(
            capsule, <const int64_t*> exported.buffers[1] + first, 8 * (length + 1), INT64
        )
    else:
        end = (<const int32_t*> exported.buffers[1])[first + length]
        offsets = borrowed(
            capsule, <const int32_t*> exported.buffers[1] + first, 4 * (length + 1), INT32
        ).astype(INT64)
    return Messages(borrowed(capsule, exported.buffers[2], max(end, 0), UINT8), offsets)

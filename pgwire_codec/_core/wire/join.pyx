"""join_messages and join_views: messages that lie apart, copied into one message array.

The counterpart is :mod:`pgwire_codec.reference.join`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

import numpy as np

from pgwire_codec._core.kernels.memory cimport array_of, new_array, pool_free, pool_realloc

from pgwire_codec.codec.message_array import Messages, not_a_message, views_outside

cdef extern from "Python.h":
    Py_buffer* PyMemoryView_GET_BUFFER(object view)
    bint PyBuffer_IsContiguous(const Py_buffer* view, char order)
    int PyBuffer_ToContiguous(void* p, const Py_buffer* view, Py_ssize_t size, char order) except -1

cdef enum:
    FEW = 64  # messages
    FEW_BYTES = 4096
    INLINE = 12  # bytes of the longest message that lies in its view


cdef struct Joined:
    # Messages so far, and the capacity for more; the offsets begin with 0.
    uint8_t* data
    int64_t* offsets
    Py_ssize_t size
    Py_ssize_t capacity
    Py_ssize_t count
    Py_ssize_t places


def join_messages(messages):
    """Return an array of copies of bytes-likes; see ``reference.join_messages``."""
    cdef Joined joined = Joined(NULL, NULL, 0, 0, 0, 0)
    cdef Py_ssize_t size
    try:
        if type(messages) in (list, tuple):
            reserve(&joined, size_of(messages), len(messages))
        else:
            reserve(&joined, 0, 0)
        joined.offsets[0] = 0
        for message in messages:
            if type(message) is bytes:
                size = PyBytes_GET_SIZE(message)
                memcpy(add(&joined, size), PyBytes_AS_STRING(message), size)
            elif isinstance(message, (bytes, bytearray, memoryview)):
                add_view(&joined, memoryview(message))
            else:
                raise not_a_message(joined.count, message)
        return message_array(
            array_of(&joined.data, joined.size, np.uint8),
            array_of(<uint8_t**> &joined.offsets, (joined.count + 1) * 8, np.int64),
        )
    finally:
        pool_free(joined.data)
        pool_free(joined.offsets)


cdef Py_ssize_t size_of(messages) except? -1:
    """Return how many bytes the messages have, apart from those that are bytearrays or views."""
    cdef Py_ssize_t size = 0
    for message in messages:
        if type(message) is bytes:
            size += PyBytes_GET_SIZE(message)
    return size


cdef int add_view(Joined* joined, view) except -1:
    """Add the bytes that a memoryview shows; as long as it exists, they keep their place."""
    cdef Py_buffer* buffer = PyMemoryView_GET_BUFFER(view)
    cdef uint8_t* place = add(joined, buffer.len)
    if PyBuffer_IsContiguous(buffer, b"C"):
        memcpy(place, buffer.buf, buffer.len)
    else:
        PyBuffer_ToContiguous(place, buffer, buffer.len, b"C")
    return 0


cdef inline uint8_t* add(Joined* joined, Py_ssize_t size) except NULL:
    """Add a message, and return the place of its bytes, which are to be written."""
    cdef uint8_t* place
    if size > joined.capacity - joined.size:
        reserve(joined, 2 * (<size_t> joined.size + <size_t> size), 0)
    if joined.count == joined.places:
        reserve(joined, 0, 2 * <size_t> joined.count)
    place = joined.data + joined.size
    joined.size += size
    joined.count += 1
    joined.offsets[joined.count] = joined.size
    return place


cdef int reserve(Joined* joined, size_t capacity, size_t places) except -1:
    """Make place for so many bytes and messages in all, and at first for a few."""
    cdef void* grown
    if capacity > <size_t> joined.capacity or joined.data == NULL:
        capacity = max(capacity, <size_t> FEW_BYTES)
        grown = pool_realloc(joined.data, capacity)
        if grown == NULL:
            raise MemoryError
        joined.data = <uint8_t*> grown
        joined.capacity = capacity
    if places > <size_t> joined.places or joined.offsets == NULL:
        places = max(places, <size_t> FEW)
        grown = pool_realloc(joined.offsets, (places + 1) * 8)
        if grown == NULL:
            raise MemoryError
        joined.offsets = <int64_t*> grown
        joined.places = places
    return 0


def join_views(views, buffers):
    """Return an array of the messages of a binary_view array; see ``reference.join_views``."""
    cdef const int32_t[:, ::1] rows = views
    cdef Py_ssize_t count = rows.shape[0]
    cdef Py_ssize_t row
    cdef int64_t size = 0
    cdef const uint8_t[::1] one
    cdef const uint8_t* source
    starts = np.empty(len(buffers), np.uintp)
    sizes = np.empty(len(buffers), np.int64)
    cdef size_t[::1] start = starts
    cdef int64_t[::1] length = sizes
    for row in range(len(buffers)):
        one = buffers[row]
        start[row] = <size_t> &one[0] if one.shape[0] else 0
        length[row] = one.shape[0]
    offsets = new_array((count + 1,), np.int64)
    cdef int64_t[::1] offset = offsets
    offset[0] = 0
    for row in range(count):
        if not is_inside(&rows[row, 0], length):
            raise views_outside(row)
        size += rows[row, 0]
        offset[row + 1] = size
    data = new_array((size,), np.uint8)
    cdef uint8_t[::1] place = data
    with nogil:
        for row in range(count):
            if rows[row, 0] <= INLINE:
                source = <const uint8_t*> &rows[row, 1]
            else:
                source = <const uint8_t*> start[rows[row, 2]] + rows[row, 3]
            if rows[row, 0]:
                memcpy(&place[offset[row]], source, rows[row, 0])
    return message_array(data, offsets)


cdef inline bint is_inside(const int32_t* view, int64_t[::1] length) noexcept nogil:
    """Return whether the bytes that a view refers to are in its buffer."""
    if view[0] <= INLINE:
        return view[0] >= 0
    if not 0 <= view[2] < length.shape[0] or view[3] < 0:
        return False
    return view[0] <= length[view[2]] - view[3]


cdef message_array(data, offsets):
    data.flags.writeable = False
    return Messages(data, offsets)

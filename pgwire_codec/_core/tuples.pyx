# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: freethreading_compatible=True
"""tuples: where each column of each tuple lies, and in which of the four states it is.

The twin of :mod:`pgwire_codec.reference.tuples`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np

from pgwire_codec._core.wire cimport load_i16, load_i32
from pgwire_codec.tables import NOT_SENT, TupleTable

cdef enum:
    NULL_STATE = 0
    VALUE_STATE = 1
    UNCHANGED_STATE = 2
    BINARY_FORM = 1


cdef struct Table:
    uint8_t* marker
    uint8_t* state
    uint8_t* form
    int64_t* offset
    int32_t* length
    Py_ssize_t columns
    Py_ssize_t rows


def tuples(messages, rows, body, Py_ssize_t columns):
    """Tabulate the old and the new tuples of messages that ``scan`` accepted; see the twin."""
    cdef const uint8_t[::1] data = messages.data
    cdef const int64_t[::1] offsets = messages.offsets
    cdef const int64_t[::1] indexes = np.ascontiguousarray(rows, np.int64)
    cdef const int64_t[::1] bodies = np.ascontiguousarray(body, np.int64)
    cdef Py_ssize_t count = indexes.shape[0]
    cdef Py_ssize_t size = data.shape[0]
    cdef Table old_table, new_table
    cdef int found = 0
    if bodies.shape[0] != count:
        raise ValueError("body must have one offset a row")
    if count == 0 or size == 0:
        return absent(columns, count), absent(columns, count)
    check_places(indexes, bodies, offsets, size)
    has_old, has_new = kinds_of(data, bodies)
    old = TupleTable.empty(columns, count) if has_old else absent(columns, count)
    new = TupleTable.empty(columns, count) if has_new else absent(columns, count)
    fill(&old_table, old, has_old)
    fill(&new_table, new, has_new)
    with nogil:
        found = walk(&data[0], &offsets[0], &indexes[0], &bodies[0], count, &old_table, &new_table)
    if found != 0:
        raise RuntimeError("tuples() was given messages that scan() did not accept")
    return old, new


def absent(Py_ssize_t columns, Py_ssize_t rows):
    """Give a table in which nothing is sent and which takes no memory: it cannot be written."""
    shape = (columns, rows)
    return TupleTable(
        marker=np.zeros(rows, np.uint8),
        state=np.broadcast_to(np.uint8(NOT_SENT), shape),
        format=np.broadcast_to(np.uint8(0), shape),
        offset=np.broadcast_to(np.int64(0), shape),
        length=np.broadcast_to(np.int32(0), shape),
    )


cdef check_places(
    const int64_t[::1] indexes,
    const int64_t[::1] bodies,
    const int64_t[::1] offsets,
    Py_ssize_t size,
):
    """Refuse rows that lie outside the messages, and bodies outside their message."""
    cdef Py_ssize_t row
    cdef Py_ssize_t count = offsets.shape[0] - 1
    cdef bint good = True
    cdef int64_t index
    with nogil:
        for row in range(indexes.shape[0]):
            index = indexes[row]
            if index < 0 or index >= count:
                good = False
                break
            good &= 0 <= offsets[index] <= offsets[index + 1] <= size
            good &= bodies[row] < 0 or offsets[index] <= bodies[row] < offsets[index + 1]
    if not good:
        raise ValueError("rows and body must be those of messages that scan() accepted")


cdef kinds_of(const uint8_t[::1] data, const int64_t[::1] bodies):
    """Say whether any row has an old tuple, and whether any has a new one."""
    cdef Py_ssize_t row
    cdef bint old = False
    cdef bint new = False
    with nogil:
        for row in range(bodies.shape[0]):
            if bodies[row] >= 0:
                if data[bodies[row]] == c"N":
                    new = True
                else:  # a delete's only tuple, or an update's first
                    old = new = True
    return old, new


cdef fill(Table* table, arrays, bint there):
    """Point at the arrays of a table that will be written."""
    cdef uint8_t[::1] marker = arrays.marker
    cdef uint8_t[:, ::1] state
    cdef uint8_t[:, ::1] form
    cdef int64_t[:, ::1] offset
    cdef int32_t[:, ::1] length
    table.columns, table.rows = arrays.state.shape
    table.marker = &marker[0]
    table.state = table.form = NULL
    table.offset = NULL
    table.length = NULL
    if there and table.columns:
        state, form = arrays.state, arrays.format
        offset, length = arrays.offset, arrays.length
        table.state = &state[0, 0]
        table.form = &form[0, 0]
        table.offset = &offset[0, 0]
        table.length = &length[0, 0]


cdef int walk(
    const uint8_t* data,
    const int64_t* offsets,
    const int64_t* indexes,
    const int64_t* bodies,
    Py_ssize_t count,
    Table* old,
    Table* new,
) noexcept nogil:
    cdef Py_ssize_t row
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef uint8_t marker
    for row in range(count):
        if bodies[row] < 0:
            continue
        p = data + bodies[row]
        end = data + offsets[indexes[row] + 1]
        while p < end:
            marker = p[0]
            p = read_tuple(data, p + 1, end, row, marker, new if marker == c"N" else old)
            if p == NULL:
                return -1
    return 0


cdef inline const uint8_t* read_tuple(
    const uint8_t* data,
    const uint8_t* p,
    const uint8_t* end,
    Py_ssize_t row,
    uint8_t marker,
    Table* table,
) noexcept nogil:
    """Tabulate one tuple; give its end, or NULL where it is not whole."""
    cdef int width, column
    cdef int length
    cdef uint8_t kind
    cdef Py_ssize_t place = row
    if end - p < 2:
        return NULL
    width = load_i16(p)
    p += 2
    table.marker[row] = marker
    for column in range(width):
        if p >= end:
            return NULL
        kind = p[0]
        if kind == c"t" or kind == c"b":
            if end - p < 5:
                return NULL
            length = load_i32(p + 1)
            p += 5
            if length < 0 or length > end - p:
                return NULL
            if column < table.columns:
                table.state[place] = VALUE_STATE
                table.offset[place] = p - data
                table.length[place] = length
                if kind == c"b":
                    table.form[place] = BINARY_FORM
            p += length
        else:
            p += 1
            if column < table.columns:
                table.state[place] = NULL_STATE if kind == c"n" else UNCHANGED_STATE
        place += table.rows
    return p

"""Iteration over the tuples of a block of rows.

It is compiled once for each target that fields are written to. Two rows are read at a time if they
have all columns: the loads of one do not depend on those of the other.
"""

from libc.stdint cimport uint8_t

from pgwire_codec._core.columns.cells cimport (
    Cells, put_absent_cells, put_cell, put_empty_cell,
)
from pgwire_codec._core.columns.slices cimport (
    Slices, put_absent_slices, put_empty_slice, put_slice,
)
from pgwire_codec._core.wire.primitives cimport load_i16
from pgwire_codec._core.wire.tuple_data cimport (
    TRUNCATED, VALUE_HEAD, TupleSource, find_tuple, likely, prefetch, value_length,
)

ctypedef fused Target:
    Cells
    Slices


cdef inline bint read_block(
    TupleSource* source, Py_ssize_t first, Py_ssize_t rows, int which, Target* target
) noexcept nogil:
    """Write the fields of rows from `first` on to the target; return False if one is truncated."""
    cdef Py_ssize_t row = 0
    cdef const uint8_t* p
    cdef const uint8_t* p_end
    cdef const uint8_t* q
    cdef const uint8_t* q_end
    cdef int found
    while row < rows:
        prefetch(source, first + row)
        prefetch(source, first + row + 1)
        found = find_tuple(source, first + row, which, &p, &p_end)
        if found < 0:
            return False
        if not found:
            put_absent(target, row, 0)
            row += 1
            continue
        target.marker[first + row] = p[0]
        if row + 1 < rows:
            found = find_tuple(source, first + row + 1, which, &q, &q_end)
            if found < 0:
                return False
            if found and has_all(p, p_end, target) and has_all(q, q_end, target):
                if not read_two(p + 3, p_end, q + 3, q_end, row, target):
                    return False
                target.marker[first + row + 1] = q[0]
                row += 2
                continue
        if not read_one(p + 1, p_end, row, target):
            return False
        row += 1
    return True


cdef inline bint has_all(const uint8_t* p, const uint8_t* end, Target* target) noexcept nogil:
    """Return whether the tuple whose marker is at p has all columns of the relation."""
    return end - p >= 3 and load_i16(p + 1) == target.columns


cdef inline bint read_one(
    const uint8_t* p, const uint8_t* end, Py_ssize_t row, Target* target
) noexcept nogil:
    cdef const Py_ssize_t* starts = starts_of(target)
    cdef Py_ssize_t column, width
    if end - p < 2:
        return False
    width = max(0, min(<Py_ssize_t> load_i16(p), target.columns))
    p += 2
    for column in range(width):
        p = read_field(p, end, start_of(target, starts, column), column, row, target)
        if p == NULL:
            return False
    if width < target.columns:
        put_absent(target, row, width)
    return True


cdef inline bint read_two(
    const uint8_t* p,
    const uint8_t* p_end,
    const uint8_t* q,
    const uint8_t* q_end,
    Py_ssize_t row,
    Target* target,
) noexcept nogil:
    cdef const Py_ssize_t* starts = starts_of(target)
    cdef Py_ssize_t column, start
    for column in range(target.columns):
        start = start_of(target, starts, column)
        p = read_field(p, p_end, start, column, row, target)
        q = read_field(q, q_end, start, column, row + 1, target)
        if p == NULL or q == NULL:
            return False
    return True


cdef inline const Py_ssize_t* starts_of(Target* target) noexcept nogil:
    """Return what `start_of` looks up; a local, so that a loop loads it once."""
    if Target is Cells:
        return NULL
    else:
        return target.start


cdef inline Py_ssize_t start_of(
    Target* target, const Py_ssize_t* starts, Py_ssize_t column
) noexcept nogil:
    """Return where the target keeps the fields of a column."""
    if Target is Cells:
        return column * target.capacity
    else:
        return starts[column]


cdef inline const uint8_t* read_field(
    const uint8_t* p,
    const uint8_t* end,
    Py_ssize_t start,
    Py_ssize_t column,
    Py_ssize_t row,
    Target* target,
) noexcept nogil:
    """Write one field to the target, and return its end, or NULL if it is truncated."""
    cdef Py_ssize_t length = value_length(p, end)
    if likely(length >= 0):
        if Target is Cells:
            put_cell(target, start + row, p, length)
        else:
            put_slice(target, start + row, p, length, start >= 0)
        return p + VALUE_HEAD + length
    if length == TRUNCATED:
        return NULL
    if Target is Cells:
        put_empty_cell(target, start + row, p[0])
    else:
        put_empty_slice(target, start, column, row, p[0])
    return p + 1


cdef inline void put_absent(Target* target, Py_ssize_t row, Py_ssize_t column) noexcept nogil:
    if Target is Cells:
        put_absent_cells(target, row, column)
    else:
        put_absent_slices(target, row, column)

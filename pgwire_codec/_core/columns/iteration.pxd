"""Iteration over the tuples of a block of rows.

It is compiled once for each target that fields are written to. Two rows are read at a time if they
have all columns: the loads of one do not depend on those of the other.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from pgwire_codec._core.columns.cells cimport (
    Cells, put_absent_cells, put_cell, put_empty_cell,
)
from pgwire_codec._core.columns.slices cimport Slices, put_absent_slices, put_empty_slice
from pgwire_codec._core.kernels.column cimport (
    BINARY, TEXT, Slice, fill_slice, likely, unlikely,
)
from pgwire_codec._core.protocol cimport KIND_BINARY, KIND_TEXT
from pgwire_codec._core.wire.primitives cimport load_i16, load_u32
from pgwire_codec._core.wire.tuple_data cimport (
    MAX_LENGTH, VALUE_HEAD, TupleSource, find_tuple, has_value, is_valueless, prefetch,
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
                if not read_pair(source, p, p_end, q, q_end, row, target):
                    return False
                target.marker[first + row + 1] = q[0]
                row += 2
                continue
        if not read_one(source, p + 1, p_end, row, target):
            return False
        row += 1
    return True


cdef inline bint has_all(const uint8_t* p, const uint8_t* end, Target* target) noexcept nogil:
    """Return whether the tuple whose marker is at p has all columns, and can have no other length.

    A length that does not exceed the message is then small enough.
    """
    return 3 <= end - p <= MAX_LENGTH and load_i16(p + 1) == target.columns


cdef inline bint read_one(
    const TupleSource* source, const uint8_t* p, const uint8_t* end, Py_ssize_t row, Target* target
) noexcept nogil:
    cdef Py_ssize_t column, width
    cdef int64_t at = p - source.data + 2
    if end - p < 2:
        return False
    width = max(0, min(<Py_ssize_t> load_i16(p), target.columns))
    for column in range(width):
        if not read_field(source.data, &at, end - source.data, column, row, target):
            return False
    if width < target.columns:
        put_absent(target, row, width)
    return True


cdef inline bint read_pair(
    const TupleSource* source,
    const uint8_t* p,
    const uint8_t* p_end,
    const uint8_t* q,
    const uint8_t* q_end,
    Py_ssize_t row,
    Target* target,
) noexcept nogil:
    """Write the fields of two rows that have all columns, by a loop that fits the first field."""
    cdef const uint8_t* data = source.data
    cdef int64_t p_at = p + 3 - data, q_at = q + 3 - data
    cdef bint is_binary = p + 3 < p_end and p[3] == KIND_BINARY
    if Target is Slices:
        if not target.all_wanted:
            if is_binary:
                return read_two(
                    data, p_at, p_end - data, q_at, q_end - data, KIND_BINARY, False, row, target
                )
            return read_two(
                data, p_at, p_end - data, q_at, q_end - data, KIND_TEXT, False, row, target
            )
    if is_binary:
        return read_two(
            data, p_at, p_end - data, q_at, q_end - data, KIND_BINARY, True, row, target
        )
    return read_two(data, p_at, p_end - data, q_at, q_end - data, KIND_TEXT, True, row, target)


cdef inline bint read_two(
    const uint8_t* data,
    int64_t p,
    int64_t p_end,
    int64_t q,
    int64_t q_end,
    uint8_t usual,
    bint all_wanted,
    Py_ssize_t row,
    Target* target,
) noexcept nogil:
    """Write the fields of two rows, most of which are of the `usual` kind.

    There is one check a field: whether the next field, and not only a part of it, can follow.
    """
    cdef Target local = target[0]  # which no store changes
    cdef int64_t p_last = p_end - VALUE_HEAD, q_last = q_end - VALUE_HEAD
    cdef Py_ssize_t column = 0
    if p <= p_last and q <= q_last:
        while column < local.columns - 1:
            if likely(data[p] == usual):
                p = put_value(data, p, usual, all_wanted, column, row, &local)
            elif not read_field(data, &p, p_end, column, row, target):
                return False
            if likely(data[q] == usual):
                q = put_value(data, q, usual, all_wanted, column, row + 1, &local)
            elif not read_field(data, &q, q_end, column, row + 1, target):
                return False
            column += 1
            if unlikely(p > p_last or q > q_last):
                break
    # The last field, and those from the first on that may be truncated.
    while column < local.columns:
        if not read_field(data, &p, p_end, column, row, target):
            return False
        if not read_field(data, &q, q_end, column, row + 1, target):
            return False
        column += 1
    return True


cdef inline bint read_field(
    const uint8_t* data,
    int64_t* at,
    int64_t end,
    Py_ssize_t column,
    Py_ssize_t row,
    Target* target,
) noexcept nogil:
    """Write one field to the target, and move to its end; return False if it is truncated."""
    cdef int64_t left = end - VALUE_HEAD - at[0]
    cdef const uint8_t* p
    cdef uint32_t length
    if left <= -VALUE_HEAD:
        return False
    p = data + at[0]
    if left >= 0 and has_value(p):
        length = load_u32(p + 1)
        if length > left or length > MAX_LENGTH:
            return False
        at[0] = put_value(data, at[0], p[0], False, column, row, target)
        return True
    if not is_valueless(p):
        return False
    at[0] += 1
    if Target is Cells:
        put_empty_cell(target, column * target.capacity + row, p[0])
    else:
        put_empty_slice(target, column, row, p[0])
    return True


cdef inline int64_t put_value(
    const uint8_t* data,
    int64_t at,
    uint8_t kind,
    bint all_wanted,
    Py_ssize_t column,
    Py_ssize_t row,
    const Target* target,
) noexcept nogil:
    """Write a field with a value, whose head is not truncated; return its end, if it is not."""
    cdef uint32_t length = load_u32(data + at + 1)
    cdef Slice* place
    at += VALUE_HEAD
    if Target is Cells:
        put_cell(target, column * target.capacity + row, kind, at, length)
    else:
        place = target.values + column * target.capacity
        if not all_wanted:
            place = target.start[column]
        if all_wanted or place != NULL:
            fill_slice(place + row, data + at, length, BINARY if kind == KIND_BINARY else TEXT)
    return at + length


cdef inline void put_absent(Target* target, Py_ssize_t row, Py_ssize_t column) noexcept nogil:
    if Target is Cells:
        put_absent_cells(target, row, column)
    else:
        put_absent_slices(target, row, column)

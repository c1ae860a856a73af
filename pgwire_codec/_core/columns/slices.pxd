"""Slices: the values of the wanted columns of a few rows, for the kernels."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from pgwire_codec._core.kernels.column cimport (
    BLOCK, NO_VALUE, ColumnBuffers, Slice, column_run,
)
from pgwire_codec._core.kernels.memory cimport pool_free, pool_realloc
from pgwire_codec._core.protocol cimport KIND_UNCHANGED
from pgwire_codec._core.wire.tuple_data cimport TupleSource, prefetch_rows

cdef enum:
    BYTES_OF_SLICES = 32768  # of all slices: they stay in the cache
    AT_ONCE = 8  # rows that are prefetched at once: the core waits for no more


cdef struct WantedColumn:
    Py_ssize_t number
    ColumnBuffers* output


cdef struct Slices:
    Py_ssize_t columns  # of the relation
    Py_ssize_t wanted_count
    WantedColumn* wanted
    Py_ssize_t capacity  # in rows
    uint8_t* marker  # of each row
    bint all_wanted  # then the values are in the order of the columns
    Slice* values  # of each wanted column, `capacity` of them
    Slice** start  # of each column: its first value; NULL if it is not wanted
    bint* has_gaps  # of each column: whether a row of the block lacks a value
    Py_ssize_t first  # row of the block
    int64_t* unchanged  # pairs of row and column
    Py_ssize_t unchanged_count
    Py_ssize_t unchanged_capacity
    bint out_of_memory


cdef inline int open_slices(Slices* slices, Py_ssize_t columns, Py_ssize_t wanted) noexcept nogil:
    """Allocate slices for as many rows as fit into the cache; return 0, or -1 if out of memory.

    `close_slices` frees them in both cases.
    """
    cdef Py_ssize_t row_size = <Py_ssize_t> sizeof(Slice) * max(wanted, 1)
    cdef Py_ssize_t column
    memset(slices, 0, sizeof(Slices))
    slices.columns = columns
    slices.all_wanted = wanted == columns
    slices.capacity = max(8, min(BYTES_OF_SLICES // row_size, BLOCK))
    slices.wanted = <WantedColumn*> pool_realloc(NULL, <size_t> wanted * sizeof(WantedColumn))
    slices.values = <Slice*> pool_realloc(NULL, <size_t> (row_size * slices.capacity))
    slices.start = <Slice**> pool_realloc(NULL, <size_t> columns * sizeof(Slice*))
    slices.has_gaps = <bint*> pool_realloc(NULL, <size_t> columns * sizeof(bint))
    if (
        slices.wanted == NULL
        or slices.values == NULL
        or slices.start == NULL
        or slices.has_gaps == NULL
    ):
        return -1
    for column in range(columns):
        slices.start[column] = NULL
    return 0


cdef inline void close_slices(Slices* slices) noexcept nogil:
    pool_free(slices.wanted)
    pool_free(slices.values)
    pool_free(slices.start)
    pool_free(slices.has_gaps)
    pool_free(slices.unchanged)


cdef inline void add_wanted(
    Slices* slices, Py_ssize_t number, ColumnBuffers* output
) noexcept nogil:
    """Write the values of a column to `output`; it is a column of the relation."""
    cdef Py_ssize_t place = number if slices.all_wanted else slices.wanted_count
    slices.start[number] = slices.values + place * slices.capacity
    slices.wanted[slices.wanted_count] = WantedColumn(number, output)
    slices.wanted_count += 1


cdef inline void open_block(Slices* slices, Py_ssize_t first) noexcept nogil:
    """Prepare for a block that begins at row `first`."""
    slices.first = first
    memset(slices.has_gaps, 0, <size_t> slices.columns * sizeof(bint))


cdef inline int decode_block(
    Slices* slices, Py_ssize_t rows, const TupleSource* source
) noexcept nogil:
    """Decode the values of the block; return 0, or -1 if out of memory.

    Meanwhile the next block is loaded into the cache, a part of it before each column.
    """
    cdef Py_ssize_t at, row = slices.first + rows
    cdef Py_ssize_t end = min(row + rows, source.count)
    cdef Py_ssize_t part = min(rows // max(slices.wanted_count, 1) + 1, AT_ONCE)
    cdef WantedColumn* wanted
    for at in range(slices.wanted_count):
        prefetch_rows(source, row, min(row + part, end))
        row += part
        wanted = slices.wanted + at
        if column_run(
            wanted.output, slices.start[wanted.number], rows,
            not slices.has_gaps[wanted.number],
        ):
            return -1
    return -1 if slices.out_of_memory else 0


cdef inline void put_empty_slice(
    Slices* slices, Py_ssize_t column, Py_ssize_t row, uint8_t kind
) noexcept nogil:
    """Write a field without a value."""
    if kind == KIND_UNCHANGED:
        note_unchanged(slices, slices.first + row, column)
    if slices.start[column] != NULL:
        put_gap(slices, column, row)


cdef inline void put_gap(Slices* slices, Py_ssize_t column, Py_ssize_t row) noexcept nogil:
    slices.start[column][row] = Slice(NULL, 0, NO_VALUE)
    slices.has_gaps[column] = True


cdef inline void put_absent_slices(
    Slices* slices, Py_ssize_t row, Py_ssize_t column
) noexcept nogil:
    """Write that a row has no fields from a column on."""
    while column < slices.columns:
        if slices.start[column] != NULL:
            put_gap(slices, column, row)
        column += 1


cdef inline void note_unchanged(Slices* slices, int64_t row, int64_t column) noexcept nogil:
    cdef Py_ssize_t capacity = slices.unchanged_capacity
    cdef void* grown
    if slices.unchanged_count == capacity:
        capacity = max(<Py_ssize_t> 64, 2 * capacity)
        grown = pool_realloc(slices.unchanged, <size_t> capacity * 2 * sizeof(int64_t))
        if grown == NULL:
            slices.out_of_memory = True
            return
        slices.unchanged, slices.unchanged_capacity = <int64_t*> grown, capacity
    slices.unchanged[2 * slices.unchanged_count] = row
    slices.unchanged[2 * slices.unchanged_count + 1] = column
    slices.unchanged_count += 1


cdef inline void append_unchanged(
    Slices* slices, const Slices* share, int64_t first
) noexcept nogil:
    """Take over the unchanged rows of a share of the rows, whose first is row `first`."""
    cdef Py_ssize_t at
    for at in range(share.unchanged_count):
        note_unchanged(slices, first + share.unchanged[2 * at], share.unchanged[2 * at + 1])

"""Cells: the kinds and places of the fields of a few rows, and their copies in a TupleTable.

Cells are written row by row while the tuples are read, and copied column by column.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from pgwire_codec._core.kernels.memory cimport pool_free, pool_realloc
from pgwire_codec._core.protocol cimport (
    KIND_BINARY, KIND_TEXT, KIND_UNCHANGED, STATE_NOT_SENT, STATE_UNCHANGED, STATE_VALUE,
)

cdef enum:
    ABSENT = 0  # the kind of a field that the tuple lacks

cdef enum:
    BYTES_OF_CELLS = 49152  # of all cells: they stay in the cache
    BYTES_OF_CELL = 13
    MAX_ROWS = 256


cdef struct Cells:
    Py_ssize_t columns
    Py_ssize_t capacity  # in rows
    uint8_t* marker  # of each row of the table
    int64_t* offset
    int32_t* length
    uint8_t* kind  # as on the wire, or ABSENT


cdef struct TableArrays:
    # The arrays of a TupleTable, which are NULL if it has no columns.
    uint8_t* state
    uint8_t* form  # NULL as long as every value is in text form
    int64_t* offset
    int32_t* length
    Py_ssize_t rows


cdef inline int open_cells(Cells* cells, Py_ssize_t columns) noexcept nogil:
    """Allocate cells for as many rows as fit into the cache; return 0, or -1 if out of memory."""
    cdef Py_ssize_t rows = BYTES_OF_CELLS // (BYTES_OF_CELL * max(columns, 1))
    cdef size_t size
    rows = max(8, min(rows, MAX_ROWS)) | 1  # odd: powers of two collide in the cache
    size = <size_t> (BYTES_OF_CELL * rows * max(columns, 1))
    cells.columns, cells.capacity = columns, rows
    cells.offset = <int64_t*> pool_realloc(NULL, size)
    if cells.offset == NULL:
        return -1
    cells.length = <int32_t*> (cells.offset + rows * columns)
    cells.kind = <uint8_t*> (cells.length + rows * columns)
    return 0


cdef inline void close_cells(Cells* cells) noexcept nogil:
    pool_free(cells.offset)


cdef inline void put_cell(
    const Cells* cells, Py_ssize_t cell, uint8_t kind, int64_t offset, uint32_t length
) noexcept nogil:
    """Write a field with a value."""
    cells.kind[cell] = kind
    cells.offset[cell] = offset
    cells.length[cell] = <int32_t> length


cdef inline void put_empty_cell(Cells* cells, Py_ssize_t cell, uint8_t kind) noexcept nogil:
    cells.kind[cell] = kind
    cells.offset[cell] = 0
    cells.length[cell] = 0


cdef inline void put_absent_cells(Cells* cells, Py_ssize_t row, Py_ssize_t column) noexcept nogil:
    """Write that a row has no fields from a column on."""
    cdef Py_ssize_t cell = column * cells.capacity + row
    while column < cells.columns:
        put_empty_cell(cells, cell, ABSENT)
        cell += cells.capacity
        column += 1


cdef inline bint any_binary(const Cells* cells, Py_ssize_t rows) noexcept nogil:
    """Return whether any value is in binary form."""
    cdef Py_ssize_t column, row
    cdef uint8_t found = 0
    cdef const uint8_t* kind
    for column in range(cells.columns):
        kind = cells.kind + column * cells.capacity
        for row in range(rows):
            found |= kind[row] == KIND_BINARY
    return found


cdef inline uint8_t state_of(uint8_t kind) noexcept nogil:
    cdef uint8_t value = (kind == KIND_TEXT) | (kind == KIND_BINARY)
    cdef uint8_t unchanged = kind == KIND_UNCHANGED
    cdef uint8_t absent = kind == ABSENT
    return STATE_VALUE * value | STATE_UNCHANGED * unchanged | STATE_NOT_SENT * absent


cdef inline void copy_cells(
    const Cells* cells, Py_ssize_t rows, Py_ssize_t first, TableArrays* table
) noexcept nogil:
    """Copy the cells to the table, from its row `first` on."""
    cdef Py_ssize_t column, row, cell, place
    cdef uint8_t* byte
    cdef const uint8_t* kind
    for column in range(cells.columns):
        cell = column * cells.capacity
        place = column * table.rows + first
        memcpy(table.offset + place, cells.offset + cell, <size_t> rows * sizeof(int64_t))
        memcpy(table.length + place, cells.length + cell, <size_t> rows * sizeof(int32_t))
        byte = table.state + place
        kind = cells.kind + cell
        for row in range(rows):  # without a branch: many rows at once
            byte[row] = state_of(kind[row])
        if table.form != NULL:
            byte = table.form + place
            for row in range(rows):
                byte[row] = kind[row] == KIND_BINARY

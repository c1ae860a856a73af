"""tuples: where each column of each tuple lies, and in which of the four states it is.

The twin of :mod:`pgwire_codec.reference.tuples`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

import numpy as np

from pgwire_codec._core.wire.tuple_data cimport NEW, OLD, Input, prefetch, tuple_of
from pgwire_codec._core.wire.tuple_data cimport column_end, likely
from pgwire_codec._core.kernels.memory cimport new_array
from pgwire_codec._core.wire.primitives cimport load_i16
from pgwire_codec.codec.tables import NOT_SENT, TupleTable

cdef enum:
    # States, as in pgwire_codec.tables; NULL is 0.
    S_VALUE = 1
    S_UNCHANGED = 2
    S_NOT_SENT = 3

cdef enum:
    ABSENT = 0  # the kind of a column that the tuple does not have

cdef enum:
    BLOCK_BYTES = 49152  # what a block's cells may take: they stay in the cache
    MOST_ROWS = 256


cdef struct Table:
    # Where the arrays of one TupleTable are; `columns` is 0 where nothing is to be written.
    uint8_t* marker
    uint8_t* state
    uint8_t* form  # NULL as long as every value is in text form
    int64_t* offset
    int32_t* length
    Py_ssize_t columns
    Py_ssize_t rows


cdef struct Block:
    # The cells of a few rows, column by column: written row by row, flushed column by column.
    int64_t* offset
    int32_t* length
    uint8_t* kind  # as on the wire, or ABSENT
    Py_ssize_t rows  # there is room for
    void* memory


def tuples(messages, rows, body, Py_ssize_t columns):
    """Tabulate the old and the new tuples of messages that ``scan`` accepted; see the twin."""
    cdef const uint8_t[::1] data = messages.data
    cdef const int64_t[::1] offsets = messages.offsets
    cdef const int64_t[::1] indexes = np.ascontiguousarray(rows, np.int64)
    cdef const int64_t[::1] bodies = np.ascontiguousarray(body, np.int64)
    cdef Py_ssize_t count = indexes.shape[0]
    if bodies.shape[0] != count:
        raise ValueError("body must have one offset a row")
    if count == 0 or data.shape[0] == 0:
        return absent(columns, count), absent(columns, count)
    new, any_old = tabulate(data, offsets, indexes, bodies, columns, NEW)
    if not any_old:
        return absent(columns, count), new
    old, _ = tabulate(data, offsets, indexes, bodies, columns, OLD)
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


cdef tabulate(
    const uint8_t[::1] data,
    const int64_t[::1] offsets,
    const int64_t[::1] indexes,
    const int64_t[::1] bodies,
    Py_ssize_t columns,
    int which,
):
    """Give the TupleTable of the old, or of the new, tuples; and whether any row has an old one."""
    cdef Py_ssize_t count = indexes.shape[0]
    cdef Py_ssize_t done = 0
    cdef Input source
    cdef Table table
    cdef Block block
    shape = (columns, count)
    marker = np.zeros(count, np.uint8)
    state = new_array(shape, np.uint8)
    form = None
    offset = new_array(shape, np.int64)
    length = new_array(shape, np.int32)
    cdef uint8_t[::1] marker_view = marker
    cdef uint8_t[:, ::1] state_view = state
    cdef uint8_t[:, ::1] form_view
    cdef int64_t[:, ::1] offset_view = offset
    cdef int32_t[:, ::1] length_view = length
    table.columns, table.rows = columns, count
    table.marker = &marker_view[0]
    table.state = table.form = NULL
    table.offset = NULL
    table.length = NULL
    if columns:
        table.state = &state_view[0, 0]
        table.offset = &offset_view[0, 0]
        table.length = &length_view[0, 0]
    source.data, source.size = &data[0], data.shape[0]
    source.offsets, source.messages = &offsets[0], offsets.shape[0] - 1
    source.rows, source.bodies, source.count = &indexes[0], &bodies[0], count
    source.any_old = False
    if not open_block(&block, columns):
        raise MemoryError
    try:
        while True:
            with nogil:
                done = walk(&source, done, which, &table, &block)
            if done == count:
                break
            if done < 0 or form is not None:
                raise RuntimeError("tuples() was given messages that scan() did not accept")
            # The first value in binary form: from here on there is something to write.
            form = new_array(shape, np.uint8)
            form[:, :done] = 0
            form_view = form
            table.form = &form_view[0, 0]
    finally:
        free(block.memory)
    if form is None:
        form = np.broadcast_to(np.uint8(0), shape)
    table_of = TupleTable(marker=marker, state=state, format=form, offset=offset, length=length)
    return table_of, source.any_old


cdef bint open_block(Block* block, Py_ssize_t columns):
    """Make a block of as many rows as the cache takes."""
    cdef Py_ssize_t rows = BLOCK_BYTES // (13 * max(columns, 1))
    rows = max(8, min(rows, MOST_ROWS)) | 1  # odd: powers of two collide in the cache
    block.rows = rows
    block.memory = malloc(13 * rows * max(columns, 1))
    if block.memory == NULL:
        return False
    block.offset = <int64_t*> block.memory
    block.length = <int32_t*> (block.offset + rows * columns)
    block.kind = <uint8_t*> (block.length + rows * columns)
    return True


cdef Py_ssize_t walk(
    Input* source, Py_ssize_t first, int which, Table* table, Block* block
) noexcept nogil:
    """Tabulate from a row on; give count, or the first row of a block that has a value in binary
    form and nowhere to say so, or -1 where a tuple is not whole."""
    cdef Py_ssize_t place, rows
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* q
    cdef const uint8_t* q_end
    cdef int found
    while first < source.count:
        rows = min(block.rows, source.count - first)
        place = 0
        while place < rows:
            prefetch(source, first + place)
            prefetch(source, first + place + 1)
            found = tuple_of(source, first + place, which, &p, &end)
            if found < 0:
                return -1
            if not found:
                not_sent(block, place, 0, table.columns)
                place += 1
                continue
            table.marker[first + place] = p[0]
            if place + 1 < rows and tuple_of(source, first + place + 1, which, &q, &q_end) == 1:
                if read_two(source.data, p + 1, end, q + 1, q_end, place, table, block):
                    table.marker[first + place + 1] = q[0]
                    place += 2
                    continue
            if not read_tuple(source.data, p + 1, end, place, table, block):
                return -1
            place += 1
        if table.form == NULL and any_binary(block, rows, table.columns):
            return first
        flush(block, rows, first, table)
        first += rows
    return first


cdef inline void not_sent(
    Block* block, Py_ssize_t place, Py_ssize_t column, Py_ssize_t columns
) noexcept nogil:
    """Fill a row from a column on."""
    cdef Py_ssize_t cell = column * block.rows + place
    while column < columns:
        block.kind[cell] = ABSENT
        block.offset[cell] = 0
        block.length[cell] = 0
        cell += block.rows
        column += 1


cdef inline bint read_tuple(
    const uint8_t* data,
    const uint8_t* p,
    const uint8_t* end,
    Py_ssize_t place,
    Table* table,
    Block* block,
) noexcept nogil:
    """Tabulate one tuple; False where it is not whole."""
    cdef Py_ssize_t column, width
    if end - p < 2:
        return False
    width = max(0, min(<Py_ssize_t> load_i16(p), table.columns))
    p += 2
    for column in range(width):
        p = read_column(data, p, end, column * block.rows + place, block)
        if p == NULL:
            return False
    if width < table.columns:
        not_sent(block, place, width, table.columns)
    return True


cdef inline bint read_two(
    const uint8_t* data,
    const uint8_t* p,
    const uint8_t* p_end,
    const uint8_t* q,
    const uint8_t* q_end,
    Py_ssize_t place,
    Table* table,
    Block* block,
) noexcept nogil:
    """Tabulate the tuples of two rows column by column, so that one need not wait for the other.

    False where they are not both whole and as wide as the relation.
    """
    cdef Py_ssize_t column, cell
    if p_end - p < 2 or q_end - q < 2:
        return False
    if load_i16(p) != table.columns or load_i16(q) != table.columns:
        return False
    p += 2
    q += 2
    for column in range(table.columns):
        cell = column * block.rows + place
        p = read_column(data, p, p_end, cell, block)
        q = read_column(data, q, q_end, cell + 1, block)
        if p == NULL or q == NULL:
            return False
    return True


cdef inline const uint8_t* read_column(
    const uint8_t* data,
    const uint8_t* p,
    const uint8_t* end,
    Py_ssize_t cell,
    Block* block,
) noexcept nogil:
    """Write one column into its cell; give its end, NULL if it is not whole."""
    cdef const uint8_t* next_column = column_end(p, end)
    if next_column == NULL:
        return NULL
    block.kind[cell] = p[0]
    if likely(next_column - p > 1):
        block.offset[cell] = p + 5 - data
        block.length[cell] = <int32_t> (next_column - p - 5)
    else:
        block.offset[cell] = 0
        block.length[cell] = 0
    return next_column


cdef inline uint8_t state_of(uint8_t kind) noexcept nogil:
    cdef uint8_t value = (kind == c"t") | (kind == c"b")
    cdef uint8_t unchanged = kind == c"u"
    cdef uint8_t absent = kind == ABSENT
    return S_VALUE * value | S_UNCHANGED * unchanged | S_NOT_SENT * absent


cdef inline bint any_binary(
    const Block* block, Py_ssize_t rows, Py_ssize_t columns
) noexcept nogil:
    """Whether a block has a value in binary form."""
    cdef Py_ssize_t column, row
    cdef uint8_t found = 0
    cdef const uint8_t* kind
    for column in range(columns):
        kind = block.kind + column * block.rows
        for row in range(rows):
            found |= kind[row] == c"b"
    return found


cdef inline void flush(
    Block* block, Py_ssize_t rows, Py_ssize_t first, Table* table
) noexcept nogil:
    """Copy a block's cells to their places in the table."""
    cdef Py_ssize_t column, row
    cdef int64_t* offset
    cdef int32_t* length
    cdef uint8_t* byte
    cdef const int64_t* block_offset
    cdef const int32_t* block_length
    cdef const uint8_t* kind
    for column in range(table.columns):
        offset = table.offset + column * table.rows + first
        length = table.length + column * table.rows + first
        byte = table.state + column * table.rows + first
        block_offset = block.offset + column * block.rows
        block_length = block.length + column * block.rows
        kind = block.kind + column * block.rows
        for row in range(rows):  # not memcpy, which is slow to start
            offset[row] = block_offset[row]
        for row in range(rows):
            length[row] = block_length[row]
        for row in range(rows):  # without a branch: many rows at once
            byte[row] = state_of(kind[row])
        if table.form != NULL:
            byte = table.form + column * table.rows + first
            for row in range(rows):
                byte[row] = kind[row] == c"b"

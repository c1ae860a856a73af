"""tuples and decode_columns: the fields of many tuples, as tables of places or as columns.

The counterpart is :mod:`pgwire_codec.reference.columns`.
For columns, a block of rows is read into slices; then the kernel of each column decodes its values
of the block, while they are in the cache. Places outside the block are not kept, and all of it runs
without the GIL.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np

from pgwire_codec._core.columns.cells cimport (
    Cells, TableArrays, any_binary, close_cells, copy_cells, open_cells,
)
from pgwire_codec._core.columns.iteration cimport read_block
from pgwire_codec._core.columns.slices cimport (
    Slices, add_wanted, close_slices, decode_block, open_block, open_slices,
)
from pgwire_codec._core.kernels.column cimport BLOCK, MAX_BYTES, column_append
from pgwire_codec._core.kernels.memory cimport new_array
from pgwire_codec._core.kernels.values cimport ColumnDecoder, has_kernel
from pgwire_codec._core.wire.tuple_data cimport CURRENT, NEW, OLD, TupleSource, find_tuple

from pgwire_codec._core.shares import in_threads, shares_of, together
from pgwire_codec.codec.tables import NOT_SENT, DecodedColumns, TupleTable
from pgwire_codec.codec.value_buffers import chunks_of
from pgwire_codec.codec.values import Decoded, null_column

WHICH = {"old": OLD, "new": NEW, "current": CURRENT}


cdef int open_source(
    TupleSource* source,
    const uint8_t[::1] data,
    const int64_t[::1] offsets,
    const int64_t[::1] rows,
    const int64_t[::1] bodies,
) except -1:
    """Set the source up; neither rows nor data are empty."""
    source.data, source.size = &data[0], data.shape[0]
    source.offsets, source.messages = &offsets[0], offsets.shape[0] - 1
    source.rows, source.bodies, source.count = &rows[0], &bodies[0], rows.shape[0]
    source.any_old = False
    return 0


cdef object not_accepted(str function):
    return RuntimeError(f"{function}() was given messages that scan() did not accept")


# Tables.


def tuples(messages, rows, body, Py_ssize_t columns):
    """Tabulate the old and the new tuples of messages that ``scan`` accepted.

    See ``reference.columns``.
    """
    cdef const uint8_t[::1] data = messages.data
    cdef const int64_t[::1] indexes = np.ascontiguousarray(rows, np.int64)
    cdef const int64_t[::1] bodies = np.ascontiguousarray(body, np.int64)
    cdef Py_ssize_t count = indexes.shape[0]
    cdef TupleSource source
    if bodies.shape[0] != count:
        raise ValueError(f"{count} rows, but {bodies.shape[0]} offsets of bodies")
    if count == 0 or data.shape[0] == 0:
        return absent(columns, count), absent(columns, count)
    open_source(&source, data, messages.offsets, indexes, bodies)
    new = tabulate(&source, columns, NEW)
    return tabulate(&source, columns, OLD) if source.any_old else absent(columns, count), new


def absent(Py_ssize_t columns, Py_ssize_t rows):
    """Return a read-only table without tuples, which takes no memory."""
    shape = (columns, rows)
    return TupleTable(
        marker=np.zeros(rows, np.uint8),
        state=np.broadcast_to(np.uint8(NOT_SENT), shape),
        format=np.broadcast_to(np.uint8(0), shape),
        offset=np.broadcast_to(np.int64(0), shape),
        length=np.broadcast_to(np.int32(0), shape),
    )


cdef tabulate(TupleSource* source, Py_ssize_t columns, int which):
    """Return the TupleTable of the old, or of the new, tuples."""
    cdef Py_ssize_t done = 0
    cdef TableArrays table
    cdef Cells cells
    shape = (columns, source.count)
    marker = np.zeros(source.count, np.uint8)
    state = new_array(shape, np.uint8)
    form = None
    offset = new_array(shape, np.int64)
    length = new_array(shape, np.int32)
    cdef uint8_t[::1] markers = marker
    table.rows = source.count
    table.state, table.form = <uint8_t*> address(state), NULL
    table.offset, table.length = <int64_t*> address(offset), <int32_t*> address(length)
    if open_cells(&cells, columns):
        raise MemoryError
    try:
        cells.marker = &markers[0]
        while True:
            with nogil:
                done = fill_table(source, done, which, &table, &cells)
            if done == source.count:
                break
            if done < 0 or form is not None:
                raise not_accepted("tuples")
            # The first value in binary form: from here on forms are recorded.
            form = new_array(shape, np.uint8)
            form[:, :done] = 0
            table.form = <uint8_t*> address(form)
    finally:
        close_cells(&cells)
    if form is None:
        form = np.broadcast_to(np.uint8(0), shape)
    return TupleTable(marker=marker, state=state, format=form, offset=offset, length=length)


cdef void* address(array) except *:
    """Return the address of a contiguous array, which the caller keeps alive."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_WRITABLE)
    PyBuffer_Release(&view)
    return view.buf


cdef Py_ssize_t fill_table(
    TupleSource* source, Py_ssize_t first, int which, TableArrays* table, Cells* cells
) noexcept nogil:
    """Tabulate from a row on, and return the number of rows.

    Return the first row of a block with a value in binary form if the table has no forms, and -1
    if a tuple is truncated.
    """
    cdef Py_ssize_t rows
    while first < source.count:
        rows = min(cells.capacity, source.count - first)
        if not read_block(source, first, rows, which, cells):
            return -1
        if table.form == NULL and any_binary(cells, rows):
            return first
        copy_cells(cells, rows, first, table)
        first += rows
    return first


# Columns.


def decode_columns(
    messages,
    rows,
    body,
    Py_ssize_t columns,
    str which,
    wanted,
    *,
    str unrepresentable="raise",
    Py_ssize_t threads=1,
):
    """Decode columns of the tuples of messages that ``scan`` accepted; see ``reference.columns``.

    With ``threads``, each thread decodes a share of the rows, and the shares are joined.
    """
    cdef Py_ssize_t count = len(rows)
    if len(body) != count:
        raise ValueError(f"{count} rows, but {len(body)} offsets of bodies")
    rows = np.ascontiguousarray(rows, np.int64)
    body = np.ascontiguousarray(body, np.int64)
    if which == "old" and not any_old(messages, rows, body):
        return without_tuples(wanted, count, columns, messages.data)
    compiled = columns_with_kernel(wanted)

    edges = shares_of(count, threads if may_share(messages.data, compiled) else 1, BLOCK)
    parts = decoders_of(compiled, edges, messages.data, unrepresentable)

    def decode_share(part):
        first, last = edges[part], edges[part + 1]
        return decode_rows(
            messages, rows[first:last], body[first:last], columns, WHICH[which],
            [number for number, _ in compiled], parts[part],
        )

    present, unchanged = together(decode_share, edges)
    in_threads(lambda first: append_columns(parts, first), len(parts))
    columns_of = [(<ColumnDecoder> decoder).finish() for decoder in parts[0]]
    decoded = dict(zip([number for number, _ in compiled], columns_of, strict=True))
    others = [(number, kind) for number, kind in wanted if number not in decoded]
    if others:
        decoded.update(by_reference(messages, rows, body, columns, which, others, unrepresentable))
    return DecodedColumns([decoded[number] for number, _ in wanted], unchanged, present)


cdef list columns_with_kernel(wanted):
    """Return the columns with a kernel, and their types, once each."""
    cdef dict chosen = {}
    for number, kind in wanted:
        known = chosen.setdefault(number, kind)
        if known is not kind and known != kind:
            raise ValueError("a column cannot be decoded as two types")
    return [(number, kind) for number, kind in chosen.items() if has_kernel(kind)]


cdef bint any_old(messages, const int64_t[::1] rows, const int64_t[::1] bodies) except -1:
    """Return whether any row has an old tuple, or one that is truncated."""
    cdef const uint8_t[::1] data = messages.data
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef TupleSource source
    cdef Py_ssize_t row
    if rows.shape[0] == 0 or data.shape[0] == 0:
        return False
    open_source(&source, data, messages.offsets, rows, bodies)
    with nogil:
        for row in range(source.count):
            if find_tuple(&source, row, OLD, &p, &end):
                return True
    return False


def without_tuples(wanted, Py_ssize_t rows, Py_ssize_t columns, data):
    """Return the columns of rows without a tuple, which share memory that is not written to."""
    nothing = np.zeros(0, np.int64)
    return DecodedColumns(
        [Decoded(null_column(kind, rows, chunks_of(data)), nothing) for _, kind in wanted],
        [nothing] * columns,
        np.zeros(rows, np.bool_),
    )


cdef bint may_share(data, compiled):
    """Return whether shares can be joined: they contain no views, and Arrow can address them."""
    return len(data) <= MAX_BYTES and not any(kind.format.startswith("v") for _, kind in compiled)


def decoders_of(compiled, edges, data, str unrepresentable):
    """Return a decoder a column for each share; those of the first have capacity for all rows."""
    cdef Py_ssize_t first, last
    cdef Py_ssize_t rows = edges[len(edges) - 1]
    whole = [ColumnDecoder(kind, rows, data, unrepresentable) for _, kind in compiled]
    parts = [whole]
    for first, last in zip(edges[1:], edges[2:]):
        parts.append([
            ColumnDecoder(kind, last - first, data, unrepresentable, decoder, first)
            for (_, kind), decoder in zip(compiled, whole, strict=True)
        ])
    return parts


cdef append_columns(parts, Py_ssize_t first):
    """Append the rows of some columns to the first part: each after as many as there are parts."""
    cdef ColumnDecoder decoder, other
    cdef int failed
    whole = parts[0][first::len(parts)]
    for others in parts[1:]:
        for decoder, other in zip(whole, others[first::len(parts)], strict=True):
            with nogil:
                failed = column_append(&decoder.c, &other.c)
            if failed:
                raise MemoryError


def by_reference(messages, rows, body, Py_ssize_t columns, str which, others, unrepresentable):
    """Return the columns without a kernel, by number."""
    from pgwire_codec.reference import values as reference

    old, new = tuples(messages, rows, body, columns)
    table = (old, new, TupleTable.current(old, new))[WHICH[which]]
    return {
        number: reference.decode_values(
            kind,
            messages.data,
            table.offset[number],
            table.length[number],
            table.state[number],
            table.format[number],
            unrepresentable=unrepresentable,
        )
        for number, kind in others
    }


cdef decode_rows(messages, rows, body, Py_ssize_t columns, int which, numbers, decoders):
    """Decode rows; return which have such a tuple, and the unchanged rows of each column."""
    cdef const uint8_t[::1] data = messages.data
    cdef TupleSource source
    cdef Slices slices
    cdef ColumnDecoder decoder
    cdef int code
    marker = np.zeros(len(rows), np.uint8)
    cdef uint8_t[::1] markers = marker
    if len(rows) == 0 or data.shape[0] == 0:
        return marker.astype(np.bool_), [np.zeros(0, np.int64) for _ in range(columns)]
    open_source(&source, data, messages.offsets, rows, body)
    try:
        if open_slices(&slices, columns, len(numbers)):
            raise MemoryError
        slices.marker = &markers[0]
        for number, decoder in zip(numbers, decoders, strict=True):
            if not 0 <= number < columns:
                raise IndexError(f"column {number} of {columns}")
            add_wanted(&slices, number, &decoder.c)
        with nogil:
            code = decode_blocks(&source, &slices, which)
        if code == NO_MEMORY:
            raise MemoryError
        if code == TRUNCATED:
            raise not_accepted("decode_columns")
        return marker.astype(np.bool_), unchanged_of(&slices)
    finally:
        close_slices(&slices)


cdef int decode_blocks(TupleSource* source, Slices* slices, int which) noexcept nogil:
    cdef Py_ssize_t first = 0, rows
    while first < source.count:
        rows = min(slices.capacity, source.count - first)
        open_block(slices, first)
        if not read_block(source, first, rows, which, slices):
            return TRUNCATED
        if decode_block(slices, rows, source):
            return NO_MEMORY
        first += rows
    return DONE


cdef unchanged_of(const Slices* slices):
    """Return the unchanged rows of each column."""
    cdef Py_ssize_t at
    cdef const int64_t* pair = slices.unchanged
    nothing = np.zeros(0, np.int64)
    cdef list rows_of = [nothing] * slices.columns
    if not slices.unchanged_count:
        return rows_of
    counts = np.zeros(slices.columns, np.int64)
    cdef int64_t[::1] done = counts
    for at in range(slices.unchanged_count):
        done[pair[2 * at + 1]] += 1
    ends = np.cumsum(counts)
    counts[:] = ends - counts
    every = np.empty(slices.unchanged_count, np.int64)
    cdef int64_t[::1] rows = every
    for at in range(slices.unchanged_count):
        rows[done[pair[2 * at + 1]]] = pair[2 * at]
        done[pair[2 * at + 1]] += 1
    at = 0
    for column, end in enumerate(ends.tolist()):
        if at < end:
            rows_of[column] = every[at:end]
        at = end
    return rows_of

"""columns: the values of many columns of many tuples, in one walk over the messages.

The twin of :mod:`pgwire_codec.reference.columns`. A block of rows is walked, which says where each
value lies; then each column's kernel decodes its values of the block, while they are in the cache.
Nothing but the block is kept of where values lie, and everything happens without the GIL.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc

import os
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from pgwire_codec._core.kernels.column cimport (
    BINARY,
    BLOCK,
    MAX_BYTES,
    TEXT,
    ColumnBuffers,
    Slice,
    column_append,
    column_run,
)
from pgwire_codec._core.wire.tuple_data cimport Input, prefetch, tuple_of
from pgwire_codec._core.kernels.values cimport ColumnDecoder, has_kernel
from pgwire_codec._core.wire.tuple_data cimport column_end, likely
from pgwire_codec._core.wire.primitives cimport load_i16
from pgwire_codec._core.columns.tuples import tuples
from pgwire_codec.reference import values as reference
from pgwire_codec.codec.tables import DecodedColumns, TupleTable

cdef enum:
    BLOCK_BYTES = 32768  # what a block's slots may take: they stay in the cache
    NOT_WANTED = -1
    SMALLEST_SHARE = 4096  # rows that are worth a thread

cdef enum:
    DONE = 0
    NOT_WHOLE = -1
    NO_MEMORY = -2

WHICH = {"old": 0, "new": 1, "current": 2}


cdef struct Plan:
    # What to do with each column, and the block.
    Py_ssize_t columns  # of the relation
    Py_ssize_t wanted
    int32_t* place  # of each column of the relation: which of the wanted it is, or NOT_WANTED
    ColumnBuffers** outputs  # of each wanted column
    Slice* slots  # of each wanted column, BLOCK of them
    bint* gaps  # of each wanted column: whether a row of the block has no value
    Py_ssize_t rows  # of a block
    uint8_t* present
    int64_t* unchanged  # pairs of row and column
    Py_ssize_t unchanged_count
    Py_ssize_t unchanged_room


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
    """Decode columns of the tuples of messages that ``scan`` accepted; see the twin.

    With ``threads``, rows are shared out among as many threads, and the shares joined.
    """
    cdef Py_ssize_t count = len(rows)
    if len(body) != count:
        raise ValueError("body must have one offset a row")
    # Once each: columns of one name, which no server sends, are wanted as the last of them.
    compiled = [(number, kind) for number, kind in dict.fromkeys(wanted) if has_kernel(kind)]
    if len({number for number, _ in compiled}) != len(compiled):
        raise ValueError("a column can be wanted as one type")
    rows = np.ascontiguousarray(rows, np.int64)
    body = np.ascontiguousarray(body, np.int64)

    edges = shares(count, threads if may_share(messages.data, compiled) else 1)
    parts = decoders_of(compiled, edges, messages.data, unrepresentable)

    def walk_share(part):
        first, last = edges[part], edges[part + 1]
        return walk_all(
            messages, rows[first:last], body[first:last], columns, WHICH[which],
            [number for number, _ in compiled], parts[part],
        )

    present, unchanged = together(walk_share, edges)
    for others in parts[1:]:
        append_all(parts[0], others)
    columns_of = [(<ColumnDecoder> decoder).finish() for decoder in parts[0]]
    decoded = dict(zip([number for number, _ in compiled], columns_of, strict=True))
    others = [(number, kind) for number, kind in wanted if number not in decoded]
    if others:
        decoded.update(by_reference(messages, rows, body, columns, which, others, unrepresentable))
    return DecodedColumns([decoded[number] for number, _ in wanted], unchanged, present)


cdef bint may_share(data, compiled):
    """Whether shares can be joined: not if they are views, or reach what Arrow can address."""
    return len(data) <= MAX_BYTES and not any(kind.format.startswith("v") for _, kind in compiled)


def shares(Py_ssize_t count, Py_ssize_t threads):
    """Cut the rows into shares, each of whole blocks but the last; give their edges."""
    cdef Py_ssize_t size = (count + threads - 1) // threads
    size = max((size + BLOCK - 1) // BLOCK * BLOCK, SMALLEST_SHARE)
    return [*range(0, count, size), count] if count else [0, 0]


def decoders_of(compiled, edges, data, str unrepresentable):
    """Give a decoder a column for each share; those of the first have room for all rows."""
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


def together(walk_share, edges):
    """Walk over all shares at the same time, the first in this thread; join what they give."""
    shares = len(edges) - 1
    if shares == 1:
        return walk_share(0)
    others = [helpers(shares - 1).submit(walk_share, part) for part in range(1, shares)]
    try:
        first = walk_share(0)
    finally:
        wait(others)  # they write into memory that belongs to this call
    done = [first, *(other.result() for other in others)]
    unchanged = [
        np.concatenate([rows + first for rows, first in zip(pieces, edges, strict=False)])
        for pieces in zip(*(rows for _, rows in done), strict=True)
    ]
    return np.concatenate([present for present, _ in done]), unchanged


def helpers(Py_ssize_t threads):
    """Give that many threads; they are kept, as starting one takes as long as some 1,000 rows."""
    if threads not in HELPERS:
        HELPERS[threads] = ThreadPoolExecutor(threads, thread_name_prefix="pgwire_codec")
    return HELPERS[threads]


HELPERS = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=HELPERS.clear)  # the threads stay with the parent


cdef append_all(decoders, others):
    """Put the rows of each of the others behind those of a decoder."""
    cdef ColumnDecoder decoder, other
    cdef int failed
    for decoder, other in zip(decoders, others, strict=True):
        with nogil:
            failed = column_append(&decoder.c, &other.c)
        if failed:
            raise MemoryError


def by_reference(messages, rows, body, Py_ssize_t columns, str which, others, unrepresentable):
    """Give the columns that have no kernel, by number."""
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


cdef walk_all(messages, rows, body, Py_ssize_t columns, int which, numbers, decoders):
    """Walk over all rows; give which have such a tuple, and each column's unchanged rows."""
    cdef Py_ssize_t count = len(rows)
    cdef Input source
    cdef Plan plan
    cdef int found = DONE
    cdef const uint8_t[::1] data = messages.data
    cdef const int64_t[::1] offsets = messages.offsets
    cdef const int64_t[::1] indexes = rows
    cdef const int64_t[::1] bodies = body
    present = np.zeros(count, np.bool_)
    cdef uint8_t[::1] present_view = present.view(np.uint8)
    if count == 0 or data.shape[0] == 0:
        return present, [np.zeros(0, np.int64) for _ in range(columns)]
    source.data, source.size = &data[0], data.shape[0]
    source.offsets, source.messages = &offsets[0], offsets.shape[0] - 1
    source.rows, source.bodies, source.count = &indexes[0], &bodies[0], count
    source.any_old = False
    open_plan(&plan, columns, numbers, decoders)
    plan.present = &present_view[0]
    try:
        with nogil:
            found = walk(&source, &plan, which)
        if found == NO_MEMORY:
            raise MemoryError
        if found == NOT_WHOLE:
            raise RuntimeError("decode_columns() was given messages that scan() did not accept")
        return present, unchanged_of(&plan)
    finally:
        close_plan(&plan)


cdef open_plan(Plan* plan, Py_ssize_t columns, numbers, decoders):
    cdef Py_ssize_t wanted = len(numbers)
    cdef Py_ssize_t at
    plan.columns, plan.wanted = columns, wanted
    plan.rows = max(8, min(BLOCK_BYTES // (<Py_ssize_t> sizeof(Slice) * max(wanted, 1)), BLOCK))
    plan.unchanged = NULL
    plan.unchanged_count = plan.unchanged_room = 0
    plan.place = <int32_t*> malloc(max(columns, 1) * sizeof(int32_t))
    plan.outputs = <ColumnBuffers**> calloc(max(wanted, 1), sizeof(ColumnBuffers*))
    plan.slots = <Slice*> malloc(max(wanted, 1) * plan.rows * sizeof(Slice))
    plan.gaps = <bint*> calloc(max(wanted, 1), sizeof(bint))
    if plan.place == NULL or plan.outputs == NULL or plan.slots == NULL or plan.gaps == NULL:
        close_plan(plan)
        raise MemoryError
    for at in range(columns):
        plan.place[at] = NOT_WANTED
    for at in range(wanted):
        if not 0 <= numbers[at] < columns:
            close_plan(plan)
            raise IndexError(f"column {numbers[at]} of {columns}")
        plan.place[<Py_ssize_t> numbers[at]] = <int32_t> at
        plan.outputs[at] = &(<ColumnDecoder> decoders[at]).c


cdef void close_plan(Plan* plan) noexcept:
    free(plan.place)
    free(plan.outputs)
    free(plan.slots)
    free(plan.gaps)
    free(plan.unchanged)


cdef unchanged_of(Plan* plan):
    """Give the rows of each column that are unchanged."""
    if not plan.unchanged_count:
        nothing = np.zeros(0, np.int64)
        return [nothing for _ in range(plan.columns)]
    pairs = np.asarray(<int64_t[:plan.unchanged_count, :2]> plan.unchanged)
    return [pairs[pairs[:, 1] == column, 0].copy() for column in range(plan.columns)]


cdef int walk(Input* source, Plan* plan, int which) noexcept nogil:
    cdef Py_ssize_t first = 0
    cdef Py_ssize_t rows, row, at
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* q
    cdef const uint8_t* q_end
    cdef int found
    while first < source.count:
        rows = min(plan.rows, source.count - first)
        for at in range(plan.wanted):
            plan.gaps[at] = False
        row = 0
        while row < rows:
            prefetch(source, first + row)
            prefetch(source, first + row + 1)
            found = tuple_of(source, first + row, which, &p, &end)
            if found < 0:
                return NOT_WHOLE
            if found and row + 1 < rows:
                found = tuple_of(source, first + row + 1, which, &q, &q_end)
                if found < 0:
                    return NOT_WHOLE
                if found and are_wide(p, end, q, q_end, plan.columns):
                    found = read_two(p + 3, end, q + 3, q_end, row, first, plan)
                    if found != DONE:
                        return found
                    plan.present[first + row] = plan.present[first + row + 1] = True
                    row += 2
                    continue
                found = True
            if found:
                plan.present[first + row] = True
                found = read_one(p + 1, end, row, first, plan)
                if found != DONE:
                    return found
            else:
                not_sent(row, 0, plan)
            row += 1
        for at in range(plan.wanted):
            if column_run(plan.outputs[at], plan.slots + at * plan.rows, rows, not plan.gaps[at]):
                return NO_MEMORY
        first += rows
    return DONE


cdef inline bint are_wide(
    const uint8_t* p, const uint8_t* p_end, const uint8_t* q, const uint8_t* q_end,
    Py_ssize_t columns,
) noexcept nogil:
    """Whether two tuples, from their markers on, both have as many columns as the relation."""
    if p_end - p < 3 or q_end - q < 3:
        return False
    return load_i16(p + 1) == columns and load_i16(q + 1) == columns


cdef inline int read_one(
    const uint8_t* p, const uint8_t* end, Py_ssize_t row, Py_ssize_t first, Plan* plan
) noexcept nogil:
    """Put the columns of one tuple into their slots."""
    cdef Py_ssize_t column, width
    if end - p < 2:
        return NOT_WHOLE
    width = max(0, min(<Py_ssize_t> load_i16(p), plan.columns))
    p += 2
    for column in range(width):
        p = read_column(p, end, plan.place[column], column, row, first, plan)
        if p == NULL:
            return NOT_WHOLE
    if width < plan.columns:
        not_sent(row, width, plan)
    return DONE


cdef inline int read_two(
    const uint8_t* p,
    const uint8_t* p_end,
    const uint8_t* q,
    const uint8_t* q_end,
    Py_ssize_t row,
    Py_ssize_t first,
    Plan* plan,
) noexcept nogil:
    """Put the columns of two tuples into their slots, by turns: one need not wait for the other."""
    cdef Py_ssize_t column
    cdef int32_t place
    for column in range(plan.columns):
        place = plan.place[column]
        p = read_column(p, p_end, place, column, row, first, plan)
        q = read_column(q, q_end, place, column, row + 1, first, plan)
        if p == NULL or q == NULL:
            return NOT_WHOLE
    return DONE


cdef inline const uint8_t* read_column(
    const uint8_t* p,
    const uint8_t* end,
    int32_t place,
    Py_ssize_t column,
    Py_ssize_t row,
    Py_ssize_t first,
    Plan* plan,
) noexcept nogil:
    """Put one column into its slot, if it is wanted; give its end, NULL where it is not whole."""
    cdef const uint8_t* next_column = column_end(p, end)
    cdef Slice* slot
    if next_column == NULL:
        return NULL
    if likely(p[0] == c"t" or p[0] == c"b"):
        if place >= 0:
            slot = plan.slots + place * plan.rows + row
            slot.p = p + 5
            slot.length = <int32_t> (next_column - p - 5)
            slot.form = BINARY if p[0] == c"b" else TEXT
        return next_column
    if p[0] == c"u" and not note_unchanged(plan, first + row, column):
        return NULL
    if place >= 0:
        no_value(plan, place, row)
    return next_column


cdef inline void no_value(Plan* plan, int32_t place, Py_ssize_t row) noexcept nogil:
    cdef Slice* slot = plan.slots + place * plan.rows + row
    slot.p = NULL
    slot.length = 0
    slot.form = -1
    plan.gaps[place] = True


cdef void not_sent(Py_ssize_t row, Py_ssize_t column, Plan* plan) noexcept nogil:
    """Fill a row's slots from a column on."""
    while column < plan.columns:
        if plan.place[column] >= 0:
            no_value(plan, plan.place[column], row)
        column += 1


cdef bint note_unchanged(Plan* plan, int64_t row, int64_t column) noexcept nogil:
    cdef Py_ssize_t room
    cdef int64_t* grown
    if plan.unchanged_count == plan.unchanged_room:
        room = max(<Py_ssize_t> 64, 2 * plan.unchanged_room)
        grown = <int64_t*> realloc(plan.unchanged, room * 2 * sizeof(int64_t))
        if grown == NULL:
            return False
        plan.unchanged, plan.unchanged_room = grown, room
    plan.unchanged[2 * plan.unchanged_count] = row
    plan.unchanged[2 * plan.unchanged_count + 1] = column
    plan.unchanged_count += 1
    return True

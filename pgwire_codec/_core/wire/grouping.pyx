"""group_rows: the changes of an array, batch after batch; run_pieces: its input of a run.

The counterpart is :mod:`pgwire_codec.reference.grouping`. group_rows is a stable counting sort.
"""

from libc.stdint cimport int32_t, int64_t

import numpy as np

from pgwire_codec._core.kernels.memory cimport new_array

from pgwire_codec.codec.runs import GroupedRows


INT64 = np.dtype(np.int64)


def run_pieces(first_row, changes, transaction):
    """Return the pieces of a run of transactions; see ``reference.run_pieces``."""
    cdef const int64_t[::1] first_rows = first_row
    cdef const int64_t[::1] counts = changes
    cdef Py_ssize_t count = first_rows.shape[0]
    cdef Py_ssize_t number
    cdef int64_t next_transaction = transaction
    if counts.shape[0] != count:
        raise ValueError("each transaction must have a first row, and a number of changes")
    pieces = new_array((4, count), INT64)
    cdef int64_t[:, ::1] piece = pieces
    with nogil:
        for number in range(count):
            piece[0, number] = max(first_rows[number], 0)
            piece[1, number] = first_rows[number] + counts[number]
            piece[2, number] = max(-first_rows[number], 0)
            piece[3, number] = next_transaction + number
    return pieces


def group_rows(rows, group, batch, pieces):
    """Sort pieces of the rows by their batches; see ``reference.group_rows``."""
    cdef const int64_t[::1] in_rows = rows
    cdef const int32_t[::1] groups = group
    cdef const int32_t[::1] batches = batch
    cdef const int64_t[:, ::1] piece
    # Of each batch: how many rows it has, then the place of its next one.
    places = np.zeros(batches.shape[0], np.int64)
    order = np.empty(batches.shape[0], np.int64)
    cdef int64_t[::1] place = places
    cdef int64_t[::1] found = order
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t number, row, to
    cdef int64_t total = 0
    cdef int64_t size, seq, transaction
    for several in pieces:
        piece = several
        if piece.shape[0] != 4 or in_rows.shape[0] != groups.shape[0]:
            raise strange_pieces()
        with nogil:
            count = count_rows(groups, batches, piece, place, found, count)
        if count < 0:
            raise strange_pieces()
    for number in range(count):
        size = place[found[number]]
        place[found[number]] = total
        total += size
    sorted_rows = new_array((total,), INT64)
    seqs = new_array((total,), INT64)
    transactions = new_array((total,), INT64)
    cdef int64_t[::1] out_rows = sorted_rows
    cdef int64_t[::1] out_seq = seqs
    cdef int64_t[::1] out_transaction = transactions
    for several in pieces:
        piece = several
        with nogil:
            for number in range(piece.shape[1]):
                seq, transaction = piece[2, number], piece[3, number]
                for row in range(piece[0, number], piece[1, number]):
                    to = place[batches[groups[row]]]
                    place[batches[groups[row]]] += 1
                    out_rows[to] = in_rows[row]
                    out_seq[to] = seq
                    out_transaction[to] = transaction
                    seq += 1
    order = order[:count]
    return GroupedRows(sorted_rows, seqs, transactions, order, places[order])


def strange_pieces():
    return ValueError("the pieces must be of rows that have a group, and a batch")


cdef Py_ssize_t count_rows(
    const int32_t[::1] groups,
    const int32_t[::1] batches,
    const int64_t[:, ::1] piece,
    int64_t[::1] place,
    int64_t[::1] found,
    Py_ssize_t count,
) noexcept nogil:
    """Count the rows of each batch in `place`, and add those that have any to `found`, in order.

    Returns how many these are, `count` of them from earlier pieces. -1: a piece is not of the rows,
    or one of its rows has no group or no batch.
    """
    cdef Py_ssize_t number, row
    cdef int32_t batch
    for number in range(piece.shape[1]):
        if not 0 <= piece[0, number] <= piece[1, number] <= groups.shape[0]:
            return -1
        for row in range(piece[0, number], piece[1, number]):
            if not 0 <= groups[row] < batches.shape[0]:
                return -1
            batch = batches[groups[row]]
            if not 0 <= batch < place.shape[0]:
                return -1
            if place[batch] == 0:
                found[count] = batch
                count += 1
            place[batch] += 1
    return count

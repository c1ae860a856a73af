"""group_rows: the changes of an array, batch after batch, by a stable counting sort.

The counterpart is :mod:`pgwire_codec.reference.grouping`.
"""

from libc.stdint cimport int32_t, int64_t

import numpy as np

from pgwire_codec._core.kernels.memory cimport new_array

from pgwire_codec.codec.runs import GroupedRows, RunPieces


INT64 = np.dtype(np.int64)


cdef struct Piece:
    # Rows of one transaction.
    int64_t start
    int64_t stop
    int64_t seq  # number of the first in the transaction
    int64_t transaction


cdef class Pieces:
    """Pieces of an array, or those of the transactions of a run."""

    cdef const int64_t[:, ::1] columns
    cdef const int64_t[::1] first_row, changes
    cdef int64_t transaction
    cdef bint is_run
    cdef Py_ssize_t count

    def __init__(self, pieces):
        self.is_run = isinstance(pieces, RunPieces)
        if self.is_run:
            self.first_row, self.changes, self.transaction = pieces
            self.count = self.first_row.shape[0]
            good = self.changes.shape[0] == self.count
        else:
            self.columns = pieces
            self.count = self.columns.shape[1]
            good = self.columns.shape[0] == 4
        if not good:
            raise strange_pieces()

    cdef inline Piece piece(self, Py_ssize_t number) noexcept nogil:
        cdef int64_t first
        if not self.is_run:
            return Piece(
                self.columns[0, number], self.columns[1, number],
                self.columns[2, number], self.columns[3, number],
            )
        first = self.first_row[number]
        return Piece(
            max(first, 0), first + self.changes[number], max(-first, 0), self.transaction + number
        )


def group_rows(rows, group, batch, pieces):
    """Sort pieces of the rows by their batches; see ``reference.group_rows``."""
    cdef const int64_t[::1] in_rows = rows
    cdef const int32_t[::1] groups = group
    cdef const int32_t[::1] batches = batch
    cdef list several = [Pieces(each) for each in pieces]
    cdef Pieces each_piece
    cdef Piece piece
    # Of each batch: how many rows it has, then the place of its next one.
    places = np.zeros(batches.shape[0], np.int64)
    order = np.empty(batches.shape[0], np.int64)
    cdef int64_t[::1] place = places
    cdef int64_t[::1] found = order
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t number, row, to
    cdef int64_t total = 0
    cdef int64_t size
    if in_rows.shape[0] != groups.shape[0]:
        raise strange_pieces()
    for each_piece in several:
        with nogil:
            count = count_rows(groups, batches, each_piece, place, found, count)
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
    for each_piece in several:
        with nogil:
            for number in range(each_piece.count):
                piece = each_piece.piece(number)
                for row in range(piece.start, piece.stop):
                    to = place[batches[groups[row]]]
                    place[batches[groups[row]]] += 1
                    out_rows[to] = in_rows[row]
                    out_seq[to] = piece.seq + row - piece.start
                    out_transaction[to] = piece.transaction
    order = order[:count]
    return GroupedRows(sorted_rows, seqs, transactions, order, places[order])


def strange_pieces():
    return ValueError("the pieces must be of rows that have a group, and a batch")


cdef Py_ssize_t count_rows(
    const int32_t[::1] groups,
    const int32_t[::1] batches,
    Pieces pieces,
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
    cdef Piece piece
    for number in range(pieces.count):
        piece = pieces.piece(number)
        if not 0 <= piece.start <= piece.stop <= groups.shape[0]:
            return -1
        for row in range(piece.start, piece.stop):
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

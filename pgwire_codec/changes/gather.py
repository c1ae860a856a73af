"""Committed changes gathered into batches: one for each Relation version and input array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.column import Decoding
from pgwire_codec.codec.runs import RunPieces
from pgwire_codec.transactions.change_array import ChangeArray
from pgwire_codec.transactions.collector import CommittedRun, Held
from pgwire_codec.transactions.committed import Committed, Transactions

_Several = npt.NDArray[np.int64] | RunPieces


def gather(
    emitted: Sequence[tuple[Committed, Held] | CommittedRun],
    transactions: Transactions,
    decoding: Decoding,
) -> list[ChangeBatch]:
    """Return the batches of the changes that a collector emitted, of these transactions.

    The batches of an array are in the order of their first changes, in commit order; arrays are in
    the order in which their first changes were emitted.
    """
    arrays: dict[int, _Pieces] = {}
    count = 0
    run: CommittedRun | None
    for each in emitted:
        if isinstance(each, CommittedRun):
            run, chunks = each, each.before
        else:
            run, chunks = None, each[1].chunks
        for chunk in chunks:
            pieces = arrays.setdefault(id(chunk.changes), _Pieces(chunk.changes))
            pieces.single.append((chunk.start, chunk.stop, chunk.seq, count))
        if run is None:
            count += 1
        else:
            pieces = arrays.setdefault(id(run.changes), _Pieces(run.changes))
            changes = run.transactions.changes
            pieces.add(RunPieces(run.first_row, changes, count))
            count += len(changes)
    # A run is in commit order.
    lsn = transactions.commit_lsn
    ordered = len(emitted) < 2 or bool(np.all(lsn[:-1] <= lsn[1:]))
    batches: list[ChangeBatch] = []
    for pieces in arrays.values():
        several = pieces.arrays()
        if not ordered:  # those of a transaction are in order already
            columns = np.concatenate(
                [each.columns() if isinstance(each, RunPieces) else each for each in several],
                axis=1,
            )
            order = np.argsort(lsn[columns[3]], kind="stable")
            several = [np.ascontiguousarray(columns[:, order])]
        batches += _batches(pieces.changes, several, transactions, decoding)
    return batches


@dataclass(slots=True)
class _Pieces:
    """Pieces of an array: each is of one transaction, and is a column of an array of four rows.

    These are the first change, the end of the changes, the number of the first in its transaction,
    and the number of the transaction.
    """

    changes: ChangeArray
    several: list[_Several] = field(default_factory=list)
    single: list[tuple[int, int, int, int]] = field(default_factory=list)  # after `several`

    def add(self, pieces: RunPieces) -> None:
        self._close()
        self.several.append(pieces)

    def arrays(self) -> list[_Several]:
        self._close()
        return self.several

    def _close(self) -> None:
        if self.single:
            self.several.append(np.ascontiguousarray(np.array(self.single, np.int64).T))
            self.single = []


def _batches(
    changes: ChangeArray,
    pieces: list[_Several],
    transactions: Transactions,
    decoding: Decoding,
) -> Iterator[ChangeBatch]:
    found = decoding.codec.group_rows(changes.rows, changes.group, changes.batch_numbers(), pieces)
    start = 0
    for number, stop in zip(found.batch.tolist(), found.stop.tolist(), strict=True):
        yield ChangeBatch(
            changes.versions[number],
            changes.source,
            found.rows[start:stop],
            found.seq[start:stop],
            transactions,
            found.transaction[start:stop],
            decoding,
        )
        start = stop

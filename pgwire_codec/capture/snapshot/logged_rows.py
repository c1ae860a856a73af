"""LoggedRows: the rows of a snapshot that a log contains, across crashes."""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Final

from pgwire_codec.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pgwire_codec.capture.snapshot.table_copies import CopiedRows
    from pgwire_codec.log import LogWriter
    from pgwire_codec.log.snapshot_record import SnapshotRecord

_ROUND_BYTES: Final = 32 << 20  # of messages
_ROUND_SECONDS: Final = 5.0


class NotResumable(Exception):
    """An interrupted snapshot cannot be continued; the text is the reason."""


class LoggedRows:
    """Rows of each range that a log contains, and their record beside it.

    Parameters
    ----------
    writer : LogWriter
    lsn : int
        LSN at which the slot starts.

    Attributes
    ----------
    lsn : int
    rows : collections.Counter
        Number of rows of each range, by its number; without those complete before the restart.
    complete : set of int
        Numbers of the ranges that are complete.
    """

    def __init__(self, writer: LogWriter, lsn: int) -> None:
        self._writer = writer
        self.lsn = lsn
        self._complete_before = 0
        self._rows_before = 0
        self.rows: Counter[int] = Counter()
        self.complete: set[int] = set()

    @property
    def total(self) -> int:
        """Number of rows of all ranges."""
        return self._rows_before + self.rows.total()

    def restore(self, record: SnapshotRecord) -> None:
        """Restore the counts from the record and the end of the log, all of which is durable.

        Raises ``NotResumable`` when the two do not fit, and when the record is damaged.
        """
        try:
            found = record.rows()
        except LogError as error:
            raise NotResumable(str(error)) from error
        if found is None or found.lsn != self.lsn:
            return  # the first rows were not appended yet
        self._complete_before = found.complete_before
        self._rows_before = found.complete_rows
        self.complete = {*range(found.complete_before), *found.complete}
        self.rows.update(found.rows)
        end, place = self._writer.end_ordinal, found.ordinal
        for part in found.next:
            self.rows[part.range] += min(max(end - place, 0), part.rows)
            place += part.rows
            if part.is_last and place <= end:
                self.complete.add(part.range)
        if not found.ordinal <= end <= place:
            raise NotResumable("its record is of another state of the log")

    def record(self, copied: Sequence[CopiedRows]) -> None:
        """Record rows durably, which are then appended and flushed.

        Everything before them has to be durable.
        """
        from pgwire_codec.log.snapshot_record import NextRows, RecordedRows

        while self._complete_before in self.complete:
            self._complete_before += 1
        self._writer.snapshot_record.write_rows(
            RecordedRows(
                lsn=self.lsn,
                ordinal=self._writer.end_ordinal,
                complete_before=self._complete_before,
                complete=sorted(n for n in self.complete if n >= self._complete_before),
                complete_rows=self._rows_before + sum(self.rows[n] for n in self.complete),
                rows={n: rows for n, rows in self.rows.items() if n not in self.complete},
                next=[NextRows(each.range.number, each.rows, each.is_last) for each in copied],
            )
        )
        for each in copied:
            self.rows[each.range.number] += each.rows
            if each.is_last:
                self.complete.add(each.range.number)


def rounds(copied: Iterable[CopiedRows]) -> Iterator[list[CopiedRows]]:
    """Yield the rows in groups, each of which is recorded and flushed at once."""
    group: list[CopiedRows] = []
    size, began = 0, monotonic()
    for rows in copied:
        group.append(rows)
        size += len(rows.messages)
        if size >= _ROUND_BYTES or monotonic() - began >= _ROUND_SECONDS:
            yield group
            group, size, began = [], 0, monotonic()
    if group:
        yield group

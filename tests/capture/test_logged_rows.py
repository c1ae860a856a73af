"""Counts of a snapshot's rows in a log that ends anywhere in what was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgwire_codec import log
from pgwire_codec.capture.snapshot.logged_rows import LoggedRows, NotResumable
from pgwire_codec.log.snapshot_record import NextRows, RecordedRows
from tests.support.logs import SOURCE, append

LSN = 100
NEXT = [NextRows(2, 3, False), NextRows(4, 2, True), NextRows(2, 0, True), NextRows(5, 2, True)]
#: Range of each row that is appended.
APPENDED = [2, 2, 2, 4, 4, 5, 5]


def record(ordinal: int) -> RecordedRows:
    return RecordedRows(
        lsn=LSN,
        ordinal=ordinal,
        complete_before=2,
        complete=[3],
        complete_rows=1_000,
        rows={2: 10},
        next=NEXT,
    )


@pytest.mark.parametrize("durable", range(len(APPENDED) + 1))
def test_rows_of_a_log_that_ends_in_a_round(durable: int, tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, [b"O" + bytes(9)] * 8)
        writer.snapshot_record.write_rows(record(writer.end_ordinal))
        append(writer, [b"O" + bytes(9)] * durable)
    with log.LogWriter(tmp_path, SOURCE) as writer:
        logged = LoggedRows(writer, LSN)
        logged.restore(writer.snapshot_record)
    there = APPENDED[:durable]
    assert logged.rows == {2: 10 + there.count(2), 4: there.count(4), 5: there.count(5)}
    assert logged.total == 1_010 + durable
    expected = {0, 1, 3}
    expected |= {4} if durable >= 5 else set()
    expected |= {2} if durable >= 5 else set()
    expected |= {5} if durable == 7 else set()
    assert logged.complete == expected


@pytest.mark.parametrize("messages", [7, 8 + len(APPENDED) + 1])
def test_a_log_that_the_record_does_not_fit(messages: int, tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, [b"O" + bytes(9)] * messages)
        writer.snapshot_record.write_rows(record(8))
        with pytest.raises(NotResumable, match="another state of the log"):
            LoggedRows(writer, LSN).restore(writer.snapshot_record)


def test_the_record_of_another_snapshot(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        writer.snapshot_record.write_rows(record(0))
        logged = LoggedRows(writer, LSN + 1)
        logged.restore(writer.snapshot_record)
    assert (logged.total, logged.complete) == (0, set())

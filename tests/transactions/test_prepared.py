"""Prepared transactions that published nothing: what servers send of one differs by major.

PostgreSQL 15 to 17 send a Commit Prepared (or a Rollback Prepared) alone, PostgreSQL 18 up to 18.4
a Prepare without a Begin Prepare before it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from tests.support.build import T, insert, streamed, transaction, wire
from tests.support.log_captures import capture_into, decoded, flush_lsn, messages
from tests.support.logs import SOURCE, append
from tests.support.servers import Database, each_major
from tests.support.slot_captures import tags
from tests.transactions.test_splits import check_batches, check_parts, rows, transactions

Messages = list[Any]


def begin_prepare(lsn: int, gid: str) -> Messages:
    return [pgc.BeginPrepare(lsn, lsn + 1, 0, lsn, gid)]


def prepare(lsn: int, gid: str, xid: int | None = None) -> Messages:
    return [pgc.Prepare(0, lsn, lsn + 1, 0, xid or lsn, gid)]


def commit_prepared(lsn: int, gid: str, xid: int) -> Messages:
    return [pgc.CommitPrepared(0, lsn, lsn + 1, 5, xid, gid)]


def rollback_prepared(lsn: int, gid: str, xid: int) -> Messages:
    return [pgc.RollbackPrepared(0, lsn - 1, lsn, 0, 5, xid, gid)]


#: An ordinary empty prepared transaction, and one as 18 and as 15 send it: each with xid 10, and
#: committed at 20.
EMPTY = {
    "whole": [*begin_prepare(10, "g"), *prepare(10, "g"), *commit_prepared(20, "g", 10)],
    "no begin": [*prepare(10, "g"), *commit_prepared(20, "g", 10)],
    "commit alone": commit_prepared(20, "g", 10),
}

each_form = pytest.mark.parametrize("form", EMPTY.values(), ids=EMPTY)


@dataclass(frozen=True, eq=False)
class Stream:
    """Messages in the place of a capture."""

    messages: list[bytes]
    lsns: npt.NDArray[np.uint64] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lsns", np.zeros(len(self.messages), np.uint64))


#: Empty prepared transactions of every form among plain, streamed and prepared ones.
AMONG_OTHERS: Messages = [
    *prepare(5, "first"),
    *transaction(T, insert(1, "1", "a", None), xid=8, lsn=8),
    *streamed(replace(T, xid=70), insert(1, "2", "b", None, xid=70), xid=70),
    *prepare(20, "second"),
    *commit_prepared(21, "first", 5),
    *begin_prepare(25, "full"),
    T,
    insert(1, "3", "c", None),
    *prepare(25, "full"),
    *prepare(26, "third"),
    *streamed(insert(1, "4", "d", None, xid=71), xid=70, first=False),
    *rollback_prepared(27, "second", 20),
    *commit_prepared(28, "alone", 15),
    *itertools.chain.from_iterable(
        transaction(insert(1, str(lsn), "many", None), xid=lsn, lsn=lsn) for lsn in range(30, 45)
    ),
    pgc.StreamCommit(70, 0, 50, 51, 0),
    *commit_prepared(60, "third", 26),
    *rollback_prepared(61, "alone", 16),
    *prepare(62, "first"),
    *commit_prepared(63, "full", 25),
    *commit_prepared(64, "first", 62),
]


@each_form
@pytest.mark.parametrize("atomic", [True, False])
def test_it_is_an_empty_transaction(form: Messages, atomic: bool) -> None:
    changes = pgc.Decoder(atomic=atomic).decode(wire(form))
    assert changes.batches == []
    assert changes.rejected == changes.warnings == []
    assert [(each[:3], each[4:]) for each in transactions([changes])] == [
        ((10, 20, 21), (None, "g", 0))
    ]
    whole = pgc.Decoder(atomic=atomic).decode(wire(EMPTY["whole"]))
    assert transactions([changes]) == transactions([whole])


def test_it_is_pending_until_its_end() -> None:
    for end in (commit_prepared(20, "g", 10), rollback_prepared(20, "g", 10)):
        decoder = pgc.Decoder()
        assert len(decoder.decode(wire(prepare(10, "g"))).transactions) == 0
        assert decoder.pending == [10]
        changes = decoder.decode(wire(end))
        assert decoder.pending == []
        assert changes.transactions.gid.tolist() == ["g"] * isinstance(end[0], pgc.CommitPrepared)


def test_a_rollback_alone_is_nothing() -> None:
    decoder = pgc.Decoder()
    changes = decoder.decode(wire(rollback_prepared(20, "g", 10)))
    assert len(changes.transactions) == 0
    assert decoder.pending == []


@each_form
def test_a_new_session_sends_it_again(form: Messages) -> None:
    """From its start, wherever the old session ended: it is one transaction."""
    before = transaction(T, insert(1, "1", "a", None), lsn=9)
    for broken in range(len(form) + 1):
        decoder = pgc.Decoder()
        changes = [decoder.decode(wire([*before, *form[:broken]]))]
        decoder.new_session()
        changes.append(decoder.decode(wire([*before, *form])))
        assert [each[5:] for each in transactions(changes)] == [(None, 1), ("g", 0)]
        assert decoder.pending == []
    parts = [wire([*before, *form[:1]]), wire([*before, *form])]
    plan = pgc.plan([pgc.summarise(parts[0]), pgc.summarise(parts[1], new_session=True)])
    again = [pgc.Decoder().decode_part(*each) for each in zip(parts, plan.parts, strict=True)]
    assert transactions(again) == transactions(changes)


@each_form
def test_a_new_session_sends_only_its_end(form: Messages) -> None:
    """Its Prepare was confirmed."""
    decoder = pgc.Decoder()
    decoder.decode(wire(form[:-1]))
    decoder.new_session()
    changes = decoder.decode(wire(form[-1:]))
    assert [each[5:] for each in transactions([changes])] == [("g", 0)]
    assert decoder.pending == []


def test_a_new_session_that_begins_with_its_prepare_has_to_be_declared() -> None:
    cut_off = transaction(T, insert(1, "1", "a", None), lsn=9)[:-1]
    decoder = pgc.Decoder()
    decoder.decode(wire(cut_off))
    with pytest.raises(pgc.DecodeError, match="Prepare of 'g' after its Begin Prepare"):
        decoder.decode(wire(prepare(10, "g")))
    decoder.new_session()
    decoder.decode(wire(prepare(10, "g")))
    assert decoder.pending == [10]


@pytest.mark.slow
def test_however_it_is_cut() -> None:
    stream: Any = Stream(wire(AMONG_OTHERS))
    everywhere = range(1, len(stream.messages))
    for cuts in ([], everywhere, *itertools.combinations(everywhere, 1)):
        check_batches(stream, cuts)
        check_batches(stream, cuts, atomic=False)
        check_parts(stream, cuts)
    for cuts in itertools.combinations(range(1, len(stream.messages), 2), 2):
        check_parts(stream, cuts)


def test_as_a_log(tmp_path: Path) -> None:
    """Each message is a part, and so is each transaction a range."""
    data = wire(AMONG_OTHERS)
    serial = pgc.Decoder().decode(data, np.zeros(len(data), np.uint64))
    with log.LogWriter(tmp_path, SOURCE, part_bytes=1) as writer:
        for each in data:
            append(writer, [each])
            writer.flush()
    assert log.verify(tmp_path).is_sound
    reader = log.Log(tmp_path)
    assert rows([list(reader.read())]) == rows([serial])
    lsns = serial.transactions.commit_lsn.tolist()
    for after, until in itertools.pairwise([0, *lsns]):
        found = rows([list(reader.read(after=after, until=until))])
        assert found == [row for row in rows([serial]) if row[0] == until]


@pytest.mark.parametrize("cut", [0, 3])
def test_a_prepare_inside_a_block_is_wrong_in_parts_too(cut: int) -> None:
    """A summary does not close the block that the Prepare comes in."""
    block = streamed(replace(T, xid=70), insert(1, "1", None, None, xid=70), xid=70)[:-1]
    data = wire([*block, *prepare(10, "g")])
    summaries = [pgc.summarise(data[:cut]), pgc.summarise(data[cut:])]
    with pytest.raises(pgc.DecodeError, match="Prepare of 'g' after its Begin Prepare"):
        pgc.plan(summaries)


@pytest.mark.slow
@each_major
@pytest.mark.since(15, "two_phase is pgoutput's")
def test_what_servers_send(pg: Database, tmp_path: Path) -> None:
    """Prepared and ended in one session, and in two."""
    pg.execute("CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pg.execute("CREATE PUBLICATION p FOR TABLE t")

    def capture() -> None:
        options = {"two_phase": True, "create_slot": True}
        capture_into(pg, tmp_path, **options).run(until_lsn=flush_lsn(pg))

    capture()
    for gid, between in itertools.product(["commit", "rollback"], [lambda: None, capture]):
        with pg.connect() as connection:
            cursor = connection.cursor()
            cursor.execute("BEGIN; SELECT * FROM t FOR UPDATE")
            cursor.execute(f"PREPARE TRANSACTION '{gid}'")
        between()
        pg.execute(f"{gid} PREPARED '{gid}'")
        capture()
    pg.execute("INSERT INTO t VALUES (2)")
    capture()

    sent = tags(messages(tmp_path)).removesuffix(b"BRIC")
    assert sent in (b"", b"KKrr", b"PKPKPrPr")  # the last minors send nothing
    assert log.verify(tmp_path).is_sound
    found = transactions(log.Log(tmp_path).changes())
    assert [each[5:] for each in found] == [("commit", 0)] * sent.count(b"K") + [(None, 1)]
    assert [row["k"] for row in decoded(tmp_path, "public.t")] == [2]

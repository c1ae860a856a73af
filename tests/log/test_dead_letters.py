"""Dead letters: the messages that a decoder leaves out, however a log is cut."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.errors import ErrorCode, TableError
from pgwire_codec.log.dead_letters import DEAD_LETTERS, letters_in
from pgwire_codec.options import DecoderOptions
from tests.log.test_compaction import sessions
from tests.support import corpus
from tests.support.bad_logs import Damaged, damaged, serial, with_damage
from tests.support.build import T, begin, column, insert, relation, streamed, transaction, wire
from tests.support.examples import in_turn
from tests.support.logs import SOURCE, append, commit_lsns, write
from tests.transactions.test_splits import DENSE, rows

SKIP = DecoderOptions(on_error="skip")

CAPTURES = [damaged(each) for each in DENSE if each.major == 18 and "binary" not in each.options]


def unplaced(letter: pgc.Rejected) -> tuple[Any, ...]:
    """A letter without the place in its error that depends on the calls of a decoder."""
    return astuple(replace(letter, error=letter.error.at(None)))


def written(messages: list[Any], folder: Path, **options: Any) -> log.Log:
    with log.LogWriter(folder, SOURCE, **options) as writer:
        append(writer, wire(messages))
    return log.Log(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capture", "max_bytes"), list(in_turn(CAPTURES, [(1,), (2000,), (1 << 24,)])), ids=str
)
def test_rows_and_letters_are_all_changes_for_every_partitioning(
    capture: Damaged, max_bytes: int, tmp_path: Path
) -> None:
    changes, expected = serial(capture)
    assert len(expected) > 2
    kinds = {each.error.code for each in expected.values()}
    assert {ErrorCode.TRUNCATED} < kinds
    count = len(capture.messages)
    for number, part_bytes in enumerate((1, 300, 1 << 24)):
        seals = [count // 3, count // 2] if number else []
        reader = write(capture, tmp_path / f"log{number}", seals, part_bytes=part_bytes)
        plan = reader.plan(on_error="skip", max_partition_bytes=max_bytes)
        found: dict[int, pgc.Rejected] = {}
        batches = []
        for partition in pickle.loads(pickle.dumps(plan.partitions)):
            letters: list[pgc.Rejected] = []
            batches += list(partition.decode(SKIP, letters))
            assert not found.keys() & {each.message_index for each in letters}
            found |= {each.message_index: each for each in letters}
        assert rows([batches]) == rows([changes])
        assert sorted(found) == sorted(expected)
        for ordinal, letter in found.items():
            assert unplaced(letter) == unplaced(expected[ordinal])
            assert letter.data == capture.messages[ordinal]


@pytest.mark.slow
@pytest.mark.parametrize("capture", list(in_turn(DENSE, [()], quick=corpus.is_newest)), ids=str)
def test_a_compaction_keeps_rows_and_letters(capture: corpus.Capture, tmp_path: Path) -> None:
    """Also those of sessions that broke off, which are in one partition then."""

    def found() -> tuple[Any, ...]:
        reader = log.Log(tmp_path)
        letters = [each for batch in log.dead_letters(reader) for each in batch.to_pylist()]
        return letters, rows([list(reader.read(on_error="skip"))])

    for messages in sessions(capture, 6):
        with log.LogWriter(tmp_path, SOURCE, part_bytes=500) as writer:
            append(writer, with_damage(messages))
    before = found()
    assert all(before)
    assert len(log.compact(tmp_path)) == 1
    assert len(log.Log(tmp_path).plan(on_error="skip").partitions) < 6
    assert found() == before


@pytest.mark.slow
@pytest.mark.parametrize("capture", CAPTURES, ids=str)
def test_consecutive_ranges_have_every_letter_once(capture: Damaged, tmp_path: Path) -> None:
    """Cut at commits, and beside them."""
    changes, expected = serial(capture)
    lsns = changes.transactions.commit_lsn.tolist()
    lsns = lsns[:: max(len(lsns) // 15, 1)]
    reader = write(capture, tmp_path, [len(capture.messages) // 2], part_bytes=300)
    for by in (-1, 0, 1):
        edges = [None, *(lsn + by for lsn in lsns), None]
        found: list[int] = []
        for after, until in itertools.pairwise(edges):
            for each in log.dead_letters(reader, None, after, until):
                found += each.column("ordinal").to_pylist()
        assert sorted(found) == sorted(expected)


def test_the_options_decide_what_is_a_letter(tmp_path: Path) -> None:
    price = column("price", "numeric", typmod=(10 << 16) + 2 + 4)
    table = relation(1, column("id", "int4", key=True), price)
    reader = written(
        transaction(table, insert(1, "1", "NaN"), insert(1, "x", "1.50"), lsn=100), tmp_path
    )
    [letters] = log.dead_letters(reader)
    assert letters.schema == DEAD_LETTERS
    first, second = letters.to_pylist()
    assert (first["ordinal"], second["ordinal"]) == (2, 3)
    assert (first["code"], second["code"]) == ("unrepresentable", "bad_value")
    assert (first["xid"], first["commit_lsn"], first["after_lsn"]) == (7, 100, 99)
    assert first["commit_time"].isoformat() == "2000-01-01T00:00:00+00:00"
    assert (first["table"], first["relation_oid"]) == ("public.t", 1)
    assert first["error"].startswith(
        "unrepresentable: byte 19 (column price (numeric), value 'NaN'"
    )
    assert first["hint"] is not None
    [letters] = log.dead_letters(tmp_path, "public.*", unrepresentable="null")
    assert letters.column("ordinal").to_pylist() == [3]
    assert list(log.dead_letters(reader, types="text")) == []


def test_letters_of_some_tables(tmp_path: Path) -> None:
    other = relation(2, *T.columns, name="other")
    cut = pgc.encode_message(insert(2, "1", "a", None))[:-1]
    messages = transaction(
        T, other, insert(1, "x", "a", None), cut, insert(2, "y", "a", None), b"?"
    )
    reader = written([*messages, b"", *transaction(insert(1, "1", None, None), lsn=200)], tmp_path)

    def found(*tables: str) -> list[tuple[int, str | None]]:
        letters = [
            row for each in log.dead_letters(reader, tables or None) for row in each.to_pylist()
        ]
        return [(row["ordinal"], row["table"]) for row in letters]

    assert found() == [
        (3, "public.t"), (4, "public.other"), (5, "public.other"), (6, None), (8, None),
    ]  # fmt: skip
    assert found("public.other") == [(4, "public.other"), (5, "public.other")]
    assert found("public.t", "public.o*") == found()[:3]
    with pytest.raises(TableError, match=r"no table 'public\.none'"):
        found("public.none")


def test_a_streamed_transaction(tmp_path: Path) -> None:
    """The commit of a damaged message is not known; what is rolled back has no bad values."""
    streamed_table = relation(1, *T.columns, xid=5)
    cut = pgc.encode_message(insert(1, "1", "a", None, xid=5))[:-1]
    bad = insert(1, "x", "a", None, xid=5)
    messages = [
        *transaction(T, insert(1, "1", None, None), lsn=50),
        *streamed(streamed_table, bad, cut, xid=5),
        *streamed(insert(1, "y", "a", None, xid=6), xid=5, first=False),
        pgc.StreamAbort(5, 6, None, None),
        pgc.StreamCommit(5, 0, 100, 110, 0),
        *streamed(relation(1, *T.columns, xid=8), insert(1, "z", None, None, xid=8), xid=8),
        pgc.StreamAbort(8, 8, None, None),
        begin(lsn=200), insert(1, "y", None, None),
    ]  # fmt: skip
    reader = written(messages, tmp_path, part_bytes=1)
    [*found] = log.dead_letters(reader)
    letters = [row for each in found for row in each.to_pylist()]
    names = ("ordinal", "xid", "commit_lsn", "after_lsn")
    places = sorted(tuple(row[name] for name in names) for row in letters)
    assert places == [(6, 5, 100, 99), (7, 5, None, 50)]
    assert {row["relation_oid"] for row in letters} == {1}
    assert [len(each) for each in log.dead_letters(reader, None, 50, 99)] == [1]


def test_a_message_after_the_last_commit_of_a_part(tmp_path: Path) -> None:
    """It belongs to the range of the next commit, also if that is in another part."""
    messages = [*transaction(T, insert(1, "1", None, None), lsn=100), b"?"]
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire(messages))
        writer.seal()
        reader = log.Log(tmp_path)
        assert list(log.dead_letters(reader)) == []
        append(writer, wire(transaction(insert(1, "2", None, None), lsn=200)))
    reader.refresh()
    assert list(log.dead_letters(reader, until=100)) == []
    for table in (None, "public.t"):
        plan = reader.plan(100, 200, table=table, on_error="skip")
        found = [letter for each in plan.partitions for letter in letters_in(each, SKIP, None)]
        assert [each.message_index for each in found] == [4]


def test_a_transaction_that_comes_again(tmp_path: Path) -> None:
    cut = pgc.encode_message(insert(1, "1", "a", None))[:-1]
    messages = transaction(T, cut, insert(1, "x", None, None), lsn=100)
    more = transaction(insert(1, "2", None, None), lsn=200)
    reader = written([*messages, *messages, *more], tmp_path)
    assert [each.column("ordinal").to_pylist() for each in log.dead_letters(reader)] == [[2, 3]]


def test_the_newest_capture_is_whole() -> None:
    """Captures of a server have no dead letters that their decoder raises no error for."""
    capture = corpus.capture("dml.pg18.v1-text")
    assert serial(capture)[1] == {}
    assert commit_lsns(capture)

"""Reading of a log while it grows by small flushes costs what is new."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.errors import LogError
from pgwire_codec.log import ipc_file, part_joining
from pgwire_codec.log.local_store import LocalStore
from pgwire_codec.log.state import StateTracker
from pgwire_codec.log.table_counts import TableCounter
from tests.support import corpus
from tests.support.build import T, column, insert, relation, streamed, transaction, wire
from tests.support.examples import examples
from tests.support.logs import SOURCE, append
from tests.transactions.test_splits import rows, serial

CAPTURES = [each for each in corpus.oldest_and_newest() if each.scenario in ("immediate", "dml")]


class Counts:
    """Record batches read, and their messages."""

    def __init__(self) -> None:
        self.batches = self.messages = 0

    def take(self) -> tuple[int, int]:
        found = self.batches, self.messages
        self.batches = self.messages = 0
        return found


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    found = Counts()
    read = ipc_file._stored_batches

    def count(*arguments: Any) -> Any:
        for batch in read(*arguments):
            found.batches += 1
            found.messages += len(batch.records)
            yield batch

    monkeypatch.setattr(ipc_file, "_stored_batches", count)
    return found


@pytest.fixture(autouse=True)
def volatile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do without the disk: thousands of flushes would wait for it."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)


def one_row(number: int) -> list[bytes]:
    return wire(transaction(insert(1, str(number), "a", None), lsn=100 + number))


MESSAGES = len(one_row(0))


def decode(plan: log.LogPlan) -> list[int]:
    batches = [batch for each in plan.partitions for batch in each.decode()]
    return [lsn for batch in batches for lsn in batch.commit_lsn.tolist()]


def test_a_turn_reads_what_is_new(tmp_path: Path, counts: Counts) -> None:
    flushes = 2_000
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire([T]))
        writer.flush()
        reader, slow = log.Log(tmp_path), log.Log(tmp_path)
        end, slow_end = reader.end, slow.end
        found: list[int] = []
        counts.take()
        for number in range(1, flushes + 1):
            append(writer, one_row(number))
            writer.flush()
            if number % 10 == 0:
                reader.refresh()
                after, end = end, reader.end
                found += decode(reader.plan(after, end))
                batches, messages = counts.take()
                assert batches <= 2 * 11  # described once, and decoded once
                assert messages <= 2 * (10 * MESSAGES + 1)
                assert len(reader.segment(0).parts) <= 40
            if number % 400 == 0:  # another reader, at its own pace
                slow.refresh()
                after, slow_end = slow_end, slow.end
                assert len(decode(slow.plan(after, slow_end))) == 400
                assert counts.take()[0] <= 2 * 401
        assert found == list(range(101, 101 + flushes))
        # From any position on, a reader reads little more than what is new to it.
        for new in (1, 7, 50, 333, 1_900):
            assert len(decode(reader.plan(100 + flushes - new, end))) == new
            assert counts.take()[0] <= 1.5 * new + 10


def test_a_segment_that_was_sealed_is_not_read_again(tmp_path: Path, counts: Counts) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire([T]))
        writer.flush()
        reader = log.Log(tmp_path)
        end = reader.end
        for number in range(1, 121):
            append(writer, one_row(number))
            writer.flush()
            if number % 40 == 35:
                writer.seal()  # between two turns
            if number % 10 == 0:
                reader.refresh()
                after, end = end, reader.end
                assert len(decode(reader.plan(after, end))) == 10
                assert counts.take()[0] <= 2 * 11
        assert [len(segment.parts) > 1 for segment in reader.segments] == [False, True, True, False]
        assert sum(map(len, reader.read())) == 120


def test_an_open_transaction_is_read_with_what_is_new(tmp_path: Path, counts: Counts) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire([T, *streamed(insert(1, "0", "a", None, xid=7), xid=7)]))
        writer.flush()
        reader = log.Log(tmp_path)
        assert reader.plan().partitions == []
        end = reader.end
        for number in range(1, 200):
            append(writer, one_row(number))
            writer.flush()
            reader.refresh()
            after, end = end, reader.end
            assert decode(reader.plan(after, end)) == [100 + number]
        append(writer, wire([pgc.StreamCommit(7, 0, 900, 901, 0)]))
        writer.flush()
        reader.refresh()
        counts.take()
        assert decode(reader.plan(end, reader.end)) == [900]
        assert counts.take()[0] <= 2 + 100  # described; and the parts with its beginning and end


@pytest.mark.slow
@examples(20, 300)
def test_joined_parts_have_the_rows_of_a_serial_decode(examples: int) -> None:
    """Flushes, readings and positions are random, as are the sizes of parts."""

    @settings(max_examples=examples)
    @given(
        st.sampled_from(CAPTURES),
        st.randoms(use_true_random=False),
        st.sampled_from([3, 40, 400]),
        st.sampled_from([0.1, 0.5, 4.0]),
        st.booleans(),
    )
    def check(capture: Any, random: Random, longest: int, share: float, seals: bool) -> None:
        with (
            tempfile.TemporaryDirectory() as directory,
            pytest.MonkeyPatch.context() as patch,
            log.LogWriter(directory, SOURCE) as writer,
        ):
            patch.setattr(part_joining, "_SHARE", share)
            readers = [log.Log(directory) for _ in range(2)]
            ends = [reader.end for reader in readers]
            found: list[list[Any]] = [[], []]
            start = 0
            while start < len(capture.messages):
                stop = start + random.randint(1, longest)
                append(writer, capture.messages[start:stop], capture.lsns[start:stop])
                start = stop
                writer.flush()
                if seals and random.random() < 0.05:
                    writer.seal()
                for number, reader in enumerate(readers):
                    if random.random() < (0.8, 0.1)[number] or start >= len(capture.messages):
                        reader.refresh()
                        after, ends[number] = ends[number], reader.end
                        plan = reader.plan(after, ends[number])
                        found[number] += changes(plan)
            expected = serial(capture)[0]
            for reader, changed in zip(readers, found, strict=True):
                assert changed == expected
                lsns = sorted({row[0] for row in expected})
                lsn = random.choice(lsns)
                after_lsn = [row for row in expected if row[0] > lsn]
                assert changes(reader.plan(lsn)) == after_lsn
                assert rows(reader.changes()) == expected
                fresh = log.Log(directory)
                ours, theirs = (
                    {oid: version for oid, (_, version) in each.relations_at(lsn).relations.items()}
                    for each in (reader, fresh)
                )
                assert ours == theirs

    check()


def changes(plan: log.LogPlan) -> list[Any]:
    return rows([[batch for each in plan.partitions for batch in each.decode()]])


def test_damage_is_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with log.LogWriter(tmp_path, SOURCE, compression=None) as writer, opened(tmp_path) as file:
        append(writer, wire([T]))
        writer.flush()
        reader = log.Log(tmp_path)
        for number in range(1, 4):
            append(writer, one_row(number))
            writer.flush()
            reader.refresh()
            assert reader.segments
        first, *_ = (part.extent for part in reader.segment(0).parts)
        file(first.stop + 1)

        def read_on() -> None:
            for number in range(4, 100):
                append(writer, one_row(number))
                writer.flush()
                reader.refresh()
                assert reader.segments

        with pytest.raises(LogError, match="checksum of its bytes"):
            read_on()


@contextmanager
def opened(directory: Path) -> Iterator[Any]:
    """Yield a function that changes a byte of the only segment."""

    def change(offset: int) -> None:
        (path,) = directory.glob("*.arrow")
        with path.open("r+b") as file:
            file.seek(offset)
            byte = file.read(1)
            file.seek(offset)
            file.write(bytes([byte[0] ^ 1]))

    yield change


def test_a_refresh_lists_the_files_when_segments_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[int] = []
    names = LocalStore.names

    def list_names(store: LocalStore) -> list[str]:
        found = names(store)
        listed.append(len(found))
        return found

    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire([T]))
        writer.flush()
        reader = log.Log(tmp_path)
        monkeypatch.setattr(LocalStore, "names", list_names)
        for number in range(20):
            append(writer, one_row(number))
            writer.flush()
            reader.refresh()
            assert reader.end.lsn == 100 + number
        assert listed == []
        writer.seal()
        reader.refresh()
        assert (len(listed), len(reader)) == (1, 1)
        append(writer, one_row(20))
        writer.flush()
        reader.refresh()
        assert (len(listed), len(reader)) == (2, 2)
        writer.seal()
        reader.refresh()
        listed.clear()
        log.prune(tmp_path, 119)
        reader.refresh()
        assert len(reader) == 1
        reader.refresh()
    assert decode(reader.plan()) == [120]


def test_many_relations_do_not_matter_to_a_turn(tmp_path: Path) -> None:
    """A turn applies the events of new parts, and returns what it knows of other relations."""
    tables = [relation(oid, column("id", "int4", key=True), name=f"t{oid}") for oid in range(2, 99)]
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire([T, *transaction(*tables, lsn=1)]))
        writer.flush()
        reader = log.Log(tmp_path)
        reader.plan()
        versions, scope = reader.versions, reader.relations_at()
        assert len(versions) == len(scope.relations) == 98
        applied: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            apply = StateTracker.apply

            def count(tracker: StateTracker, summary: Any, ordinal: int) -> None:
                applied.append(len(summary.events(False)))
                apply(tracker, summary, ordinal)

            patch.setattr(StateTracker, "apply", count)
            end = reader.end
            for number in range(1, 30):
                append(writer, one_row(number))
                writer.flush()
                reader.refresh()
                after, end = end, reader.end
                applied.clear()
                assert reader.changed_relations(after, end) == {1}
                assert decode(reader.plan(after, end, relation_oid=1)) == [100 + number]
                assert number == 1 or sum(applied) <= 12
                assert reader.relations_at(end.lsn) is reader.relations_at(after.lsn)
                assert reader.versions is versions
                assert len(reader.versions_of(1)) == 1


def test_an_error_while_reading_leaves_nothing_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire([T]))
        writer.flush()
        reader = log.Log(tmp_path)
        for number in range(1, 31):
            append(writer, one_row(number))
            writer.flush()
            if number == 25:
                writer.seal()
            reader.refresh()
            if number % 5 == 0:
                with monkeypatch.context() as patch:
                    patch.setattr(TableCounter, "add", raise_memory_error)
                    with pytest.raises(MemoryError):
                        reader.plan()
            assert decode(reader.plan()) == list(range(101, 101 + number))


def raise_memory_error(*arguments: Any) -> None:
    raise MemoryError

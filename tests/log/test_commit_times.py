"""A read of commit times has the transactions of these times, whatever the order of the times."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.errors import OptionError
from pgwire_codec.log import index_writer
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS
from tests.log.test_many_tables import table
from tests.log.test_tables import oids
from tests.support import corpus
from tests.support.build import insert, transaction, wire
from tests.support.examples import examples
from tests.support.logs import SOURCE, append, commit_lsns, memory, write
from tests.transactions.test_splits import DENSE, rows

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(autouse=True, scope="module")
def small_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_writer, "INDEXED_SEGMENTS", 2)
        yield


def with_times(capture: corpus.Capture, times: list[int]) -> Any:
    """Return a capture whose transactions committed at other times (wire times), in turn."""
    at = {lsn: times[i % len(times)] for i, lsn in enumerate(commit_lsns(capture))}
    messages = []
    for data in capture.messages:
        if data[:1] in (b"B", b"C", b"c", b"K"):
            message: Any = pgc.decode_message(data)
            lsn = message.final_lsn if data[:1] == b"B" else message.commit_lsn
            data = pgc.encode_message(replace(message, commit_time=at[lsn]))
        messages.append(data)
    return SimpleNamespace(messages=messages, lsns=capture.lsns)


def utc(time: int) -> np.datetime64:
    """Return a wire time."""
    return np.datetime64(time + EPOCH_MICROSECONDS, "us")


def within(found: list[Any], first: int | None, last: int | None) -> list[Any]:
    """Return the rows of some commit times."""
    lowest = -(2**63) if first is None else int(utc(first).astype(int))
    highest = 2**63 if last is None else int(utc(last).astype(int))
    return [row for row in found if lowest <= _time(row) <= highest]


def _time(row: Any) -> int:
    since: timedelta = row[3] - datetime(1970, 1, 1)
    return since // timedelta(microseconds=1)


def read(reader: log.Log, **options: Any) -> list[Any]:
    return rows([list(reader.read(**options))])


@pytest.mark.slow
@examples(10, 60)
def test_times_in_any_order(examples: int) -> None:
    @settings(max_examples=examples)
    @given(data=st.data())
    def check_one(data: st.DataObject) -> None:
        few = st.integers(0, 9)
        capture = data.draw(st.sampled_from(DENSE))
        changed = with_times(capture, data.draw(st.lists(few, min_size=1, max_size=30)))
        count = len(changed.messages)
        seals = data.draw(st.lists(st.integers(1, count - 1), max_size=9, unique=True).map(sorted))
        part_bytes = data.draw(st.sampled_from([1, 300, 5000]))
        reader = write(changed, "log", seals, part_bytes=part_bytes, filesystem=memory())
        after, until = sorted(
            data.draw(st.tuples(*[st.sampled_from([None, *commit_lsns(capture)])] * 2)),
            key=lambda lsn: lsn or 0,
        )
        first, last = sorted(data.draw(st.tuples(few, few)))
        limits = {"starting_time": utc(first), "ending_time": utc(last)}
        ranges: list[tuple[dict[str, Any], int | None, int | None]] = [
            (limits, first, last),
            ({"starting_time": utc(first)}, first, None),
            ({"ending_time": utc(last)}, None, last),
        ]
        whole = read(reader, after=after, until=until)
        for options, lowest, highest in ranges:
            found = read(reader, after=after, until=until, **options)
            assert found == within(whole, lowest, highest)
        oid = data.draw(st.sampled_from(oids(capture)))
        plan = reader.plan(after, until, relation_oid=oid, **limits)
        batches = [batch for each in plan.partitions for batch in each.decode()]
        found = rows([[batch for batch in batches if batch.relation.oid == oid]])
        batches = [batch for batch in reader.read(None, after, until) if batch.relation.oid == oid]
        assert found == within(rows([batches]), first, last)
        assert log.verify("log", filesystem=reader._filesystem).damage == ()

    check_one()


def days(directory: Path, times: list[int]) -> log.Log:
    """Write a log with a transaction a segment, of table 1 and 2 in turn, on these days."""
    with log.LogWriter(directory, SOURCE) as writer:
        for number, day in enumerate(times, 1):
            changes = [table(number % 2), insert(number % 2, str(number), "a")]
            time = day * 86_400_000_000 - EPOCH_MICROSECONDS
            append(writer, wire(transaction(*changes, lsn=100 * number, time=time)))
            writer.seal()
    return log.Log(directory)


def keys(reader: log.Log, **options: Any) -> list[str]:
    return [key for batch in reader.read(**options) for key in batch.new["id"].to_pylist()]


def day(number: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(days=number)


def test_segments_of_other_times_are_not_read(tmp_path: Path) -> None:
    reader = days(tmp_path, [5, 6, 4, 7, 8, 5, 9, 9, 9])
    for sidecar in tmp_path.glob("0*.json"):
        if int(sidecar.stem) // 4 not in (0, 2, 5, 8):  # the last has the end
            sidecar.write_bytes(b"damaged")
    reader = log.Log(tmp_path)
    options = {"starting_time": day(4), "ending_time": day(5)}
    assert [each.first_ordinal for each in reader.plan(**options).partitions] == [0, 8, 20]
    assert keys(reader, **options) == [1, 3, 6]
    assert keys(reader, **options, table="public.table_1") == [1, 3]
    assert keys(reader, **options, after=100, until=500) == [3]
    assert keys(reader, ending_time=np.datetime64("1970-01-05")) == [3]
    assert keys(reader, starting_time=day(3), ending_time=day(3)) == []


def test_bounds_are_included_to_the_microsecond(tmp_path: Path) -> None:
    reader = days(tmp_path, [5, 6, 7])
    least = timedelta(microseconds=1)
    assert keys(reader, starting_time=day(6)) == [2, 3]
    assert keys(reader, starting_time=day(6) + least) == [3]
    assert keys(reader, ending_time=day(6)) == [1, 2]
    assert keys(reader, ending_time=day(6) - least) == [1]
    east = day(6).astimezone(timezone(timedelta(hours=9)))
    assert keys(reader, starting_time=east, ending_time=east) == [2]


def test_parts_of_other_times_are_not_read(tmp_path: Path) -> None:
    sixth = {"starting_time": day(6), "ending_time": day(6)}
    with log.LogWriter(tmp_path, SOURCE, part_bytes=1) as writer:
        for number, each in enumerate([5, 6, 4, 7], 1):
            changes = [table(1), insert(1, str(number), "a")]
            time = each * 86_400_000_000 - EPOCH_MICROSECONDS
            append(writer, wire(transaction(*changes, lsn=100 * number, time=time)))
        writer.flush()
        assert keys(log.Log(tmp_path), **sixth) == [2]  # of a segment that grows
        assert log.Log(tmp_path).plan(starting_time=day(8)).partitions == []
    reader = log.Log(tmp_path)
    assert keys(reader, **sixth) == [2]
    # From the Begin of the second transaction to before the Commit of the third.
    [partition] = reader.plan(**sixth).partitions
    assert (partition.first_ordinal, partition.messages) == (4, 7)
    [segment] = reader.segments
    assert segment.commit_times == (4 * 86_400_000_000, 7 * 86_400_000_000)
    assert [part.commit_times for part in segment.parts[:3]] == [None, None, None]


@pytest.mark.parametrize("version", [2, 3])
def test_logs_without_times(version: int, tmp_path: Path) -> None:
    old = tmp_path / "log"
    shutil.copytree(DATA / f"log-format-{version}", old)
    reader = log.Log(old)
    whole = read(reader)
    times = sorted({_time(row) for row in whole})
    first, last = times[len(times) // 3], times[2 * len(times) // 3]
    limits = {
        "starting_time": np.datetime64(first, "us"),
        "ending_time": np.datetime64(last, "us"),
    }
    expected = [row for row in whole if first <= _time(row) <= last]
    assert 0 < len(expected) < len(whole)
    assert read(reader, **limits) == expected
    with log.LogWriter(old, SOURCE) as writer:
        append(writer, wire(transaction(table(1), insert(1, "1", "a"), lsn=2**40, time=0)))
    assert read(log.Log(old), **limits) == expected
    assert read(log.Log(old), ending_time=utc(0), starting_time=utc(0))
    assert log.verify(old).damage == ()


@pytest.mark.parametrize(
    "wrong", ["2026-01-01", 5, datetime(2026, 1, 1), np.datetime64("NaT"), day(1).date()]
)
def test_a_value_that_is_not_a_time(wrong: Any, tmp_path: Path) -> None:
    reader = days(tmp_path, [5])
    for name in ("starting_time", "ending_time"):
        for ask in (reader.plan, lambda **options: list(reader.read(**options))):
            with pytest.raises(TypeError, match=f"{name} must be a datetime with a time zone"):
                ask(**{name: wrong})


def test_an_end_before_the_start(tmp_path: Path) -> None:
    reader = days(tmp_path, [5])
    with pytest.raises(OptionError, match=r"ending_time 1970-01-05 .* is before starting_time"):
        reader.plan(starting_time=day(5), ending_time=day(4))

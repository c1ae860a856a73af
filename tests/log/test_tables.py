"""A read of some tables has their changes, all of them, and skips parts that have none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.log import index_writer
from tests.log.test_many_tables import table
from tests.support import corpus
from tests.support.build import insert, transaction, truncate, wire
from tests.support.examples import examples
from tests.support.logs import SOURCE, append, commit_lsns, memory, write
from tests.transactions.test_splits import DENSE, rows, serial


@pytest.fixture(autouse=True, scope="module")
def small_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_writer, "INDEXED_SEGMENTS", 2)
        yield


def oids(capture: corpus.Capture) -> list[int]:
    changes = pgc.Decoder().decode(capture.messages)
    return sorted({batch.relation.oid for batch in changes})


def of(reader: log.Log, oid: int, **options: Any) -> list[Any]:
    return rows([list(reader.read(relation_oid=oid, **options))])


def filtered(reader: log.Log, oid: int, **options: Any) -> list[Any]:
    """Return the changes of a relation among all of a range."""
    plan = reader.plan(**options)
    batches = [batch for each in plan.partitions for batch in each.decode()]
    return rows([[batch for batch in batches if batch.relation.oid == oid]])


@pytest.mark.slow
@examples(5, 40)
def test_the_rows_of_each_table(examples: int) -> None:
    @settings(max_examples=examples)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        capture = data.draw(st.sampled_from(DENSE))
        count = len(capture.messages)
        seals = data.draw(st.lists(st.integers(1, count - 1), max_size=9, unique=True).map(sorted))
        part_bytes = data.draw(st.sampled_from([1, 300, 5000]))
        reader = write(capture, "log", seals, part_bytes=part_bytes, filesystem=memory())
        lsns = st.sampled_from(commit_lsns(capture))
        bounds = sorted(data.draw(st.lists(lsns, max_size=3)))
        known = reader.relations_at().relations
        for oid in oids(capture):
            if oid not in known:
                continue
            found = []
            for after, until in itertools.pairwise([None, *bounds, None]):
                plan = reader.plan(after, until, relation_oid=oid)
                each = [batch for partition in plan.partitions for batch in partition.decode()]
                wanted = [batch for batch in each if batch.relation.oid == oid]
                assert {batch.version for batch in wanted} <= set(plan.versions)
                part = rows([wanted])
                assert part == filtered(reader, oid, after=after, until=until)
                found += part
            assert found == of(reader, oid)
        assert len(reader) == len(seals) + 1

    check()


def test_versions_that_an_open_transaction_declared_before() -> None:
    capture = corpus.capture("immediate.pg16.v2-stream")
    reader = write(capture, "log", [347, 354], part_bytes=1, filesystem=memory())
    plan = reader.plan(151055824, relation_oid=19400)
    batches = [batch for each in plan.partitions for batch in each.decode()]
    found = {batch.version for batch in batches if batch.relation.oid == 19400}
    assert found
    assert found <= set(plan.versions)


def test_several_relations_by_their_oids() -> None:
    capture = DENSE[0]
    reader = write(capture, "log", filesystem=memory(), part_bytes=300)
    several = oids(capture)[:2]
    plan = reader.plan(relation_oid=several)
    batches = [batch for each in plan.partitions for batch in each.decode()]
    for oid in several:
        found = rows([[batch for batch in batches if batch.relation.oid == oid]])
        assert found == filtered(reader, oid)
    assert reader.plan(relation_oid=[]).partitions == []
    with pytest.raises(OptionError, match="table and relation_oid exclude one another"):
        reader.plan(table="public.t", relation_oid=several)


def test_an_unfinished_segment_and_transactions_of_several(tmp_path: Path) -> None:
    """A prepared transaction is in a segment long before that of its commit."""
    prepared = [pgc.BeginPrepare(10, 11, 0, 5, "g"), table(1), insert(1, "1", "a")]
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire([*prepared, pgc.Prepare(0, 10, 11, 0, 5, "g")]))
        writer.seal()
        for lsn in range(100, 700, 100):
            changes = [table(2), insert(2, "2", "b")]
            append(writer, wire(transaction(*changes, lsn=lsn)))
            writer.seal()
        append(writer, wire([pgc.CommitPrepared(0, 700, 701, 0, 5, "g")]))
        append(writer, wire(transaction(truncate(1), lsn=800)))
        writer.flush()
        reader = log.Log(tmp_path)
        for options in ({}, {"after": 600}, {"after": 600, "until": 700}, {"until": 650}):
            assert of(reader, 1, **options) == filtered(reader, 1, **options)
        assert len(of(reader, 1)) == 2
        assert [each.segment for each in reader.plan(relation_oid=1).partitions] == [
            f"{0:020}",
            reader.segments[-1].name,
        ]
        assert reader.plan(relation_oid=3).partitions == []


def test_only_parts_with_changes_are_planned(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        for number in range(1, 21):
            changes = [table(number % 5), insert(number % 5, str(number), "a")]
            append(writer, wire(transaction(*changes, lsn=100 * number)))
            writer.seal()
    reader = log.Log(tmp_path)
    assert [each.first_ordinal for each in reader.plan(table="public.table_3").partitions] == [
        8, 28, 48, 68
    ]  # fmt: skip
    for sidecar in tmp_path.glob("0*.json"):
        if int(sidecar.stem) not in (8, 28, 48, 68, 76):  # the last has the end
            sidecar.write_bytes(b"damaged")  # they are not read
    found = log.Log(tmp_path).read("public.table_3", after=300)
    assert [key for batch in found for key in batch.new["id"].to_pylist()] == [8, 13, 18]


def test_names_and_patterns(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        for number in range(1, 13):
            changes = [table(number), insert(number, str(number), "a")]
            append(writer, wire(transaction(*changes, lsn=100 * number)))
    reader = log.Log(tmp_path)

    def read(names: str | list[str], **options: Any) -> list[int]:
        return [batch.relation.oid for batch in reader.read(names, **options)]

    assert read("public.table_1") == [1]
    assert read("public.table_1*") == [1, 10, 11, 12]
    assert read(["public.table_2", "public.table_1?"]) == [2, 10, 11, 12]
    assert read("public.*") == list(range(1, 13))
    assert read("public.*", until=300) == [1, 2, 3]
    for names in ("private.*", ["public.table_1", "nothing"]):
        with pytest.raises(TableError, match="the messages have no table"):
            read(names)


def test_messages_that_do_not_decode(tmp_path: Path) -> None:
    """A read of another table reports them, as a read of all does."""
    with log.LogWriter(tmp_path, SOURCE) as writer:
        for number in (1, 2, 3):
            append(writer, wire(transaction(table(number), insert(number, "1", "a"), lsn=number)))
            if number == 2:
                append(writer, [b"?"])
            writer.seal()
    with pytest.raises(pgc.DecodeError, match="unknown_tag"):
        list(log.Log(tmp_path).read("public.table_3"))
    found = log.Log(tmp_path).read("public.table_3", on_error="skip")
    assert [batch.relation.oid for batch in found] == [3]


@pytest.mark.parametrize("capture", DENSE[:3], ids=str)
def test_all_tables_are_everything(capture: corpus.Capture, tmp_path: Path) -> None:
    reader = write(capture, tmp_path, [len(capture.messages) // 2], part_bytes=300)
    everything = set(reader.relations_at().relations)
    found = [row for oid in everything for row in of(reader, oid)]
    assert sorted(found, key=lambda row: row[:3]) == sorted(
        serial(capture)[0], key=lambda row: row[:3]
    )

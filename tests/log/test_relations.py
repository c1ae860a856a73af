"""A name is not a table: which relation has it at a commit, however the log is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.transactions.carry import Scope
from tests.support import corpus
from tests.support.build import column, insert, relation, transaction, truncate, wire
from tests.support.examples import examples, in_turn
from tests.support.logs import SOURCE, append, memory, write
from tests.transactions.test_splits import DENSE


def table(oid: int, name: str, *, namespace: str = "public", xid: int | None = None) -> Any:
    return relation(oid, column("id", "int4", key=True), name=name, namespace=namespace, xid=xid)


def held(scope: Scope) -> tuple[dict[int, Any], dict[str, int]]:
    """Return the contents of a scope: the version of each relation, and the owner of each name."""
    versions = {oid: version for oid, (_, version) in scope.relations.items()}
    return versions, {name: scope.named(name) for name in scope.names}


def serial(messages: list[bytes]) -> dict[int, Any]:
    """Return the scope after each commit, by its LSN, of one decoder of all messages."""
    decoder, found = pgc.Decoder(), {}
    for message in messages:
        for lsn in decoder.decode([message]).transactions.commit_lsn.tolist():
            found[lsn] = held(decoder.carry.scope)
    return found


def check(reader: log.Log, messages: list[bytes]) -> None:
    expected = serial(messages)
    before: Any = ({}, {})
    for lsn, wanted in expected.items():
        assert held(reader.relations_at(lsn - 1)) == before
        assert held(reader.relations_at(lsn)) == wanted
        before = wanted
    assert held(reader.relations_at(2**63)) == before
    assert held(reader.relations_at()) == before


@pytest.mark.parametrize("capture", list(in_turn(DENSE, [()], quick=corpus.is_newest)), ids=str)
def test_captures(capture: corpus.Capture) -> None:
    count = len(capture.messages)
    reader = write(capture, "log", [count // 4, count // 2], part_bytes=2000, filesystem=memory())
    check(reader, capture.messages)


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """Transactions of relations that take names from one another, in each way to send them."""
    messages: list[Any] = []
    lsn = 100
    for number in range(draw(st.integers(1, 12))):
        lsn += 10
        told = [
            (draw(st.integers(1, 3)), draw(st.sampled_from(["r", "s"])))
            for _ in range(draw(st.integers(0, 2)))
        ]
        kind = draw(st.sampled_from(["plain", "plain", "plain", "streamed", "prepared", "aborted"]))
        xid = 10 + number
        if kind in ("streamed", "aborted"):
            messages.append(pgc.StreamStart(xid, True))
            for oid, name in told:
                messages += [table(oid, name, xid=xid), insert(oid, "1", xid=xid)]
            messages.append(pgc.StreamStop())
            if kind == "aborted":
                messages.append(pgc.StreamAbort(xid, xid, None, None))
            else:
                messages.append(pgc.StreamCommit(xid, 0, lsn, lsn + 1, 0))
            continue
        changes = [each for oid, name in told for each in (table(oid, name), insert(oid, "1"))]
        if kind == "prepared":
            messages.append(pgc.BeginPrepare(lsn, lsn + 1, 0, xid, str(xid)))
            messages += [*changes, pgc.Prepare(0, lsn, lsn + 1, 0, xid, str(xid))]
            if draw(st.booleans()):
                lsn += 5
                messages.append(pgc.CommitPrepared(0, lsn, lsn + 1, 0, xid, str(xid)))
        else:
            messages += transaction(*changes, lsn=lsn)
    return wire(messages)


@examples(50, 300)
def test_histories(examples: int) -> None:
    @settings(max_examples=examples)
    @given(messages=histories(), data=st.data())
    def check_one(messages: list[bytes], data: st.DataObject) -> None:
        cuts = sorted(data.draw(st.sets(st.integers(0, len(messages)), max_size=3)))
        filesystem = memory()
        part_bytes = data.draw(st.sampled_from([1, 150, 10_000]))
        earlier: dict[int, Any] = {}
        with log.LogWriter("log", SOURCE, part_bytes=part_bytes, filesystem=filesystem) as writer:
            for start, stop in zip([0, *cuts], [*cuts, len(messages)], strict=True):
                append(writer, messages[start:stop])
                writer.flush()
                reader = log.Log("log", filesystem=filesystem)
                check(reader, messages[:stop])
                # The answer for an LSN is the same when the log has grown.
                for lsn, found in earlier.items():
                    assert held(reader.relations_at(lsn)) == found
                end = reader.end.lsn
                earlier[end] = held(reader.relations_at(end))

    check_one()


def test_a_growing_part(tmp_path: Path) -> None:
    """The part that an LSN is in grows, and more plain transactions join its last event."""
    with log.LogWriter(tmp_path, SOURCE) as writer:
        messages: list[bytes] = []
        answers = {}
        for number in range(30):
            told = [table(1 + number % 3, "rst"[number % 2])] if number % 4 == 0 else []
            new = wire(transaction(*told, insert(1, "1"), lsn=100 + number))
            append(writer, new)
            writer.flush()
            messages += new
            reader = log.Log(tmp_path)
            answers[100 + number] = held(reader.relations_at())
            assert {lsn: held(reader.relations_at(lsn)) for lsn in answers} == answers
        check(log.Log(tmp_path), messages)


def keys(reader: log.Log, name: str | None = None, **options: Any) -> list[str]:
    batches = reader.read(name, **options)
    return [key for batch in batches for key in batch.new["id"].to_pylist() if key is not None]


def write_transactions(folder: Path, *transactions: Any) -> log.Log:
    with log.LogWriter(folder, SOURCE) as writer:
        for number, changes in enumerate(transactions):
            append(writer, wire(transaction(*changes, lsn=100 * (number + 1))))
    return log.Log(folder)


def test_drop_and_create(tmp_path: Path) -> None:
    reader = write_transactions(
        tmp_path,
        [table(1, "t"), insert(1, "1"), insert(1, "2")],
        [table(2, "t"), insert(2, "3")],
    )
    assert keys(reader, "public.t") == [3]
    assert keys(reader, "public.t", until=100) == [1, 2]
    assert keys(reader, relation_oid=1) == [1, 2]
    assert reader.relations == (
        log.LoggedRelation(2, "public.t", ("public.t",), True),
        log.LoggedRelation(1, "public.t", ("public.t",), False),
    )


def test_a_swap(tmp_path: Path) -> None:
    reader = write_transactions(
        tmp_path,
        [table(1, "r"), insert(1, "1")],
        [table(2, "r_new"), insert(2, "2")],
        [table(1, "r_old"), insert(1, "3"), table(2, "r"), insert(2, "4")],
    )
    assert keys(reader, "public.r") == [2, 4]
    assert keys(reader, "public.r_old") == [1, 3]
    assert keys(reader, "public.r", until=200) == [1]
    with pytest.raises(
        ValueError, match=r"no relation has the name 'public\.r_new'.* relation 2 is"
    ):
        keys(reader, "public.r_new")
    assert [(each.oid, each.names) for each in reader.relations] == [
        (2, ("public.r_new", "public.r")),
        (1, ("public.r", "public.r_old")),
    ]


def test_a_rename_and_another_schema(tmp_path: Path) -> None:
    reader = write_transactions(
        tmp_path,
        [table(1, "a"), insert(1, "1")],
        [table(1, "b"), insert(1, "2")],
        [table(1, "b", namespace="archive"), truncate(1), insert(1, "3")],
    )
    assert keys(reader, "archive.b") == [1, 2, 3]
    assert keys(reader, "public.a", until=150) == [1]
    with pytest.raises(ValueError, match=r"relation 1 is archive\.b now"):
        keys(reader, "public.a")
    with pytest.raises(ValueError, match=r"no table 'public\.x' — hint: Their tables: archive\.b"):
        keys(reader, "public.x")
    for unknown in (7, "1"):
        with pytest.raises(
            ValueError, match=rf"no relation {unknown!r} — hint: Their relations: 1 \(arc"
        ):
            keys(reader, relation_oid=unknown)
    with pytest.raises(TypeError, match="lsn must be a commit LSN"):
        reader.relations_at("0/1")  # type: ignore[arg-type]
    with pytest.raises(pgc.OptionError, match="exclude one another"):
        keys(reader, "archive.b", relation_oid=1)


def test_a_name_that_was_given_back(tmp_path: Path) -> None:
    reader = write_transactions(
        tmp_path,
        [table(1, "r"), insert(1, "1")],
        [table(1, "other"), insert(1, "2")],
        [table(1, "r"), insert(1, "3")],
    )
    assert sorted(keys(reader, "public.r")) == [1, 2, 3]
    assert reader.relation("public.r").relation.name == "r"
    assert reader.relation("public.other", at=200).relation.oid == 1


def test_a_name_that_nobody_has_any_more(tmp_path: Path) -> None:
    """The relation that lost it to another one does not get it back when that one is renamed."""
    reader = write_transactions(
        tmp_path,
        [table(1, "r"), insert(1, "1")],
        [table(2, "r"), insert(2, "2")],
        [table(2, "q"), insert(2, "3")],
    )
    with log.LogWriter(tmp_path, SOURCE) as writer:  # through a sidecar
        append(writer, wire(transaction(table(3, "s"), insert(3, "4"), lsn=400)))
    for found in (reader, log.Log(tmp_path)):
        words = r"relation 2 is public\.q now, relation 1 lost it to a later one"
        with pytest.raises(ValueError, match=words):
            keys(found, "public.r")
        assert sorted(keys(found, "public.q")) == [2, 3]
        assert keys(found, "public.r", until=200) == [2]
        assert [each.oid for each in found.relations if each.is_current][:1] == [2]


def test_a_pruned_log(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        for number, name in enumerate("rst"):
            append(writer, wire(transaction(table(1, name), insert(1, "1"), lsn=100 + number)))
            writer.seal()
    log.prune(tmp_path, 100)
    reader = log.Log(tmp_path)
    assert reader.relation("public.r", at=100).relation.oid == 1
    assert reader.relation("public.t").relation.oid == 1
    with pytest.raises(log.LogError, match="was pruned"):
        reader.relations_at(99)

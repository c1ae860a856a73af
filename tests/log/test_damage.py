"""After any damage of a log's file, no reader returns a wrong row, and no writer deletes it."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.errors import PgwireError
from pgwire_codec.log.checked_json import checksum
from tests.support import corpus
from tests.support.build import T, insert, transaction, wire
from tests.support.logs import SOURCE, append
from tests.transactions.test_splits import rows

CAPTURE = corpus.capture("immediate.pg18.v4-parallel-2pc")
OTHER = corpus.capture("immediate.pg17.v4-parallel-2pc")


def build(directory: Path, capture: corpus.Capture = CAPTURE, **options: Any) -> Path:
    """Write a log of three sealed segments and one that grows, as a writer that died leaves it."""
    count = len(CAPTURE.messages)
    writer = log.LogWriter(directory / "original", SOURCE, part_bytes=800, **options)
    for start, stop in ((0, 30), (30, 70), (70, count - 20)):
        append(writer, capture.messages[start:stop], capture.lsns[start:stop])
        writer.seal()
    append(writer, capture.messages[count - 20 : count], capture.lsns[count - 20 : count])
    writer.flush(confirm_lsn=7)
    shutil.copytree(directory / "original", directory / "log", ignore=lambda *_: ["lock"])
    writer.close()
    return directory / "log"


def of_read(directory: Path) -> Any:
    return rows([list(log.Log(directory).read())])


def of_messages(directory: Path) -> Any:
    return pa.Table.from_batches(log.Log(directory).messages())


def of_changes(directory: Path) -> Any:
    return rows(log.Log(directory).changes())


def of_partitions(directory: Path) -> Any:
    """As Spark's tasks: planned in one process, decoded in another."""
    plan = log.Log(directory).plan(max_partition_bytes=3000)
    partitions = pickle.loads(pickle.dumps(plan.partitions))
    return rows([[batch for each in partitions for batch in each.decode()]])


READERS: list[Callable[[Path], Any]] = [of_read, of_messages, of_changes, of_partitions]


def check_readers(directory: Path, expected: list[Any]) -> int:
    """Return how many readers saw that something is wrong; none may return anything else."""
    refused = 0
    for reader, whole in zip(READERS, expected, strict=True):
        try:
            found = reader(directory)
        except log.LogError:
            refused += 1
        else:
            assert found == whole, reader
    return refused


def flips(directory: Path, number: int, seed: int) -> Iterator[tuple[Path, int]]:
    """Flip random bits of the log's files, one after the other; each is flipped back."""
    chance = random.Random(seed)
    files = sorted(directory.iterdir())
    sizes = [path.stat().st_size for path in files]
    for _ in range(number):
        [path] = chance.choices(files, sizes)
        content = path.read_bytes()
        bit = chance.randrange(len(content) * 8)
        wrong = bytearray(content)
        wrong[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(wrong)
        yield path, bit
        path.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("number", [20, pytest.param(700, marks=pytest.mark.thorough)])
def test_flipped_bits(compression: str | None, number: int, tmp_path: Path) -> None:
    directory = build(tmp_path, compression=compression)
    expected = [reader(directory) for reader in READERS]
    refused = 0
    for path, bit in flips(directory, number, seed=number):
        refused += check_readers(directory, expected) > 0
        assert not log.verify(directory).is_sound, (path.name, bit)
    # Some flips are in bytes that readers do not need, as the header of a sealed segment.
    assert refused > number / 2
    assert check_readers(directory, expected) == 0


@pytest.mark.slow
def test_flipped_bits_on_spark(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    directory = build(tmp_path)

    def read() -> list[Any]:
        frame = spark.read.format("pgoutput").option("path", str(directory)).load()
        return sorted(frame.collect(), key=lambda row: (row["_commit_lsn"], row["_seq"]))

    expected, refused, right = read(), 0, 0
    for path, bit in flips(directory, 25, seed=1):
        try:
            found = read()
        except PySparkException as error:
            refused += "LogError" in str(error)
        else:
            assert found == expected, (path.name, bit)
            right += 1
    assert refused + right == 25
    assert refused > 10
    assert read() == expected


def damages(directory: Path, other: Path) -> Iterator[tuple[str, Path]]:
    """Remove, cut and exchange each file of a log in turn; each is put back."""
    for path in sorted(directory.iterdir()):
        content = path.read_bytes()

        def put_back(path: Path = path, content: bytes = content) -> None:
            if path.is_dir():
                path.rmdir()
            path.write_bytes(content)

        path.unlink()
        yield "removed", path
        path.mkdir()
        yield "a directory", path
        put_back()
        for length in (0, 1, len(content) // 2, len(content) - 9):
            path.write_bytes(content[:length])
            yield f"cut at {length}", path
        put_back()
        for with_ in [*sorted(directory.iterdir()), other / path.name]:
            if with_ != path and with_.is_file() and with_.read_bytes() != content:
                path.write_bytes(with_.read_bytes())
                yield f"exchanged with {with_}", path
                put_back()


@pytest.mark.slow
@pytest.mark.parametrize("one_in", [4, pytest.param(1, marks=pytest.mark.thorough)])
def test_files_that_are_missing_cut_or_exchanged(
    one_in: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # hundreds of them
    directory = build(tmp_path)
    other = build(tmp_path / "other", OTHER)
    expected = [reader(directory) for reader in READERS]
    number = 0
    for what, path in itertools.islice(damages(directory, other), 0, None, one_in):
        number += 1
        before = {each.name: each.is_dir() or each.read_bytes() for each in directory.iterdir()}
        assert check_readers(directory, expected) == len(READERS), (what, path)
        assert not log.verify(directory).is_sound, (what, path)
        # A writer reads few of the files. It does not change damaged ones.
        copy = tmp_path / "copy"
        shutil.copytree(directory, copy)
        try:
            log.LogWriter(copy, SOURCE).close()
        except log.LogError:
            after = {each.name: each.is_dir() or each.read_bytes() for each in copy.iterdir()}
            assert {name: after[name] for name in after if name != "lock"} == before
        else:
            assert set(before) <= {each.name for each in copy.iterdir()}, (what, path)
            assert check_readers(copy, expected) == len(READERS), (what, path)
        shutil.rmtree(copy)
    assert number > 100 // one_in
    assert check_readers(directory, expected) == 0


def test_both_files_of_a_segment_are_removed(tmp_path: Path) -> None:
    directory = build(tmp_path)
    expected = [reader(directory) for reader in READERS]
    for path in sorted(directory.glob("0*.json")):
        pair = {each: each.read_bytes() for each in (path, path.with_suffix(".arrow"))}
        for each in pair:
            each.unlink()
        assert check_readers(directory, expected) == len(READERS)
        with pytest.raises(log.LogError, match=f"{path.stem}.arrow is missing"):
            list(log.Log(directory).read())
        for each, content in pair.items():
            each.write_bytes(content)
    assert check_readers(directory, expected) == 0


def test_files_that_belong_to_nobody_stay(tmp_path: Path) -> None:
    directory = build(tmp_path)
    expected = [reader(directory) for reader in READERS]
    (directory / "notes.txt").write_bytes(b"ours")
    (directory / "notes.json.tmp").write_bytes(b"ours")
    (directory / f"{10**6:020}.arrow").mkdir()
    assert check_readers(directory, expected) == 0
    log.LogWriter(directory, SOURCE).close()
    assert check_readers(directory, expected) == 0
    assert (directory / "notes.txt").exists()
    assert (directory / "notes.json.tmp").exists()


# Files whose checksum is right and whose content is not.

VALUES: list[Any] = [
    None, True, -1, 0, 7, 2**63, 2**64, 10**30, 1.5, "", "x", "0/0", "FFFFFFFF/FFFFFFFF", "AAAA",
    [], [[]], {}, {"x": 1},
]  # fmt: skip


def forgeries(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield places in a JSON value with what to put there; ``...`` removes the member."""
    for wrong in VALUES:
        yield path, wrong
    if path:
        yield path, ...
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from forgeries(inner, (*path, name))
    elif isinstance(value, list):
        yield path, value + value
        for number, inner in enumerate(value):
            yield from forgeries(inner, (*path, number))


def forge(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    if not path:
        return wrong
    name, *rest = path
    copied = dict(value) if isinstance(value, dict) else list(value)
    if not rest and wrong is ...:
        del copied[name]
    else:
        copied[name] = forge(value[name], tuple(rest), wrong)
    return copied


def sealed(text: bytes) -> bytes:
    """Return a JSON object with its checksum, as the files of a log have it."""
    body = text[:-1]
    return b'%s,"checksum":"%s"}\n' % (body, checksum(body).encode())


def contents_of(path: Path) -> list[Any]:
    """Return the JSON object of each line: the watermark has two, the other files one."""
    values = [json.loads(line) for line in path.read_bytes().splitlines()]
    for value in values:
        del value["checksum"]
    return values


#: Functions of all users of a log.
USES: list[Callable[[Path], Any]] = [
    *READERS,
    log.verify,
    log.statistics,
    lambda directory: log.prune(directory, 2**63),
    lambda directory: log.LogWriter(directory, SOURCE).close(),
]


@pytest.mark.slow
@pytest.mark.parametrize("one_in", [36, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "name", [f"{0:020}.json", f"{6:020}.json", "watermark.json", "manifest.json"]
)
def test_forged_files(
    name: str, one_in: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is an error of this package, or passes for true; ``verify`` sees most of the latter."""
    streamed = [
        pgc.StreamStart(5, True),
        replace(T, xid=5),
        insert(1, "2", "s", None, xid=5),
        pgc.StreamStop(),
    ]
    with log.LogWriter(tmp_path / "log", SOURCE, part_bytes=100) as writer:
        append(writer, wire([*transaction(T, insert(1, "1", "a", None), lsn=100)]))
        append(writer, wire([pgc.Begin(300, 0, 8), insert(1, "3", "b", None)]))
        writer.seal()
        append(writer, wire([pgc.Commit(0, 300, 301, 0), *streamed]))
        writer.seal()
        append(writer, wire(transaction(T, insert(1, "1", "a", None), lsn=400)))
        writer.flush(confirm_lsn=7)
        shutil.copytree(tmp_path / "log", tmp_path / "forged", ignore=lambda *_: ["lock"])
    directory = tmp_path / "forged"
    lines = (directory / name).read_bytes().splitlines(keepends=True)
    places = [
        (number, value, place, wrong)
        for number, value in enumerate(contents_of(directory / name))
        for place, wrong in forgeries(value)
    ]
    kept = {path: path.read_bytes() for path in directory.iterdir()}
    refused = number = 0
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # thousands of them
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)
    for line, value, place, wrong in places[::one_in]:
        data = json.dumps(forge(value, place, wrong), separators=(",", ":")).encode()
        forged = sealed(data)[:-1].ljust(len(lines[line]) - 1) + b"\n"
        (directory / name).write_bytes(b"".join([*lines[:line], forged, *lines[line + 1 :]]))
        number += 1
        failed = False
        for use in USES:
            try:
                use(directory)
            except PgwireError:
                failed = True
        refused += failed
        for path in directory.iterdir():
            if path not in kept:
                path.unlink()
        for path, content in kept.items():
            path.write_bytes(content)
    assert refused > number / 2


def test_json_that_is_too_deep(tmp_path: Path) -> None:
    directory = build(tmp_path)
    for name in (f"{0:020}.json", "watermark.json", "manifest.json"):
        content = (directory / name).read_bytes()
        for member in (b"x", b"parts", b"source", b"log_id"):
            deep = b'{"format":2,"%s":%s%s}' % (member, b"[" * 100_000, b"]" * 100_000)
            (directory / name).write_bytes(sealed(deep))
            with pytest.raises(log.LogError, match=f"{name} has invalid content"):
                list(log.Log(directory).read())
        (directory / name).write_bytes(content)


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowMemoryError("malloc of size 64 failed"),
        pa.ArrowException("Unknown error: Failed to launch worker thread: try again"),
    ],
)
def test_no_memory_is_no_damage(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = log.Log(build(tmp_path))
    monkeypatch.setattr(pa.ipc, "read_record_batch", mock.Mock(side_effect=error))
    with pytest.raises(MemoryError, match=str(error)[:20]):
        list(whole.messages())

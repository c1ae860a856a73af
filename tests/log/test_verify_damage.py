"""Random damage of each kind of file in a log, which verify finds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from pgwire_codec import log
from pgwire_codec.log import index_writer
from pgwire_codec.log.store import open_store
from pgwire_codec.log.type_record import TypeRecord
from pgwire_codec.types import UserType
from tests.support import corpus
from tests.support.logs import SOURCE, append

CAPTURE = corpus.capture("immediate.pg18.v1-text")
OTHER = corpus.capture("immediate.pg17.v1-text")
PIECES = 12


def build(directory: Path, capture: corpus.Capture) -> Path:
    """Write a log with single and joined segments, one that grows, an index and types."""
    count = len(capture.messages)
    options = {"part_bytes": 500, "segment_bytes": 1 << 20}
    with log.LogWriter(directory / "original", SOURCE, **options) as writer:
        cuts = [count * number // PIECES for number in range(PIECES + 1)]
        for number in range(PIECES - 1):
            append(writer, capture.messages[cuts[number] : cuts[number + 1]])
            writer.seal()
            if number == PIECES // 2:
                largest = max(each.bytes for each in log.Log(directory / "original").segments)
                log.compact(directory / "original", segment_bytes=3 * largest)
        append(writer, capture.messages[cuts[-2] :])
        writer.flush(confirm_lsn=7)
        kind = UserType(20_000, "kind", "enum", 0, -1, ",", True)
        TypeRecord(open_store(directory / "original")).add([kind])
        made = directory / "log"
        made.mkdir()
        for path in (directory / "original").iterdir():
            if "lock" not in path.name:
                (made / path.name).write_bytes(path.read_bytes())
    return made


def kind_of(path: Path) -> str:
    name = path.name
    return name if name[0].isalpha() else f"{'joined' if '-' in name else 'single'}{path.suffix}"


@dataclass
class Damage:
    """Changes of a file at random; the file is put back by the next one."""

    directory: Path
    other: Path
    chance: random.Random

    def flip(self, path: Path) -> None:
        content = bytearray(path.read_bytes())
        bit = self.chance.randrange(len(content) * 8)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)

    def cut(self, path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: self.chance.randrange(len(content))])

    def zero(self, path: Path) -> None:
        """Write zeros, as in a page that never reached the disk."""
        content = bytearray(path.read_bytes())
        start = self.chance.randrange(len(content))
        stop = min(len(content), start + 4096)
        was = content[start:stop]
        content[start:stop] = bytes(stop - start)
        if was == content[start:stop]:
            content[start] = 1
        path.write_bytes(content)

    def remove(self, path: Path) -> None:
        path.unlink()

    def folder(self, path: Path) -> None:
        path.unlink()
        path.mkdir()

    def exchange(self, path: Path) -> None:
        files = [*self.directory.iterdir(), *self.other.iterdir()]
        content = path.read_bytes()
        others = [each for each in files if each.is_file() and each.read_bytes() != content]
        path.write_bytes(self.chance.choice(others).read_bytes())

    @property
    def kinds(self) -> list[Callable[[Path], None]]:
        return [self.flip, self.cut, self.zero, self.remove, self.folder, self.exchange]


@pytest.mark.slow
@pytest.mark.parametrize("number", [8, pytest.param(500, marks=pytest.mark.thorough)])
def test_verify_finds_damage_of_each_file(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    with mock.patch.object(index_writer, "INDEXED_SEGMENTS", 3):
        made, other = (build(tmp_path / each.name, each) for each in (CAPTURE, OTHER))
    assert log.verify(made).damage == ()
    files = {path: path.read_bytes() for path in sorted(made.iterdir())}
    by_kind: dict[str, list[Path]] = {}
    for path in files:
        by_kind.setdefault(kind_of(path), []).append(path)
    assert by_kind.keys() == {
        "manifest.json", "watermark.json", "types.json", "joined.arrow", "joined.json",
        "single.arrow", "single.json", "single.index",
    }  # fmt: skip
    damage = Damage(made, other, random.Random(number))
    done: Counter[tuple[str, str]] = Counter()
    for index in range(number):
        kind = [*by_kind][index % len(by_kind)]
        act = damage.kinds[index // len(by_kind) % len(damage.kinds)]
        path = damage.chance.choice(by_kind[kind])
        act(path)
        done[kind, act.__name__] += 1
        # An index is made from the segments again, and a log without user-defined types has none.
        is_optional = kind in ("single.index", "types.json") and act == damage.remove
        is_sound = log.verify(made).is_sound
        assert is_sound == is_optional, (path.name, act.__name__, done)
        if path.is_dir():
            path.rmdir()
        path.write_bytes(files[path])
    assert log.verify(made).damage == ()


def test_folders_in_place_of_files_that_may_be_missing(tmp_path: Path) -> None:
    """A writer could not create the file."""
    made = build(tmp_path, CAPTURE)
    for name in (f"{10**6:020}.arrow", f"{10**6:020}.json", f"{10**6:020}.index", "types.json"):
        path = made / name
        path.unlink(missing_ok=True)
        path.mkdir()
        [damage] = log.verify(made).damage
        assert (damage.file, damage.reason) == (name, "a folder, not a file")
        path.rmdir()

"""The types that a log has recorded, and what its readers make of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pgwire_codec import log
from pgwire_codec.log.store import open_store
from pgwire_codec.log.type_record import TypeRecord
from pgwire_codec.types import TypeRegistry, UserType
from tests.support import build, spark_logs
from tests.support.build import column
from tests.support.log_copies import copy_log

MOOD = UserType(20_001, "mood", "enum")
MOODS = UserType(20_000, "_mood", "array", 20_001)
TABLE = build.relation(1, column("m", 20_001), column("ms", 20_000))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of a table with values in both forms."""
    inside = [build.insert(1, "sad", "{sad}"), build.insert(1, b"sad", None)]
    spark_logs.write(tmp_path / "log", build.wire(build.transaction(TABLE, *inside)))
    return tmp_path / "log"


def record(folder: Path) -> TypeRecord:
    return TypeRecord(open_store(folder))


def test_types_are_added(folder: Path) -> None:
    assert record(folder).read() == log.Log(folder).user_types == ()
    assert not (folder / "types.json").exists()
    record(folder).add([MOOD])
    reader = log.Log(folder)
    assert reader.user_types == (MOOD,)
    record(folder).add([MOODS, UserType(MOOD.oid, "another", "composite")])
    assert record(folder).read() == (MOODS, MOOD)
    assert reader.user_types == (MOOD,)
    reader.refresh()
    assert reader.user_types == (MOODS, MOOD)


def test_readers_use_them(folder: Path, tmp_path: Path) -> None:
    [unknown] = log.Log(folder).read()
    assert unknown.to_arrow().schema.field("m").type == pa.binary()
    record(folder).add([MOOD, MOODS])
    copy_log(folder, tmp_path / "copy")
    for each in (log.Log(folder), log.Log(tmp_path / "copy")):
        for [batch] in (list(each.read()), list(next(each.changes()))):
            assert batch.to_arrow(["m", "ms"]).select(["m", "ms"]).to_pylist() == [
                {"m": "sad", "ms": ["sad"]},
                {"m": "sad", "ms": None},
            ]


def test_a_registered_type_has_precedence(folder: Path) -> None:
    record(folder).add([MOOD, MOODS])
    mine = TypeRegistry()
    mine.register(MOODS.oid, "_mood", like="text")
    [batch] = log.Log(folder).read(registry=mine)
    schema = batch.to_arrow().schema
    assert (schema.field("m").type, schema.field("ms").type) == (pa.string(), pa.string())


def test_a_damaged_record(folder: Path) -> None:
    record(folder).add([MOOD])
    file = folder / "types.json"
    file.write_bytes(file.read_bytes().replace(b"enum", b"base"))
    with pytest.raises(log.LogError, match=r"types\.json is damaged: its checksum"):
        next(log.Log(folder).read())
    assert [each.file for each in log.verify(folder).damage] == ["types.json"]

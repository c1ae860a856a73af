"""Types that a log has recorded, in both forms of their values, on Spark."""

from __future__ import annotations

import pickle
import struct
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgwire_codec.log.store import open_store
from pgwire_codec.log.type_record import TypeRecord
from pgwire_codec.types import UserType
from tests.support import build, spark_logs
from tests.support.build import column
from tests.support.mirrors import MirrorOf, Writer, relation

if TYPE_CHECKING:
    pass

pytest.importorskip("pyspark", reason="needs PySpark (Python 3.11)")

MOOD, MOODS, PRICE = 20_001, 20_000, 20_002
TYPES = (
    UserType(MOOD, "mood", "enum"),
    UserType(MOODS, "_mood", "array", MOOD),
    UserType(PRICE, "price", "domain", 1700, typmod=(10 << 16 | 2) + 4),
)
TABLE = relation(1, column("k", MOOD, key=True), column("ms", MOODS), column("p", PRICE), name="t")
BINARY_MOODS = struct.pack(">iiIiii3s", 1, 0, MOOD, 1, 1, 3, b"sad")
BINARY_PRICE = struct.pack(">hhHhhh", 2, 0, 0, 2, 1, 5000)  # 1.50


def record(folder: Path) -> None:
    TypeRecord(open_store(folder)).add(TYPES)


def test_rows_of_both_forms(tmp_path: Path) -> None:
    """Without a session, as its tasks read them."""
    from pyspark.sql.datasource import CaseInsensitiveDict

    from pgwire_codec.spark import PgoutputDataSource

    inside = [build.insert(1, "sad", "{sad}", "1.50")]
    inside.append(build.insert(1, b"sad", BINARY_MOODS, BINARY_PRICE))
    path = spark_logs.write(tmp_path / "log", build.wire(build.transaction(TABLE, *inside)))
    record(tmp_path / "log")
    source = PgoutputDataSource(CaseInsensitiveDict({"path": path, "table": "public.t"}))
    schema = source.schema()
    assert [field.dataType.simpleString() for field in schema.fields[:3]] == [
        "string",
        "array<string>",
        "decimal(10,2)",
    ]
    reader = source.reader(schema)
    reader, partitions = pickle.loads(pickle.dumps((reader, reader.partitions())))
    rows = [row for part in partitions for each in reader.read(part) for row in each.to_pylist()]
    expected = {"k": "sad", "ms": ["sad"], "p": Decimal("1.50")}
    assert [{name: row[name] for name in expected} for row in rows] == [expected, expected]


def test_a_mirror_of_both_forms(tmp_path: Path) -> None:
    """A key is the same key in both."""
    pytest.importorskip("deltalake")
    made, writer = MirrorOf(None, tmp_path, "local"), Writer(tmp_path)
    writer.commit(TABLE, build.insert(1, "sad", "{sad}", "1.50"), build.insert(1, "ok", None, None))
    writer.flush()
    record(tmp_path / "log")
    made.run()
    key: Any = build.row(b"ok", None, None)
    writer.commit(build.update(1, build.row(b"sad", BINARY_MOODS, None)), build.delete(1, key=key))
    writer.flush()
    made.run()
    assert made.rows("public.t") == [{"k": "sad", "ms": ["sad"], "p": None}]

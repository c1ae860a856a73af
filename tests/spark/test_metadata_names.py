"""Tables with columns that have the names of metadata columns, through every path of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgwire_codec.changes.metadata import METADATA_COLUMNS, metadata_names
from pgwire_codec.types import default_registry
from tests.support import build, spark_logs
from tests.support.build import column
from tests.support.lakehouse import delta_rows
from tests.support.mirrors import ID, MirrorOf, Writer, in_order, relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

NAMES = (*METADATA_COLUMNS, "_table")
TABLE = relation(1, ID, *map(column, NAMES), name="t")

#: Options, and the optional metadata columns that are in use.
USED = {
    "none": ({"before": "none"}, set()),
    "some": ({}, {"_before"}),
    "all": (
        {"unrepresentable": "null", "withRelationOid": "true"},
        {"_before", "_invalid", "_relation_oid"},
    ),
}


def row(key: str, value: str) -> Any:
    return build.row(key, *(f"{name} {value}" for name in NAMES))


def expected(key: int, value: str) -> dict[str, Any]:
    return {"id": key} | {name: f"{name} {value}" for name in NAMES}


#: The rows 2, and 3 that was 1.
CHANGES = [
    build.insert(1, "1", *NAMES),
    build.insert(1, "2", *NAMES),
    build.update(1, row("2", "new")),
    build.insert(1, "4", *NAMES),
    build.delete(1, key=build.row("4", *[None] * len(NAMES))),
]
MOVED = build.update(1, row("3", "moved"), key=build.row("1", *[None] * len(NAMES)))
ROWS = [expected(2, "new"), expected(3, "moved")]


def messages(*, moves: bool) -> list[bytes]:
    inside = [*CHANGES, MOVED] if moves else CHANGES
    return build.wire(build.transaction(TABLE, *inside, xid=10, lsn=10))


def own(rows: DataFrame) -> list[dict[str, Any]]:
    return in_order([{n: each[n] for n in ("id", *NAMES)} for each in rows.toArrow().to_pylist()])


@pytest.mark.parametrize("use", ["none", pytest.param("some", marks=pytest.mark.thorough), "all"])
def test_rows_of_a_log(spark: SparkSession, tmp_path: Path, use: str) -> None:
    """Of format("pgoutput"), latest and merge_into."""
    from pgwire_codec.spark import latest, merge_into

    pytest.importorskip("deltalake")
    options, used = USED[use]
    moves = "_before" in used
    path = spark_logs.write(tmp_path / "log", messages(moves=moves))
    reader = spark.read.format("pgoutput").options(**options, path=path)
    changes = reader.option("table", "public.t").load()
    assert set(metadata_names(changes.columns)) == set(METADATA_COLUMNS[:8]) | used
    inserted = next(each for each in changes.collect() if each["id"] == 1)
    assert [inserted[name] for name in NAMES] == list(NAMES)
    wanted = in_order(ROWS)
    if not moves:  # without _before, updates cannot be applied
        changes = changes.where(f"{metadata_names(changes.columns)['_op']} != 'U'")
        wanted = in_order([{"id": key} | {name: name for name in NAMES} for key in (1, 2)])
    assert own(latest(changes, ["id"])) == wanted
    merge_into(changes, str(tmp_path / "target"), ["id"])
    merged = delta_rows(tmp_path / "target").to_pylist()
    assert in_order(merged) == wanted


def test_messages(spark: SparkSession) -> None:
    from pgwire_codec.spark import decode_changes, decode_partition, latest

    sent = messages(moves=True)
    frame = spark.createDataFrame(
        list(enumerate(map(bytearray, sent))), "ordinal long, data binary"
    )
    changes = decode_changes(frame, table="public.t", registry=default_registry)
    assert own(latest(changes, ["id"])) == in_order(ROWS)
    first = next(iter(decode_partition(sent)))
    assert [first[name] for name in NAMES] == list(NAMES)
    assert first["__table"] == "public.t"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.thorough, id="whole"),
        pytest.param({"masks": {"public.t._op": "drop"}}, id="masked"),
    ],
)
def test_a_mirror(made: MirrorOf, writer: Writer, options: dict[str, Any]) -> None:
    """Also of a table that loses such a column."""
    writer.commit(TABLE, *CHANGES)
    writer.flush()
    made.run(**options)
    writer.commit(MOVED)
    fewer = relation(1, ID, *map(column, NAMES[:-3]), name="t")
    writer.commit(fewer, build.insert(1, "5", *NAMES[:-3]))
    writer.flush()
    made.run(**options)
    assert made.status()["public.t"]["error"] is None
    last = {"id": 5} | {name: name if name in NAMES[:-3] else None for name in NAMES}
    wanted = [
        {name: value for name, value in each.items() if name != "_op" or not options}
        for each in [*ROWS, last]
    ]
    assert made.rows("public.t") == in_order(wanted)

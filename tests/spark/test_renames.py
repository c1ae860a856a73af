"""Names that change hands on a server: each table on Spark has the rows that the server's has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.lakehouse import delta_rows
from tests.support.log_captures import capture_into, flush_lsn
from tests.support.servers import Database, database
from tests.support.spark_logs import HAS_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow

COLUMNS = ["id", "v", "note"]
ALL_THAT_IS_AVAILABLE = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


@pytest.fixture(scope="module")
def api() -> Any:
    return pytest.importorskip("pgwire_codec.spark", reason="needs PySpark (Python 3.11)")


@pytest.fixture(scope="module")
def deltalake() -> Any:
    return pytest.importorskip("deltalake")


def create(table: str) -> str:
    """A table with a large value that an update does not send."""
    return (
        f"CREATE TABLE {table} (id int PRIMARY KEY, v text, note text);"
        f"ALTER TABLE {table} ALTER note SET STORAGE EXTERNAL"
    )


def insert(table: str, *ids: int) -> str:
    values = ", ".join(f"({id_}, '{table} {id_}', repeat('{table} {id_}', 500))" for id_ in ids)
    return f"INSERT INTO {table} VALUES {values}"


def update(table: str, id_: int) -> str:
    return f"UPDATE {table} SET v = v || ', updated' WHERE id = {id_}"


@dataclass(frozen=True)
class Scenario:
    """Statements for a server, in phases. The log is captured after each phase.

    ``table`` is to be read, and has the name from the start if ``follows``.
    """

    name: str
    table: str
    phases: tuple[tuple[str, ...], ...]
    follows: bool = True


DROPPED = Scenario(
    "drop and create",
    "public.r",
    (
        (create("r"), insert("r", 1, 2, 3)),
        ("DROP TABLE r", create("r"), insert("r", 3)),
        (update("r", 3),),
    ),
)
SWAPPED = Scenario(
    "swap by two renames",
    "public.r",
    (
        (create("r"), create("r_new"), insert("r", 1, 2, 3), insert("r_new", 2, 4, 6)),
        (
            update("r_new", 2),
            "BEGIN; ALTER TABLE r RENAME TO r_old; ALTER TABLE r_new RENAME TO r; COMMIT",
            insert("r", 5),
            update("r", 4),
            update("r_old", 1),
        ),
        (update("r", 2), "DELETE FROM r WHERE id = 6", insert("r_old", 7)),
    ),
)
SWAPPED_BACK = Scenario(
    "swap and back",
    "public.r",
    (
        *SWAPPED.phases,
        (
            "BEGIN; ALTER TABLE r RENAME TO r_new; ALTER TABLE r_old RENAME TO r; COMMIT",
            update("r_new", 4),
            update("r", 7),
            "DELETE FROM r WHERE id = 1",
        ),
    ),
)
RENAMED = Scenario(
    "rename",
    "public.u",
    (
        (create("t"), insert("t", 1, 2, 3)),
        ("ALTER TABLE t RENAME TO u", update("u", 1), "DELETE FROM u WHERE id = 2"),
        (insert("u", 4),),
    ),
    follows=False,
)
MOVED = Scenario(
    "set schema",
    "archive.t",
    (
        ("CREATE SCHEMA archive", create("t"), insert("t", 1, 2, 3)),
        (
            "ALTER TABLE t SET SCHEMA archive",
            update("archive.t", 1),
            "DELETE FROM archive.t WHERE id = 2",
        ),
        (insert("archive.t", 4),),
    ),
    follows=False,
)


class Playback:
    """A scenario on a server, whose changes are captured."""

    def __init__(self, made: Database, scenario: Scenario, folder: Path) -> None:
        self.made = made
        self.scenario = scenario
        self.log = str(folder / "log")
        self._phases = iter(scenario.phases)
        self._folder = folder
        made.execute("CREATE PUBLICATION p FOR ALL TABLES")
        made.create_slot()

    def next(self) -> None:
        made = self.made
        made.execute(*next(self._phases))
        capture_into(made, self._folder / "log").run(until_lsn=flush_lsn(made))

    def rest(self) -> None:
        for phase in self._phases:
            self.made.execute(*phase)
        capture_into(self.made, self._folder / "log").run(until_lsn=flush_lsn(self.made))

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """The server's."""
        return self.made.query(f"SELECT id, v, note FROM {table} ORDER BY id")


@pytest.fixture
def playback(request: pytest.FixtureRequest, pg18: Any, tmp_path: Path) -> Iterator[Playback]:
    with database(pg18) as made:
        yield Playback(made, request.param, tmp_path)


def rows_of(df: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in df.select(COLUMNS).orderBy("id").collect()]


class Sinks:
    """A stream that is appended to files, and merged into a Delta table."""

    def __init__(self, spark: SparkSession, api: Any, folder: Path) -> None:
        self._spark = spark
        self._api = api
        self._folder = folder
        self.appended = str(folder / "appended")
        self.merged = str(folder / "merged")
        self.fails_after: str | None = None
        self.batches: list[tuple[int, list[Any]]] = []

    def apply(self, batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        self.batches.append((batch_id, sorted(map(tuple, batch.collect()), key=repr)))
        self._done("nothing")
        batch.write.mode("append").parquet(self.appended)
        self._done("append")
        self._api.merge_into(batch, self.merged, ["id"])
        self._done("merge")
        batch.unpersist()

    def _done(self, step: str) -> None:
        if step == self.fails_after:
            self.fails_after = None
            raise RuntimeError(f"fails after {step}")

    def run(self, log: str, **options: str) -> None:
        stream = self._spark.readStream.format("pgoutput").options(path=log, **options).load()
        query = (
            stream.writeStream.foreachBatch(self.apply)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
        )
        # Before 4.2, Spark runs only the batch that failed unless this is set.
        self._spark.conf.set(ALL_THAT_IS_AVAILABLE, "true")
        try:
            query.start().awaitTermination()
        finally:
            self._spark.conf.unset(ALL_THAT_IS_AVAILABLE)


@pytest.mark.skipif(not HAS_LIMITS, reason="Spark 4.2 and later have limits")
@pytest.mark.parametrize(
    "playback",
    [
        pytest.param(scenario, id=scenario.name)
        for scenario in (DROPPED, SWAPPED_BACK, RENAMED, MOVED)
    ],
    indirect=True,
)
def test_tables_are_the_servers(
    spark: SparkSession,
    api: Any,
    deltalake: Any,
    playback: Playback,
    tmp_path: Path,
) -> None:
    """A batch; a stream that is appended; a stream that is merged."""
    scenario = playback.scenario
    sinks = Sinks(spark, api, tmp_path)
    options = {"table": scenario.table, "onRelationChange": "replace", "maxBytesPerTrigger": "1"}
    reader = spark.read.format("pgoutput").option("path", playback.log)

    def check(phases: int) -> None:
        assert len(sinks.batches) >= phases
        expected = playback.rows(scenario.table)
        changes = reader.option("table", scenario.table).load()
        assert rows_of(api.latest(changes, ["id"])) == expected
        assert rows_of(api.latest(spark.read.parquet(sinks.appended), ["id"])) == expected
        merged = delta_rows(sinks.merged)
        found = merged.select(COLUMNS).sort_by("id").to_pylist()
        assert [tuple(row.values()) for row in found] == expected

    for number in range(1, len(scenario.phases) + 1):
        playback.next()
        if scenario.follows:
            sinks.run(playback.log, **options)
        if scenario is SWAPPED_BACK and number == len(SWAPPED.phases):
            check(number)
            old = reader.option("table", "public.r_old").load()
            assert rows_of(api.latest(old, ["id"])) == playback.rows("r_old")
    if not scenario.follows:
        sinks.run(playback.log, **options)
    check(len(scenario.phases))


@pytest.mark.parametrize("playback", [SWAPPED], indirect=True, ids=["swap"])
def test_a_stream_fails_when_another_table_has_its_name(
    spark: SparkSession, api: Any, deltalake: Any, playback: Playback, tmp_path: Path
) -> None:
    """It may be started as often as you like; and with relationOid it continues."""
    sinks = Sinks(spark, api, tmp_path)
    playback.next()
    sinks.run(playback.log, table="public.r")
    playback.rest()
    old, new = (
        playback.made.query(f"SELECT '{name}'::regclass::oid")[0][0] for name in ("r_old", "r")
    )
    for _ in range(2):
        with pytest.raises(
            Exception,
            match=rf"relation {old} had the name public\.r at .*, but relation "
            rf"{new} has it at .*; relation {old} is public\.r_old now — hint: "
            rf"Set relationOid={old} .* onRelationChange=replace",
        ):
            sinks.run(playback.log, table="public.r")
    assert len(sinks.batches) == 1
    sinks.run(playback.log, relationOid=str(old))
    assert len(sinks.batches) == 2
    found = delta_rows(sinks.merged).sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in found] == playback.rows("r_old")


@pytest.mark.parametrize("playback", [SWAPPED_BACK], indirect=True, ids=["swap and back"])
@pytest.mark.parametrize("step", ["nothing", "append", "merge"])
def test_a_batch_that_failed_across_a_switch(
    spark: SparkSession, api: Any, deltalake: Any, playback: Playback, tmp_path: Path, step: str
) -> None:
    """It comes again as it was, though the name has changed hands again meanwhile."""
    sinks = Sinks(spark, api, tmp_path)
    options = {"table": "public.r", "onRelationChange": "replace"}
    playback.next()
    sinks.run(playback.log, **options)
    playback.next()
    sinks.fails_after = step
    with pytest.raises(Exception, match=f"fails after {step}"):
        sinks.run(playback.log, **options)
    playback.rest()
    sinks.run(playback.log, **options)
    (first, one), (second, failed), (again, repeated), (last, _) = sinks.batches
    assert (first, second, again, last) == (0, 1, 1, 2)
    assert failed == repeated
    assert len({row[-1] for row in one} | {row[-1] for row in failed}) == 2
    expected = playback.rows("r")
    assert rows_of(api.latest(spark.read.parquet(sinks.appended), ["id"])) == expected
    found = delta_rows(sinks.merged).sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in found] == expected

"""Other writers of a mirror's tables: a second mirror, and programs that change or restore rows."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pgwire_codec.lake.table_turns import TableTurns
from tests.support import build
from tests.support.build import column
from tests.support.docs import PAGES, Page
from tests.support.lakehouse import DELTA, delta_rows, has
from tests.support.mirrors import ID, MirrorOf, Writer, relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

deltalake = pytest.importorskip("deltalake")

V = column("v", "int4")
KEYED = relation(1, ID, V)
KEYLESS = relation(2, column("a", "int4"), V, identity="n")
FULL = relation(3, column("a", "int4", key=True), column("v", "int4", key=True), identity="f")
TABLES = ("public.t1", "public.t2", "public.t3")


def change(writer: Writer, number: int) -> None:
    """Add a row to each table, change another, and remove one."""
    writer.commit(
        KEYED,
        KEYLESS,
        FULL,
        build.insert(1, str(number), "0"),
        build.insert(2, str(number), "0"),
        build.insert(3, str(number), "0"),
        build.insert(3, str(number), "1"),
    )
    writer.commit(
        build.update(1, build.row(str(-number), "2"), key=build.row(str(number), None)),
        build.delete(3, old=build.row(str(number), "0")),
    )
    writer.flush()


def check(made: MirrorOf, *names: str) -> None:
    for name in names or TABLES:
        assert made.rows(name) == made.expected(name), name


@pytest.fixture
def local(tmp_path: Path) -> MirrorOf:
    return MirrorOf(None, tmp_path, "local")


def table(made: MirrorOf, name: str = "t1") -> Any:
    return deltalake.DeltaTable(str(made.lake / "public" / name))


def states(made: MirrorOf) -> dict[str, str]:
    return {name: row["state"] for name, row in made.status().items()}


class TestTwoMirrors:
    """Each change is applied once, whichever of them is first."""

    @pytest.mark.parametrize("history", [False, True])
    @pytest.mark.parametrize("step", ["_work", "_commit_of", "_done"])
    def test_one_in_the_middle_of_the_other(
        self, local: MirrorOf, writer: Writer, step: str, history: bool
    ) -> None:
        change(writer, 1)
        local.run(history=history)
        change(writer, 2)
        method, ran = getattr(TableTurns, step), []

        def interrupted(self: Any, *arguments: Any, **options: Any) -> Any:
            if not ran:
                ran.append(1)
                local.run(history=history)
                change(writer, 3)
                local.run(history=history)
            return method(self, *arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TableTurns, step, interrupted)
            local.run(history=history)
        for number in (4, 5):
            change(writer, number)
            local.run(history=history)
        assert ran
        assert set(states(local).values()) == {"ok"}
        if not history:
            check(local)
            return
        for name, count in zip(TABLES, (15, 5, 15), strict=True):
            assert len(local.rows(name)) == count

    def test_a_status_of_the_past(self, local: MirrorOf, writer: Writer) -> None:
        """The status table decides on no change that a table has."""
        change(writer, 1)
        local.run()
        shutil.copytree(local.lake / "_mirror", local.lake / "old")
        change(writer, 2)
        local.run()
        shutil.rmtree(local.lake / "_mirror")
        (local.lake / "old").rename(local.lake / "_mirror")
        local.run()
        check(local)
        change(writer, 3)
        local.run()
        check(local)


class TestRestore:
    """Rows go back, and the changes since then are applied again."""

    @pytest.mark.parametrize("is_stopped", [False, True])
    @pytest.mark.parametrize("has_checkpoint", [False, True])
    def test_by_version(
        self, local: MirrorOf, writer: Writer, is_stopped: bool, has_checkpoint: bool
    ) -> None:
        for number in (1, 2):
            change(writer, number)
            local.run()
        versions = {name: table(local, name).version() for name in ("t1", "t2", "t3")}
        change(writer, 3)
        local.run()
        for name, version in versions.items():
            table(local, name).restore(version)
            if has_checkpoint:
                table(local, name).create_checkpoint()
        if not is_stopped:
            local.run()
        change(writer, 4)
        local.run()
        check(local)
        assert set(states(local).values()) == {"ok"}

    def test_by_time_and_twice(self, local: MirrorOf, writer: Writer) -> None:
        times = []
        for number in (1, 2, 3):
            change(writer, number)
            local.run()
            times.append(datetime.now(timezone.utc))
        table(local, "t2").restore(times[0])
        local.run()
        check(local)
        table(local, "t2").restore(times[1])
        table(local, "t2").restore(times[0])
        change(writer, 4)
        local.run()
        check(local)

    def test_a_version_that_the_log_does_not_have_any_more(
        self, local: MirrorOf, writer: Writer
    ) -> None:
        for number in (1, 2, 3):
            change(writer, number)
            local.run()
        target = table(local)
        target.restore(1)
        for version in (0, 1):
            (local.lake / f"public/t1/_delta_log/{version:020}.json").unlink()
        table(local).create_checkpoint()
        change(writer, 4)
        local.run()
        row = local.status()["public.t1"]
        assert row["state"] == "modified"
        assert "RESTORE of a version whose commits were removed in version 3" in row["error"]
        check(local, *TABLES[1:])

    def test_rows_that_were_changed_before(self, local: MirrorOf, writer: Writer) -> None:
        """A restored version can have changes of another program itself."""
        change(writer, 1)
        local.run()
        deltalake.write_deltalake(table(local), pa.table({"id": [77], "v": [7]}), mode="append")
        version = table(local).version()
        change(writer, 2)
        local.run()
        assert states(local)["public.t1"] == "modified"
        table(local).restore(version)
        change(writer, 3)
        local.run()
        row = local.status()["public.t1"]
        assert (row["state"], row["error"]) == (
            "modified",
            f"another program has changed rows: WRITE in version {version}",
        )


ROW = pa.table({"id": pa.array([1000], pa.int32()), "v": pa.array([1], pa.int32())})


def merge(target: Any) -> None:
    """Insert a row that the table does not have."""
    merger = target.merge(ROW, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def add_column(target: Any) -> None:
    target.alter.add_columns([deltalake.Field("extra", deltalake.schema.PrimitiveType("integer"))])


#: Operations of delta-rs, with the state of the table afterwards, and the operation that the
#: state's error names. Each is in the table of docs/howto/mirror.md.
OTHERS: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "append": (lambda t: deltalake.write_deltalake(t, ROW, mode="append"), "modified", "WRITE"),
    "overwrite": (
        lambda t: deltalake.write_deltalake(t, ROW, mode="overwrite"),
        "modified",
        "WRITE",
    ),
    "delete": (lambda t: t.delete("id = -1"), "modified", "DELETE"),
    "update": (lambda t: t.update({"v": "7"}, predicate="id = -1"), "modified", "UPDATE"),
    "merge": (merge, "modified", "MERGE"),
    "restore by version": (lambda t: t.restore(1), "ok", ""),
    "restore by time": (
        lambda t: t.restore(
            datetime.fromtimestamp(t.history(2)[-1]["timestamp"] / 1e3, timezone.utc)
        ),
        "ok",
        "",
    ),
    "optimize": (lambda t: t.optimize.compact(), "ok", ""),
    "z-order": (lambda t: t.optimize.z_order(["id"]), "ok", ""),
    "vacuum": (lambda t: t.vacuum(0, dry_run=False, enforce_retention_duration=False), "ok", ""),
    "checkpoint": (lambda t: t.create_checkpoint(), "ok", ""),
    "add column": (add_column, "ok", ""),
    "set property": (
        lambda t: t.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"}),
        "ok",
        "",
    ),
    "add constraint": (
        lambda t: t.alter.add_constraint({"c": "v > -5"}),
        "set aside",
        "checkConstraints",
    ),
    "change data feed": (
        lambda t: t.alter.set_table_properties({"delta.enableChangeDataFeed": "true"}),
        "set aside",
        "changeDataFeed",
    ),
}

#: Actions that remove the cause.
REMEDIES: dict[str, Callable[[Any], object]] = {
    "add constraint": lambda t: t.alter.drop_constraint("c"),
    "change data feed": lambda t: t.alter.set_table_properties(
        {"delta.enableChangeDataFeed": "false"}
    ),
}

#: The same by statements of Spark, of which {t} is the table.
SPARK: dict[str, tuple[str, str, str]] = {
    "append": ("INSERT INTO {t} VALUES (1000, 1)", "modified", "WRITE"),
    "overwrite": ("INSERT OVERWRITE {t} VALUES (1000, 1)", "modified", "WRITE"),
    "delete": ("DELETE FROM {t} WHERE id = -1", "modified", "DELETE"),
    "update": ("UPDATE {t} SET v = 7 WHERE id = -1", "modified", "UPDATE"),
    "merge": (
        "MERGE INTO {t} t USING (SELECT 1000 AS id, 1 AS v) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "modified",
        "MERGE",
    ),
    "truncate": ("TRUNCATE TABLE {t}", "modified", "TRUNCATE"),
    "restore by version": ("RESTORE {t} TO VERSION AS OF 1", "ok", ""),
    "restore by time": ("RESTORE {t} TO TIMESTAMP AS OF '{time}'", "ok", ""),
    "optimize": ("OPTIMIZE {t}", "ok", ""),
    "z-order": ("OPTIMIZE {t} ZORDER BY (id)", "ok", ""),
    "vacuum": ("VACUUM {t} RETAIN 0 HOURS", "ok", ""),
    "reorg": ("REORG TABLE {t} APPLY (PURGE)", "ok", ""),
    "add column": ("ALTER TABLE {t} ADD COLUMN extra int", "ok", ""),
    "set property": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 9 days')",
        "ok",
        "",
    ),
    "add constraint": (
        "ALTER TABLE {t} ADD CONSTRAINT c CHECK (v > -5)",
        "set aside",
        "checkConstraints",
    ),
    "change data feed": (
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "set aside",
        "changeDataFeed",
    ),
}


def make_rows(made: MirrorOf, writer: Writer) -> None:
    """Mirror three turns, of which the later ones mark rows in deletion vectors."""
    for number in (1, 2, 3):
        change(writer, number)
        if number > 1:
            writer.commit(build.update(1, build.row(str(1 - number), "3")))
            writer.flush()
        made.run("public.t1")


def check_state(made: MirrorOf, writer: Writer, name: str, state: str, text: str) -> None:
    """Check the state of a table after what another program did, and after two more turns.

    Then do what the docs say about it.
    """
    for number in (4, 5):
        if number == 5:  # what was seen once is known without its commit
            target = table(made)
            if state != "set aside":
                target.create_checkpoint()
                for commit in (made.lake / "public/t1/_delta_log").glob("*.json"):
                    if int(commit.stem) < target.version():
                        commit.unlink()
        change(writer, number)
        writer.commit(build.update(1, build.row("-1", str(number))))
        writer.flush()
        made.run("public.t1")
        row = made.status()["public.t1"]
        assert row["state"] == state, row["error"]
        if state == "ok":
            assert row["error"] is None
            rows = [{"id": each["id"], "v": each["v"]} for each in made.rows("public.t1")]
            assert rows == made.expected("public.t1")
        else:
            assert text in row["error"]
            assert row["hint"]
    if state == "modified":
        assert "log add-table --table public.t1" in row["hint"]
        # A truncate, as at the beginning of a copy, makes it right again.
        writer.commit(build.truncate(1), build.insert(1, "5", "5"))
        writer.flush()
    elif state == "set aside":
        REMEDIES[name](table(made))
        made.resume("public.t1")
    made.run("public.t1")
    assert states(made) == {"public.t1": "ok"}
    rows = [{"id": each["id"], "v": each["v"]} for each in made.rows("public.t1")]
    assert rows == made.expected("public.t1")


class TestOtherPrograms:
    """Rows that they change differ from the server's."""

    @pytest.mark.parametrize("name", OTHERS)
    def test_delta_rs(self, local: MirrorOf, writer: Writer, name: str) -> None:
        act, state, operation = OTHERS[name]
        make_rows(local, writer)
        act(table(local))
        version = table(local).version()
        is_modified = state == "modified"
        text = f"rows: {operation} in version {version}" if is_modified else operation
        check_state(local, writer, name, state, text)

    @pytest.mark.slow
    @pytest.mark.thorough
    @pytest.mark.parametrize("name", SPARK)
    def test_spark(self, local: MirrorOf, writer: Writer, spark: SparkSession, name: str) -> None:
        if not has(DELTA):
            pytest.skip("needs Delta's jars, which Maven fetches for Spark 4.1 and 4.2")
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        statement, state, operation = SPARK[name]
        make_rows(local, writer)
        path = local.lake / "public" / "t1"
        milliseconds = table(local).history(2)[-1]["timestamp"]
        time = datetime.fromtimestamp(milliseconds / 1e3, timezone.utc)
        target = f"delta.`{path}`"
        # Spark's VACUUM does not know vectors that are in the commits.
        fails = pytest.raises(Exception, match="MatchError") if name == "vacuum" else nullcontext()
        with fails:
            spark.sql(statement.format(t=target, time=time.isoformat(timespec="milliseconds")))
        check_state(local, writer, name, state, operation)

    def test_the_docs_have_each_operation(self) -> None:
        page = Page(PAGES / "howto" / "mirror.md").text
        rows = re.findall(r"^\| (.+?) \| (delta-rs|Spark|delta-rs, Spark) \| `(.+?)`", page, re.M)
        for program, operations in (("delta-rs", OTHERS), ("Spark", SPARK)):
            documented = {
                name: state
                for names, programs, state in rows
                if program in programs
                for name in names.split(", ")
            }
            assert documented == {name: row[1] for name, row in operations.items()}

    def test_between_plan_and_commit(
        self, local: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change(writer, 1)
        local.run()
        commit_of, appended = TableTurns._commit_of, []

        def late(self: Any, of: Any, *arguments: Any) -> Any:
            found = commit_of(self, of, *arguments)
            if of.name == "public.t1" and not appended:
                appended.append(1)
                deltalake.write_deltalake(table(local), ROW, mode="append")
            return found

        monkeypatch.setattr(TableTurns, "_commit_of", late)
        change(writer, 2)
        local.run()
        assert states(local) == dict.fromkeys(TABLES, "ok") | {"public.t1": "modified"}
        rows = {row["id"] for row in local.rows("public.t1")}
        assert rows == {1000, -1, -2}

    def test_rows_from_before_the_mirror(self, local: MirrorOf, writer: Writer) -> None:
        deltalake.write_deltalake(str(local.lake / "public" / "t1"), ROW)
        change(writer, 1)
        local.run()
        assert states(local)["public.t1"] == "modified"


class TestAnotherLog:
    """Its positions cannot be compared with those of the log that the tables are from."""

    @pytest.fixture
    def other(self, local: MirrorOf, writer: Writer, tmp_path: Path) -> Writer:
        """The log begins again, at lower LSNs."""
        for number in (1, 2, 3):
            change(writer, number)
        local.run()
        shutil.rmtree(tmp_path / "log")
        found = Writer(tmp_path)
        found.commit(KEYED, KEYLESS, build.insert(1, "9", "9"), build.insert(2, "9", "9"))
        found.flush()
        return found

    def test_it_is_refused(self, local: MirrorOf, other: Writer) -> None:
        from pgwire_codec.errors import TableError

        before = {name: local.rows(name) for name in TABLES}
        text = r"tables from another log than the log .*: public\.t1, .* — hint: .*--replace"
        with pytest.raises(TableError, match=text):
            local.run()
        shutil.rmtree(local.lake / "_mirror")
        local.run()
        row = local.status()["public.t1"]
        assert row["state"] == "set aside"
        assert "has rows from the log " in row["error"]
        assert "--replace" in row["hint"]
        assert {name: local.rows(name) for name in TABLES} == before

    def test_its_tables_replace_those_of_the_former(self, local: MirrorOf, other: Writer) -> None:
        local.run(replace=True)
        check(local, "public.t1", "public.t2")
        assert states(local) == {"public.t1": "ok", "public.t2": "ok", "public.t3": "gone"}
        other.commit(build.insert(1, "10", "10"))
        other.flush()
        local.run()
        check(local, "public.t1", "public.t2")

    def test_a_history_is_not_replaced(
        self, tmp_path: Path, local: MirrorOf, writer: Writer
    ) -> None:
        change(writer, 1)
        local.run(history=True)
        shutil.rmtree(tmp_path / "log")
        again = Writer(tmp_path)
        change(again, 2)
        local.run(history=True, replace=True)
        row = local.status()["public.t1"]
        assert (row["state"], len(local.rows("public.t1"))) == ("set aside", 3)
        assert "Mirror into another folder" in row["hint"]


def test_the_position_and_the_facts_are_in_the_commits(local: MirrorOf, writer: Writer) -> None:
    change(writer, 1)
    local.run(masks={"public.t1.v": "constant:5"})
    facts = json.loads(table(local).metadata().configuration["pgwire_codec.mirror"])
    assert facts["log"]["slot"] == "slot"
    assert (facts["masks"], facts["incomplete"]) == (["v=constant:5"], {})
    assert len(delta_rows(str(local.lake / "public" / "t1"))) == 1


@pytest.mark.slow
@pytest.mark.thorough
def test_an_iceberg_table(spark: Any, tmp_path: Path, writer: Writer) -> None:
    """Rows of other programs make it modified, and a rollback has the changes applied again."""
    from tests.support.lakehouse import iceberg_snapshots, usable_engine

    usable_engine("iceberg")
    made = MirrorOf(spark, tmp_path, "iceberg")
    for number in (1, 2):
        change(writer, number)
        made.run()
    name = made.name("public.t2")
    catalog, _, rest = name.partition(".")
    first = iceberg_snapshots(spark, name)[0]
    spark.sql(
        f"CALL {catalog}.system.rollback_to_snapshot('{rest.replace('`', '')}', {first})"
    ).collect()
    made.run()
    check(made)
    spark.sql(f"DELETE FROM {made.name('public.t1')} WHERE id = -1")
    spark.sql(f"CALL {catalog}.system.rewrite_data_files('public.t2')").collect()
    for number in (3, 4):
        change(writer, number)
        made.run()
        row = made.status()["public.t1"]
        assert row["state"] == "modified"
        assert "another program has changed rows: " in row["error"]
        assert " in snapshot " in row["error"]
        check(made, *TABLES[1:])

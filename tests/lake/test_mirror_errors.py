"""Errors that may pass or follow a commit, and damaged files: a table fails alone, or goes on."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec import log
from pgwire_codec.errors import PgwireError, TableError
from pgwire_codec.lake import mirror_run, mirroring, table_turns
from pgwire_codec.lake.folder import LocalFolder
from pgwire_codec.lake.mirror_options import MirrorOptions
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.lake.tables import delta
from pgwire_codec.lake.tables.target import CommitConflict
from tests.lake.test_other_writers import TABLES, change, check, states
from tests.support import build
from tests.support.mirrors import MirrorOf, Writer, relation

deltalake = pytest.importorskip("deltalake")


@pytest.fixture
def local(tmp_path: Path) -> MirrorOf:
    return MirrorOf(None, tmp_path, "local")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are short."""
    monkeypatch.setattr(mirroring, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(mirror_run, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(mirror_run, "_LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(table_turns, "_PAUSE", 0.001)


def failing(times: int, error: Callable[[], Exception], after: Any = None) -> Any:
    """Return a function that raises an error some times, after it has called another one."""
    left = [times]

    def fail(*arguments: Any, **options: Any) -> Any:
        if left[0] and "_mirror" not in getattr(arguments[0], "name", ""):
            left[0] -= 1
            if after is not None:
                after(*arguments, **options)
            raise error()
        return None if after is None else after(*arguments, **options)

    return fail


def no_answer() -> Exception:
    return OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("history", [False, True])
def test_a_checkpoint_that_fails_after_its_commit(
    local: MirrorOf,
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
    history: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The changes are in the commit, and are not applied again."""
    monkeypatch.setattr(delta, "_CHECKPOINT_COMMITS", 1)
    fail = failing(20, no_answer)
    monkeypatch.setattr(deltalake.DeltaTable, "create_checkpoint", fail)
    for number in range(1, 4):
        change(writer, number)
        local.run(history=history)
    assert "has no new checkpoint: [Errno 5]" in caplog.text
    assert states(local) == dict.fromkeys(TABLES, "ok")
    if not history:
        check(local)
    else:
        assert [len(local.rows(name)) for name in TABLES] == [9, 3, 9]


@pytest.mark.parametrize("history", [False, True])
def test_an_error_after_the_commit(
    local: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch, history: bool
) -> None:
    """The next attempt begins with what the table has then."""
    change(writer, 1)
    local.run(history=history)
    commit = delta.DeltaTarget.commit
    monkeypatch.setattr(delta.DeltaTarget, "commit", failing(4, no_answer, commit))
    for number in (2, 3):
        change(writer, number)
        local.run(history=history)
    assert states(local) == dict.fromkeys(TABLES, "ok")
    if not history:
        check(local)
    else:
        assert [len(local.rows(name)) for name in TABLES] == [9, 3, 9]


def test_conflicts_of_many_turns(
    local: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than a turn tries again: the table comes back by itself."""
    change(writer, 1)
    local.run()
    change(writer, 2)
    commit, left = delta.DeltaTarget.commit, [50]
    seen: list[tuple[str, str | None]] = []

    def fail(self: delta.DeltaTarget, of: Any) -> None:
        if left[0] and self.name.endswith("t1"):
            left[0] -= 1
            raise CommitConflict("another mirror wrote changes")
        commit(self, of)

    monkeypatch.setattr(delta.DeltaTarget, "commit", fail)

    def report(batch: Any) -> None:
        seen.extend((row.state, row.hint) for row in batch.changed if row.table == "public.t1")

    local.run(report=report)
    assert [state for state, _ in seen] == ["retrying", "retrying", "ok"]
    assert (seen[0][1] or "").startswith("A mirror tries the table again by itself.")
    check(local)


@pytest.mark.parametrize("name", ["read", "create", "writer"])
@pytest.mark.parametrize(
    "number", [errno.EIO, errno.EMFILE, errno.ETIMEDOUT, errno.ECONNRESET, errno.ESTALE]
)
def test_an_error_of_the_disk_or_store_that_passes(
    local: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """More often than a turn tries again: a table comes back by itself."""
    change(writer, 1)
    local.run()
    change(writer, 2)
    method, left = getattr(LocalFolder, name), [25]

    def fail(self: LocalFolder, *arguments: Any, **options: Any) -> Any:
        if left[0] and self.uri.endswith("t1"):
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        return method(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, name, fail)
        local.run(checkpoint=str(local.lake / "checkpoint"))
    assert not left[0]
    assert states(local) == dict.fromkeys(TABLES, "ok")
    check(local)
    lsn = log.LsnFile(str(local.lake / "checkpoint" / "lsn")).read_lsn()
    assert lsn == writer.lsn


def test_an_error_that_does_not_pass_in_time(
    local: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The log is kept for the table, and the command says that it fails."""
    change(writer, 1)
    checkpoint = str(tmp_path / "checkpoint")
    local.run(checkpoint=checkpoint)
    lsn = writer.lsn
    change(writer, 2)
    method = LocalFolder.writer

    def fail(self: LocalFolder, path: str) -> Any:
        if self.uri.endswith("t1"):
            raise no_answer()
        return method(self, path)

    monkeypatch.setattr(mirroring, "_PATIENCE_SECONDS", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "writer", fail)
        local.run(checkpoint=checkpoint)
    row = local.status()["public.t1"]
    assert row["state"] == "retrying"
    assert row["error"].endswith("OSError: [Errno 5] Input/output error")
    assert row["hint"].startswith("The table is tried again by itself.")
    assert datetime.now(timezone.utc) - row["since"] < timedelta(minutes=1)
    check(local, *TABLES[1:])
    assert log.LsnFile(f"{checkpoint}/lsn").read_lsn() == lsn
    local.run(checkpoint=checkpoint)
    check(local)
    assert local.status()["public.t1"]["since"] is None
    assert log.LsnFile(f"{checkpoint}/lsn").read_lsn() == writer.lsn


def test_the_log_is_held_for_a_table_that_is_set_aside(
    local: MirrorOf, writer: Writer, tmp_path: Path
) -> None:
    """For a time that is an option: a person can resume it meanwhile."""
    change(writer, 1)
    lsn, checkpoint = writer.lsn, str(tmp_path / "checkpoint")
    local.run(checkpoint=checkpoint)
    text = relation(1, build.column("id", "int4", key=True), build.column("v"))
    writer.commit(text, build.insert(1, "50", "text"))
    change_others = relation(4, build.column("id", "int4", key=True))
    writer.commit(change_others, build.insert(4, "1"))
    writer.flush()
    local.run(checkpoint=checkpoint)
    assert states(local)["public.t1"] == "set aside"
    read = log.LsnFile(f"{checkpoint}/lsn").read_lsn
    assert lsn <= read() < writer.lsn
    local.run(checkpoint=checkpoint, hold="1 hour")
    assert lsn <= read() < writer.lsn
    local.run(checkpoint=checkpoint, hold=0)
    assert read() == writer.lsn
    with pytest.raises(PgwireError, match="`hold`: 'soon' is not a time such as"):
        local.run(hold="soon")


def test_the_only_table_is_resumed(local: MirrorOf, writer: Writer) -> None:
    price = build.column("price", "numeric", typmod=(10 << 16) + 2 + 4)
    writer.commit(
        relation(1, build.column("id", "int4", key=True), price), build.insert(1, "1", "NaN")
    )
    writer.flush()
    local.run()
    assert states(local) == {"public.t1": "set aside"}
    local.resume("public.t1")
    local.run()
    assert states(local) == {"public.t1": "set aside"}
    local.resume("public.t1")
    local.run(unrepresentable="null")
    assert states(local) == {"public.t1": "ok"}


def damage_nothing(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("tables", [1, 3])
@pytest.mark.parametrize("file", ["*.json", "*.checkpoint.parquet"])
def test_a_damaged_commit_or_checkpoint(
    local: MirrorOf,
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    tables: int,
    tmp_path: Path,
) -> None:
    """The table fails alone, with the file's name, and what the log has for it is kept."""
    monkeypatch.setattr(delta, "_CHECKPOINT_COMMITS", 2)
    names, checkpoint = ",".join(TABLES[:tables]), str(tmp_path / "checkpoint")
    for number in range(1, 4):
        change(writer, number)
        local.run(names, checkpoint=checkpoint)
    lsn, folder = writer.lsn, local.lake / "public" / "t1" / "_delta_log"
    shutil.copytree(folder, tmp_path / "sound")
    newest = sorted(folder.glob(file))[-1]
    newest.write_bytes(b"{damaged")
    for path in folder.glob("*.json"):
        if file != "*.json":
            path.unlink()
    change(writer, 4)
    local.run(names, checkpoint=checkpoint)
    row = local.status()["public.t1"]
    assert row["state"] == "set aside"
    assert newest.name in row["error"]
    assert row["hint"]
    if tables > 1:
        check(local, *TABLES[1:])
    assert lsn <= log.LsnFile(f"{checkpoint}/lsn").read_lsn() < writer.lsn
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "sound", folder)
    local.resume("public.t1")
    local.run(names, checkpoint=checkpoint)
    check(local, *TABLES[:tables])


def test_a_data_file_that_is_missing(local: MirrorOf, writer: Writer) -> None:
    change(writer, 1)
    local.run()
    for path in (local.lake / "public" / "t1").glob("*.parquet"):
        path.unlink()
    writer.commit(build.update(1, build.row("-1", "5")))
    writer.flush()
    local.run()
    row = local.status()["public.t1"]
    assert (row["state"], row["error"][-10:]) == ("set aside", "is missing")
    assert row["hint"].startswith("Restore the file")
    check(local, *TABLES[1:])


def test_a_damaged_status_table(local: MirrorOf, writer: Writer) -> None:
    """It is written for people: the mirror goes on, or says that the folder may be deleted."""
    change(writer, 1)
    local.run()
    for path in (local.lake / "_mirror").glob("*.parquet"):
        path.write_bytes(b"damaged")
    change(writer, 2)
    local.run()
    check(local)
    assert states(local) == dict.fromkeys(TABLES, "ok")
    newest = sorted((local.lake / "_mirror" / "_delta_log").glob("*.json"))[-1]
    newest.write_bytes(b"{damaged")
    with pytest.raises(TableError, match=r"damaged.* — hint: .*[Rr]emove the folder .*_mirror"):
        local.run()
    shutil.rmtree(local.lake / "_mirror")
    local.run()
    check(local)


def test_the_status_table_cannot_be_written_for_a_time(
    local: MirrorOf, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(writer, 1)
    method, left = LocalFolder.writer, [5]

    def fail(self: LocalFolder, path: str) -> Any:
        if left[0] and self.uri.endswith("_mirror"):
            left[0] -= 1
            raise no_answer()
        return method(self, path)

    monkeypatch.setattr(LocalFolder, "writer", fail)
    local.run()
    assert not left[0]
    check(local)
    assert states(local) == dict.fromkeys(TABLES, "ok")


def test_quiet_tables_and_a_new_one_while_the_log_is_pruned(
    local: MirrorOf, writer: Writer
) -> None:
    """A running mirror knows up to where tables without changes are complete."""
    change(writer, 1)
    options = MirrorOptions()
    run = mirror_run.MirrorRun(local.log, ["*"], local.opened, options, Threads())
    run.turn(0)
    for number in (1, 2):
        writer.commit(build.insert(1, str(number + 1), "0"))
        writer.flush()
        run.turn(number)
    log.prune(local.log, writer.lsn)
    assert log.Log(local.log).begin.lsn > 20  # the last commit of the others
    writer.commit(relation(4, build.column("id", "int4", key=True)), build.insert(4, "1"))
    writer.flush()
    run.turn(3)
    run.write_status(is_end=True)
    assert states(local) == dict.fromkeys((*TABLES, "public.t4"), "ok")
    writer.commit(build.insert(2, "5", "5"))
    writer.flush()
    local.run()
    assert states(local) == dict.fromkeys((*TABLES, "public.t4"), "ok")
    assert len(local.rows("public.t2")) == 2

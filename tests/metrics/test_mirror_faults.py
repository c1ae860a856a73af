"""Metrics of a mirror, each under the fault that it is for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pgwire_codec.lake.mirror_options import MirroredBatch
from pgwire_codec.lake.status import SET_ASIDE, TableStatus
from pgwire_codec.metrics import MirrorMetrics, MirrorWatch
from pgwire_codec.metrics import instruments as i
from pgwire_codec.metrics.endpoint import Endpoint
from pgwire_codec.metrics.log_watch import LogWatch
from tests.support import build
from tests.support.metric_pages import Served
from tests.support.mirrors import ID, Writer, relation
from tests.support.slot_captures import wait_until

#: Instruments that a test of this file sees moving.
MOVED: set[i.Instrument] = set()

Test = Callable[..., None]


def moves(*instruments: i.Instrument) -> Callable[[Test], Test]:
    MOVED.update(instruments)
    return lambda test: test


def test_every_instrument_has_its_fault() -> None:
    assert {each.name for each in MOVED} == {
        each.name for each in i.INSTRUMENTS if ".mirror." in each.name
    }


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """A log with a row of each of two tables, committed at LSN 10."""
    made = Writer(tmp_path)
    made.commit(relation(1, ID), build.insert(1, "1"), relation(2, ID), build.insert(2, "1"))
    made.flush()
    return made


@contextmanager
def watched(folder: Path) -> Iterator[tuple[MirrorWatch, Served]]:
    with (
        Endpoint("127.0.0.1:0") as endpoint,
        MirrorMetrics(endpoint.meter_provider).watch(str(folder / "log"), "lake") as watch,
    ):
        endpoint.serve(watch)
        assert wait_until(lambda: watch.log.end_lsn is not None)
        yield watch, Served(endpoint.port)


def status(table: int, whole: int, **fields: Any) -> TableStatus:
    given: dict[str, Any] = {"complete_lsn": whole, "commit_lsn": whole, "changes": 1, **fields}
    return TableStatus(f"public.t{table}", table, **given)


def batch(number: int, until: int, *tables: TableStatus) -> MirroredBatch:
    return MirroredBatch(number, until, tables, lambda: tables)


@moves(
    i.MIRROR_ACTIVE,
    i.MIRROR_BATCHES,
    i.MIRROR_LSN,
    i.LOG_LSN,
    i.TABLE_CHANGES,
    i.TABLE_LSN,
    i.TABLE_LAG_BYTES,
    i.TABLE_LAG_SECONDS,
)
def test_a_mirror_that_does_not_keep_up(writer: Writer, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    with watched(tmp_path) as (watch, served):
        page = served.page()
        assert (page[i.MIRROR_ACTIVE], page[i.MIRROR_BATCHES], page[i.LOG_LSN]) == (0, 0, 10)
        assert page.get(i.TABLE_LSN) is None
        assert served.get("/readyz") == (503, "the mirror does not run\n")
        running: Any = SimpleNamespace(isActive=True)
        with watch.running(running):
            minute_ago = now - timedelta(minutes=1)
            applied = [status(each, 10, commit_time=minute_ago) for each in (1, 2)]
            watch.report(batch(0, 10, *applied))
            page = served.page()
            assert (page[i.MIRROR_ACTIVE], page[i.MIRROR_BATCHES]) == (1, 1)
            assert served.get("/readyz") == served.get("/healthz") == (200, "ok\n")
            assert page[i.MIRROR_LSN] == 10
            for table in ("public.t1", "public.t2"):
                assert page.get(i.TABLE_LSN, table=table) == 10
                assert page.get(i.TABLE_CHANGES, table=table) == 1
                assert page.get(i.TABLE_LAG_BYTES, table=table) == 0
                assert page.get(i.TABLE_LAG_SECONDS, table=table) == 0
            writer.commit(relation(1, ID), build.insert(1, "2"))
            writer.flush()
            watch.log.sample()
            page = served.page()
            assert page[i.LOG_LSN] == 20
            assert page.get(i.TABLE_LAG_BYTES, table="public.t1") == 10
            assert (page.get(i.TABLE_LAG_SECONDS, table="public.t1") or 0) > 0
            assert page.get(i.TABLE_LAG_BYTES, table="public.t2") == 0  # it has no changes
            watch.report(batch(1, 20, *(replace(each, complete_lsn=20) for each in applied)))
            page = served.page()
            assert page.get(i.TABLE_LAG_BYTES, table="public.t1") == 0
            assert page.get(i.TABLE_CHANGES, table="public.t1") == 2
            assert page[i.MIRROR_LSN] == 20
        assert served.page()[i.MIRROR_ACTIVE] == 0


@moves(i.TABLE_DEAD_LETTERS)
def test_changes_that_do_not_decode(writer: Writer, tmp_path: Path) -> None:
    with watched(tmp_path) as (watch, served):
        watch.report(batch(0, 10, status(1, 10), status(2, 10)))
        watch.report(batch(1, 20, status(1, 20, dead_letters=3), status(2, 20)))
        page = served.page()
        assert page.get(i.TABLE_DEAD_LETTERS, table="public.t1") == 3
        assert page.get(i.TABLE_DEAD_LETTERS, table="public.t2") == 0
        watch.report(batch(2, 30, status(1, 30), status(2, 30)))
        assert served.page().get(i.TABLE_DEAD_LETTERS, table="public.t1") == 0


@moves(i.TABLE_STATE, i.TABLE_ERRORS)
def test_a_table_that_is_set_aside(writer: Writer, tmp_path: Path) -> None:
    with watched(tmp_path) as (watch, served):
        watch.report(batch(0, 10, status(1, 10), status(2, 10)))
        aside = status(1, 10, state=SET_ASIDE, error="wrong")
        watch.report(batch(1, 20, aside, status(2, 20)))
        page = served.page()
        assert page.get(i.TABLE_STATE, table="public.t1", state="set aside") == 1
        assert page.get(i.TABLE_STATE, table="public.t1", state="ok") == 0
        assert page.get(i.TABLE_STATE, table="public.t2", state="ok") == 1
        assert page.get(i.TABLE_ERRORS, table="public.t1") == 1
        assert page.get(i.TABLE_ERRORS, table="public.t2") == 0
        assert page.get(i.TABLE_LSN, table="public.t1") == 10
    with watched(tmp_path) as (watch, served):  # restarted, without changes
        watch.known([aside])
        page = served.page()
        assert page.get(i.TABLE_STATE, table="public.t1", state="set aside") == 1
        assert page[i.MIRROR_BATCHES] == 0


@moves(i.LOG_AGE, i.LOG_ERRORS)
def test_a_log_that_cannot_be_read(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogWatch.__init__, "__defaults__", (0.05,))
    with watched(tmp_path) as (watch, served):
        assert served.page().get(i.LOG_ERRORS) is None
        shutil.move(tmp_path / "log", tmp_path / "gone")
        assert wait_until(lambda: served.page()[i.LOG_AGE] > 0.5)
        assert (served.page().get(i.LOG_ERRORS, code="LogError") or 0) > 2
        shutil.move(tmp_path / "gone", tmp_path / "log")
        assert wait_until(lambda: served.page()[i.LOG_AGE] < 0.5)
        writer.commit(build.insert(1, "2"))
        writer.flush()
        assert wait_until(lambda: watch.log.end_lsn == 20)

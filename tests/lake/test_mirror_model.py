"""A mirror beside a model: rows in memory, other writers, failures after commits, and kills."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pgwire_codec import log
from pgwire_codec.errors import TableError
from pgwire_codec.lake import mirror_run, mirroring, rewriting, table_turns
from pgwire_codec.lake.folder import LocalFolder
from pgwire_codec.lake.runners import threads
from pgwire_codec.lake.table_turns import TableTurns
from pgwire_codec.lake.tables import delta
from tests.support import build, spark_logs
from tests.support.build import column
from tests.support.killed_writes import Killed, Writes
from tests.support.mirrors import ID, MirrorOf, Row, in_order, relation

deltalake = pytest.importorskip("deltalake")

INT = "int4"
KEYS = st.integers(0, 5)
VALUES = st.integers(0, 2)

#: A table with a key, one without identity, and one that is identified by all values.
RELATIONS = {
    1: relation(1, ID, column("v", INT)),
    2: relation(2, column("id", INT), column("v", INT), identity="n"),
    3: relation(3, column("id", INT, key=True), column("v", INT, key=True), identity="f"),
}
NAMES = {oid: f"public.t{oid}" for oid in RELATIONS}

#: Seals of segments that a log has to be pruned.
STEPS = st.sampled_from(["_advance", "_work", "_commit_of", "_finish"])


class Mirrored(RuleBasedStateMachine):
    """The operations."""

    #: Numbers of the operations of all examples.
    done: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="pgwire_codec-model-"))
        self.made = MirrorOf(None, self.folder, "local")
        self.lsn = 0
        self.rows: dict[int, list[tuple[int, int]]] = {oid: [] for oid in RELATIONS}
        self.modified: set[int] = set()  # tables whose rows another program changed
        self.emptied: set[int] = set()  # tables whose last truncate may not be applied yet
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(threads, "_cores", lambda: 1)  # so that examples can be repeated
        self.patch.setattr(mirroring, "_PAUSE_SECONDS", 0.001)
        self.patch.setattr(mirror_run, "_FIRST_PAUSE", 0.001)
        self.patch.setattr(mirror_run, "_LONGEST_PAUSE", 0.001)
        self.patch.setattr(table_turns, "_PAUSE", 0.0)
        self.patch.setattr(delta, "_CHECKPOINT_COMMITS", 3)
        self.patch.setattr(rewriting, "_SMALL_FILES", 3)
        self.change_all()

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.folder)

    def write(self, *inside: Any) -> None:
        self.lsn += 10
        messages = build.transaction(*inside, xid=self.lsn, lsn=self.lsn)
        spark_logs.write(self.folder / "log", build.wire(messages))

    def change_all(self) -> None:
        """Have each table begin with a row."""
        self.write(*RELATIONS.values(), *(build.insert(oid, "9", "9") for oid in RELATIONS))
        for rows in self.rows.values():
            rows.append((9, 9))

    @rule(changes=st.lists(st.tuples(st.sampled_from([1, 2, 3]), KEYS, VALUES), min_size=1))
    def transaction(self, changes: list[tuple[int, int, int]]) -> None:
        messages: list[Any] = list(RELATIONS.values())
        for oid, key, value in changes:
            rows = self.rows[oid]
            row = build.row(str(key), str(value))
            if oid == 2:
                rows.append((key, value))
                messages.append(build.insert(2, str(key), str(value)))
            elif oid == 3:
                if (key, value) in rows:
                    rows.remove((key, value))
                    messages.append(build.delete(3, old=row))
                else:
                    rows += [(key, value)] * 2
                    messages += [build.insert(3, str(key), str(value))] * 2
            else:
                self._change_key(messages, key, value)
        self.write(*messages)

    def _change_key(self, messages: list[Any], key: int, value: int) -> None:
        rows = dict(self.rows[1])
        if key not in rows:
            rows[key] = value
            messages.append(build.insert(1, str(key), str(value)))
        elif value == 0:
            del rows[key]
            messages.append(build.delete(1, key=build.row(str(key), None)))
        elif value == 1 and key + 10 not in rows:  # another key, and a value that is not sent
            rows[key + 10] = rows.pop(key)
            old = build.row(str(key), None)
            messages.append(build.update(1, build.row(str(key + 10), ...), key=old))
        else:
            rows[key] = value
            messages.append(build.update(1, build.row(str(key), str(value))))
        self.rows[1] = list(rows.items())

    @rule(oid=st.sampled_from([1, 2, 3]))
    def truncate(self, oid: int) -> None:
        self.write(RELATIONS[oid], build.truncate(oid))
        self.rows[oid] = []
        self.emptied.add(oid)

    def run(self) -> None:
        self.made.run(checkpoint=str(self.folder / "checkpoint"))

    @rule()
    def mirror(self) -> None:
        self.run()
        self.check()

    @rule(number=st.integers(1, 40), times=st.integers(1, 8), is_after=st.booleans())
    def mirror_with_errors(self, number: int, times: int, is_after: bool) -> None:
        """Some operations on files fail, before or after they are done."""
        with errors_of_files(number, times, is_after=is_after):
            for _ in range(times + 1):
                try:
                    self.run()
                    break
                except TableError as error:  # before its first turn
                    if not error.is_transient:
                        raise
        self.check()

    @rule(number=st.integers(1, 40), moment=st.sampled_from(["during", "after"]))
    def kill(self, number: int, moment: Any) -> None:
        with Writes(number, moment).counted():
            try:
                self.run()
            except Killed:
                self.done["killed"] += 1

    @rule(step=STEPS, number=st.integers(0, 4))
    def another_mirror_meanwhile(self, step: str, number: int) -> None:
        method, calls = getattr(TableTurns, step), []

        def interrupted(turns: TableTurns, *arguments: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) == number + 1:
                self.made.run()
            return method(turns, *arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TableTurns, step, interrupted)
            self.made.run()
        self.check()

    @precondition(lambda self: self.has_tables())
    @rule(oid=st.sampled_from([1, 2, 3]), back=st.integers(1, 4), checkpoints=st.booleans())
    def restore(self, oid: int, back: int, checkpoints: bool) -> None:
        table = self.table(oid)
        if oid in self.modified or table.version() - back < 0:
            return
        table.restore(table.version() - back)
        if checkpoints:
            self.table(oid).create_checkpoint()

    @precondition(lambda self: self.has_tables())
    @rule(oid=st.sampled_from([1, 2, 3]))
    def append_by_another_program(self, oid: int) -> None:
        kind = pa.int32()
        rows = pa.table({"id": pa.array([100], kind), "v": pa.array([oid], kind)})
        deltalake.write_deltalake(self.table(oid), rows, mode="append")
        self.modified.add(oid)

    @precondition(lambda self: self.has_tables())
    @rule(oid=st.sampled_from([1, 2, 3]))
    def optimize(self, oid: int) -> None:
        self.table(oid).optimize.compact()

    @rule()
    def forget_the_status(self) -> None:
        shutil.rmtree(self.made.lake / "_mirror", ignore_errors=True)

    @rule()
    def prune(self) -> None:
        path = self.folder / "checkpoint" / "lsn"
        if path.exists():
            lsn = log.LsnFile(str(path)).read_lsn()
            if lsn >= self.lsn - 20:  # what is restored needs older changes
                return
            log.prune(self.made.log, lsn)

    def has_tables(self) -> bool:
        paths = (self.made.lake / f"public/t{oid}/_delta_log" for oid in RELATIONS)
        return all(any(path.glob("*.json")) for path in paths)

    def table(self, oid: int) -> Any:
        return deltalake.DeltaTable(str(self.made.lake / "public" / f"t{oid}"))

    def check(self) -> None:
        """Compare the tables with the model; only what another program changed may differ."""
        status = self.made.status()
        for oid, name in NAMES.items():
            state = status[name]["state"]
            expected_state = "modified" if oid in self.modified else "ok"
            # A truncate that came later makes it right.
            assert state == expected_state or (oid in self.emptied and state == "ok"), status[name]
            if state == "ok":
                self.modified.discard(oid)
            if state == "ok":
                expected: list[Row] = [{"id": key, "v": v} for key, v in self.rows[oid]]
                assert self.made.rows(name) == in_order(expected), name
        self.emptied.clear()

    @invariant()
    def the_recorded_lsn_is_not_ahead(self) -> None:
        path = self.folder / "checkpoint" / "lsn"
        if path.exists():
            assert log.LsnFile(str(path)).read_lsn() <= self.lsn


@contextmanager
def errors_of_files(number: int, times: int, *, is_after: bool) -> Iterator[None]:
    """Have the next operations from a number on fail, as if a disk was away."""
    calls = [0]

    def failing(method: Any) -> Any:
        def fail(self: LocalFolder, *arguments: Any, **options: Any) -> Any:
            calls[0] += 1
            fails = number <= calls[0] < number + times
            if fails and not is_after:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            result = method(self, *arguments, **options)
            if fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return result

        return fail

    with pytest.MonkeyPatch.context() as patch:
        for name in ("read", "create", "names", "exists", "open"):
            patch.setattr(LocalFolder, name, failing(getattr(LocalFolder, name)))
        yield


def case(examples: int, steps: int) -> Any:
    """Return the tests of some examples with some operations each."""
    found = type("Case", (Mirrored.TestCase,), {})
    found.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return found


TestFew = case(5, 8)
TestMany = pytest.mark.thorough(case(150, 20))

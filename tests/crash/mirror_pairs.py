"""Two mirrors of one log in one lake, which write side by side, and the checks of their tables.

The comparison at the end uses psycopg2, delta-rs and Python only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, Final, Literal, get_args

from tests.crash.harness import COMMAND
from tests.crash.mirror_workload import SETUP, MirrorWorkload
from tests.crash.trial import normal, target_rows
from tests.soak.services import Service
from tests.support.servers import Database
from tests.support.slot_captures import wait_until

#: Ways to run a mirror: without Spark, with it, once and again, and by ``pgwire-codec run``.
Kind = Literal["local", "spark", "once", "run"]

PAIRS: Final = tuple(combinations_with_replacement(get_args(Kind), 2))

_LIMIT: Final = 600.0  # seconds in which a process ends, or a snapshot is copied
_EVERY: Final = "0.1 seconds"
_STATES: Final = ("ok", "incomplete")

#: Columns by which an image of a row is matched; others are in all images of a table.
_KEYS: Final = {"keyed": ("id",), "pairs": ("a", "b"), "moved": ("id",)}


@dataclass(frozen=True)
class PairOutcome:
    """Result of a pair of mirrors."""

    transactions: int
    tables: int
    rows: int  # of the lake at the end
    commits: int
    incomplete: int
    faults: list[str]


def run(
    made: Database, folder: Path, seed: int, pair: tuple[str, str], seconds: float, history: bool
) -> PairOutcome:
    """Run two mirrors for some seconds beside changes, with all that is random from the seed."""
    made.execute(*SETUP)
    commands = _Commands(made, folder, history)
    names = [f"{number}-{kind}" for number, kind in enumerate(pair)]
    with ExitStack() as stack:
        mirrors: list[Service | _Repeated] = []
        # The file of the first `run` has the capture, too.
        first_run = next((name for name in names if name.endswith("run")), None)
        if first_run is None:
            services = [Service("capture", commands.capture(names), folder, print)]
        else:
            services = [Service(first_run, commands.run(first_run, names), folder, print)]
            mirrors += services
        for name in names:
            if name.endswith("once"):
                mirrors.append(_Repeated(commands.mirror(name, "--once", "--runner", "local")))
            elif name != first_run:
                service = Service(name, commands.of(name), folder, print)
                services.append(service)
                mirrors.append(service)
        for service in services:
            stack.callback(service.end)
        for each in mirrors:
            if isinstance(each, _Repeated):
                stack.callback(each.stop)

        def has_begun() -> bool:
            for service in services:
                service.check()
            return (folder / "lake" / "_mirror").exists()

        wait_until(has_begun, _LIMIT)
        with MirrorWorkload(made, seed, replaces=not history) as workload:
            stopped = threading.Event()
            for _ in range(int(seconds)):
                stopped.wait(1)
                for service in services:
                    service.check()
        for each in mirrors:
            if isinstance(each, _Repeated):
                each.stop()
        for service in reversed(services):
            service.stop(_LIMIT)
    faults = [fault for each in mirrors if isinstance(each, _Repeated) for fault in each.faults]
    faults += commands.finish()
    lake = folder / "lake"
    status = {row["table"]: row for row in target_rows(lake / "_mirror")}
    faults += [f"no {each}" for each in _server_tables(made) if f"public.{each}" not in status]
    rows = incomplete = 0
    for name, row in sorted(status.items()):
        if row["state"] not in _STATES or row["error"]:
            faults.append(f"{name} is {row['state']}: {row['error']}")
        incomplete += row["state"] == "incomplete"
        table = name.partition(".")[2]
        found = target_rows(lake / "public" / table)
        rows += len(found)
        if history:
            found, twice = _folded(table, found)
            faults += [f"{name} has a change twice: {each}" for each in twice]
        faults += [f"{name} {each}" for each in _differences(made, table, found)]
    return PairOutcome(
        workload.committed,
        len(status),
        rows,
        len(list(lake.glob("public/*/_delta_log/*.json"))),
        incomplete,
        faults,
    )


class _Commands:
    """Commands of a pair."""

    def __init__(self, made: Database, folder: Path, history: bool) -> None:
        self._made, self._folder = made, folder
        self._history = ["--history"] if history else []

    def of(self, name: str) -> list[str]:
        """Return the command of a mirror that does not end."""
        if name.endswith("run"):
            return self.run(name)
        runner = ["--runner", name.partition("-")[2]]
        memory = ["--conf", "spark.driver.memory=1g", "--conf", "spark.master=local[2]"]
        return self.mirror(name, *runner, *(memory if "spark" in name else []), "--every", _EVERY)

    def mirror(self, name: str, *options: str) -> list[str]:
        return [
            *(sys.executable, "-c", COMMAND, "mirror", "--json"),
            *("--log", str(self._folder / "log"), "--to", f"delta:{self._folder / 'lake'}"),
            *("--checkpoint", str(self._folder / name), *self._history, *options),
        ]

    def capture(self, consumers: list[str]) -> list[str]:
        """Return a capture, of which segments are removed that all mirrors have."""
        options = self._of_capture(consumers)
        pairs = [f"--{name}={each}" for name, values in options.items() for each in values]
        log = str(self._folder / "log")
        return [
            *(sys.executable, "-c", COMMAND, "capture", "--json", "--snapshot", "--log", log),
            *pairs,
        ]

    def run(self, name: str, consumers: list[str] | None = None) -> list[str]:
        """Return a ``run`` with the mirror of a name, and with the capture if it has consumers."""
        lines = [f"log = {json.dumps(str(self._folder / 'log'))}"]
        if consumers is not None:
            lines += ["[capture]", "snapshot = true"]
            for option, values in self._of_capture(consumers).items():
                lines.append(f"{option} = {json.dumps(values if len(values) > 1 else values[0])}")
        lines += [
            "[mirror]",
            f"to = {json.dumps('delta:' + str(self._folder / 'lake'))}",
            'runner = "local"',
            f"checkpoint = {json.dumps(str(self._folder / name))}",
            f"every = {json.dumps(_EVERY)}",
            *(["history = true"] if self._history else []),
        ]
        file = self._folder / f"{name}.toml"
        file.write_text("\n".join(lines))
        return [sys.executable, "-c", COMMAND, "run", str(file)]

    def finish(self) -> Iterator[str]:
        """Capture and mirror what is left; yield faults."""
        commands = [
            [*self.capture([]), "--until-lsn", "now"],
            self.mirror("last", "--once", "--runner", "local"),
        ]
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT)
            if done.returncode != 0:
                yield f"{command[3]} ended with {done.returncode}: {done.stderr[-2000:]}"

    def _of_capture(self, consumers: list[str]) -> dict[str, list[Any]]:
        retained: dict[str, list[Any]] = {
            "keep": ["2s"],
            "consumer": [f"file:{self._folder / name}/lsn" for name in consumers],
        }
        return {
            "dsn": [self._made.dsn],
            "slot": [self._made.slot],
            "publication": ["p"],
            "segment-bytes": [50000],
            **(retained if consumers else {}),
        }


class _Repeated(threading.Thread):
    """A command that is started again when it has ended."""

    def __init__(self, arguments: list[str]) -> None:
        super().__init__(name="once", daemon=True)
        self.faults: list[str] = []
        self.count = 0
        self._arguments = arguments
        self._stopping = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stopping.is_set():
            done = subprocess.run(self._arguments, capture_output=True, text=True, timeout=_LIMIT)
            # The log may not be there yet.
            if done.returncode != 0 and "is not a log" not in done.stderr:
                self.faults.append(f"--once ended with {done.returncode}: {done.stderr[-2000:]}")
            self.count += done.returncode == 0
            self._stopping.wait(0.1)

    def stop(self) -> None:
        """End after the running command."""
        self._stopping.set()
        self.join(_LIMIT)


def _server_tables(made: Database) -> list[str]:
    found = made.query("SELECT tablename::text FROM pg_publication_tables WHERE pubname = 'p'")
    return [name for (name,) in found]


def _differences(made: Database, table: str, found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield differences from the server's rows, in all columns that the server has."""
    names = [
        name
        for (name,) in made.query(
            "SELECT attname::text FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped"
            f" AND attrelid = '{table}'::regclass ORDER BY attnum"
        )
    ]
    columns = ", ".join(names)
    server = Counter(
        tuple(map(normal, row)) for row in made.query(f"SELECT {columns} FROM {table}")
    )
    # A column is not there before the first change after it.
    target = Counter(tuple(normal(row.get(name)) for name in names) for row in found)
    for what, rows in (("lacks", server - target), ("has too much", target - server)):
        for row, count in list(rows.items())[:3]:
            yield f"{what}: {count} of {names} {str(row)[:300]}"


def _folded(
    table: str, changes: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
    """Return the last state of the rows of a history, and the places of changes there twice."""
    # Of one change, the former image is the first.
    changes.sort(key=lambda each: each["_change"] != "update_preimage")
    changes.sort(key=lambda each: (each["_commit_lsn"], each["_seq"]))
    places = Counter((each["_commit_lsn"], each["_seq"], each["_change"]) for each in changes)
    rows: list[dict[str, Any]] = []
    former: dict[str, Any] | None = None
    for change in changes:
        image = {name: value for name, value in change.items() if name[0] != "_"}
        kind = change["_change"]
        if kind == "insert":
            rows.append(image)
        elif kind == "truncate":
            rows.clear()
        elif kind == "update_preimage":
            former = _taken(table, rows, image)
        elif kind == "delete":
            _taken(table, rows, image)
        else:
            before = former if former is not None else _taken(table, rows, image, is_new=True)
            former = None
            rows.append(image | {name: before[name] for name in change["_unchanged"] or ()})
    return rows, [place for place, count in places.items() if count > 1]


def _taken(
    table: str, rows: list[dict[str, Any]], image: dict[str, Any], *, is_new: bool = False
) -> dict[str, Any]:
    """Remove and return the row of an image, which has the key only, or all values."""
    names = _KEYS.get(table, ("id",)) if is_new else [*image]
    known = {name: image[name] for name in names if image[name] is not None}
    for place, row in enumerate(rows):
        if all(row.get(name) == value for name, value in known.items()):
            return rows.pop(place)
    raise AssertionError(f"a change of {table} of a row {known} that no change has made")

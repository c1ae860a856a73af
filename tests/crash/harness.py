"""One run: a capture under a workload, interrupted at random, and the checks of its log."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.capture import peek
from pgwire_codec.demo.server import EmbeddedServer
from tests.crash.random_workload import DDL, KEYS, PACE, Workload, settle
from tests.support import shop_rows
from tests.support.keyed_rows import AppliedTable, differences
from tests.support.servers import Database
from tests.support.slot_captures import wait_until

#: Python code of the command line.
COMMAND = "from pgwire_codec.cli import main; main()"
_ORACLE = "_oracle"
_LEAST_TRANSACTIONS = 40

Interruption = Literal["kill", "fast", "immediate"]


@dataclass(frozen=True)
class Outcome:
    """Result of a run."""

    interruptions: int
    transactions: int
    changes: int
    sessions: int
    repeated: int  # messages that the log has more than once
    faults: list[str]


def run(
    made: Database, folder: Path, seed: int, interruption: Interruption, pace: float = PACE
) -> Outcome:
    """Run once, with all that is random from the seed.

    ``kill`` kills the capture, ``fast`` and ``immediate`` restart the server; ``pace`` is the
    workload's.
    """
    chance = random.Random(seed)
    options = random_options(chance)
    snapshot = chance.random() < 0.3
    made.execute(DDL, "CREATE PUBLICATION p FOR ALL TABLES")
    arguments = command(made, folder, chance, options)
    if snapshot:
        arguments += ["--snapshot", "--jobs", "2"]
    else:
        two_phase = str(options["two_phase"]).lower()
        for slot in (made.slot, made.slot + _ORACLE):
            made.query(
                "SELECT pg_create_logical_replication_slot"
                f"('{slot}', 'pgoutput', false, {two_phase})"
            )
    count = chance.randint(2, 4)
    with Workload(made.dsn, seed, pace) as workload:
        if snapshot:
            time.sleep(chance.uniform(0.2, 1.0))
        if interruption == "kill":
            for _ in range(count):
                with capture_process(arguments) as capture:
                    if chance.random() < 0.3:  # as it starts, or connects, or begins
                        time.sleep(chance.uniform(0.05, 1.5))
                    else:
                        wait_for_stream(capture)
                        time.sleep(chance.uniform(0.0, 1.5))
        else:
            with capture_process(arguments) as capture:
                assert isinstance(made.server, EmbeddedServer)
                for _ in range(count):
                    time.sleep(chance.uniform(0.3, 2.0))
                    made.server.restart(interruption)
                time.sleep(chance.uniform(0.0, 1.0))
                check_that_it_lives(capture)
                # Half of them end as they should, and half are killed.
                if chance.random() < 0.5:
                    assert capture.stdout is not None
                    assert capture.stdout.readline()  # it handles signals by now
                    capture.send_signal(signal.SIGTERM)
                    assert capture.wait(30) == 0, capture.stderr and capture.stderr.read()
        # Interruptions in the first moments would leave next to nothing to compare.
        wait_until(lambda: workload.committed >= _LEAST_TRANSACTIONS)
    return finish(made, folder, arguments, count, workload.committed, None if snapshot else options)


def random_options(chance: random.Random) -> dict[str, Any]:
    """Return options of the plugin."""
    return {
        "streaming": chance.choice(["off", "on", "parallel"]),
        "two_phase": chance.random() < 0.6,
        "binary": chance.random() < 0.3,
    }


def command(
    made: Database, folder: Path, chance: random.Random, options: dict[str, Any]
) -> list[str]:
    """Return the command of a capture with these options, and others that are random."""
    return [
        sys.executable, "-c", COMMAND, "capture", "--json", "--dsn", made.dsn,
        "--slot", made.slot, "--publication", "p", "--log", str(folder),
        "--streaming", options["streaming"],
        "--flush-seconds", str(chance.choice([0.005, 0.1, 1.0])),
        "--segment-bytes", str(chance.choice([100_000, 1 << 20, 128 << 20])),
        *(["--two-phase"] if options["two_phase"] else []),
        *(["--binary"] if options["binary"] else []),
        *chance.choice([[], ["--compression", "lz4"]]),
    ]  # fmt: skip


def finish(
    made: Database,
    folder: Path,
    arguments: list[str],
    interruptions: int,
    transactions: int,
    options: dict[str, Any] | None,
) -> Outcome:
    """Capture what is left, and check the log; ``options`` as for the oracle slot, if any."""
    settle(made.dsn)
    ended = subprocess.run(
        [*arguments, "--until-lsn", "now", "--max-retries", "10"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    faults = [] if ended.returncode == 0 else [f"the last capture failed: {ended.stderr}"]
    faults += _faults(made, folder, options)
    held = Counter(data for batch in log.Log(folder).messages() for data in batch["data"])
    return Outcome(
        interruptions=interruptions,
        transactions=transactions,
        changes=len(_changes(log.Log(folder).changes())),
        sessions=len({segment.header.session for segment in log.Log(folder).segments}),
        repeated=sum(number - 1 for data, number in held.items() if data.as_py()[:1] in b"IUD"),
        faults=faults,
    )


@contextmanager
def capture_process(arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A capture that is killed at the end of the block."""
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
            if process.poll() != 0:
                check_that_it_lives(process)
        finally:
            process.kill()


def check_that_it_lives(capture: subprocess.Popen[bytes]) -> None:
    if capture.poll() is not None:
        assert capture.stderr is not None
        raise AssertionError(f"the capture ended: {capture.stderr.read().decode()}")


def wait_for_stream(capture: subprocess.Popen[bytes]) -> None:
    assert capture.stdout is not None
    for line in capture.stdout:
        if json.loads(line)["state"] == "streaming":
            return


def _faults(made: Database, folder: Path, options: dict[str, Any] | None) -> list[str]:
    """Return the faults of a log; ``options`` are of the slot to compare with, if there is one."""
    reader = log.Log(folder)
    changes = _changes(reader.changes(types="text"))
    faults = [f"twice: {place}" for place, count in _places(changes).items() if count > 1]
    # The same in parallel, partition by partition.
    in_parts = _changes_of(reader.read(types="text"))
    if _places(in_parts) != _places(changes):
        faults.append("the partitions do not have the changes of the whole")
    for table, key in KEYS.items():
        applied = AppliedTable(key)
        try:
            applied.apply(change for name, change in changes if name == table)
        except KeyError as error:
            faults.append(f"{table}: a change of a row {error} that no change has made")
            continue
        server = shop_rows.rows(made.dsn, f"public.{table}")
        # Columns that came later are not in the rows of before.
        columns = dict.fromkeys(server[0]) if server else {}
        for row_key, row in applied.rows.items():
            applied.rows[row_key] = {**columns, **row}
        faults += [f"{table}: {each}" for each in differences(applied, server)[:3]]
        if table == "journal" and applied.counts != {"I": len(server), "U": 0, "D": 0, "T": 0}:
            faults.append(f"journal has {len(server)} rows, and the log {applied.counts}")
    report = log.verify(folder)
    faults += map(str, report.damage)
    if options is not None:
        faults += _compare_with_oracle(made, changes, options)
    return faults


def _compare_with_oracle(
    made: Database, changes: list[tuple[str, dict[str, Any]]], options: dict[str, Any]
) -> list[str]:
    """Compare with another slot of the same start, which nobody read before."""
    peeked = peek(made.dsn, slot=made.slot + _ORACLE, publication="p", **options)
    expected = _changes([pgc.Decoder(types="text").decode(peeked.data)])
    for _, change in (*changes, *expected):
        del change["_lsn"]  # which the function reports differently from a walsender
    if changes == expected:
        return []
    pairs = zip(changes, expected, strict=False)
    wrong = [f"{ours} is not {theirs}" for ours, theirs in pairs if ours != theirs]
    return [f"another slot has {len(expected)} changes, the log {len(changes)}: {wrong[:1]}"]


def _changes(all_changes: Iterable[Any]) -> list[tuple[str, dict[str, Any]]]:
    return _changes_of(batch for changes in all_changes for batch in changes.batches)


def _changes_of(batches: Iterable[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return table and row of each change, in commit order."""
    found = [
        (batch.relation.name, row)
        for batch in batches
        for row in pa.record_batch(batch.to_arrow()).to_pylist()
    ]
    return sorted(found, key=lambda each: (each[1]["_commit_lsn"], each[1]["_seq"], each[0]))


def _places(changes: list[tuple[str, dict[str, Any]]]) -> Counter[tuple[int, int, str]]:
    """Count the changes of each place; a truncate has a row of each table that it names."""
    return Counter((row["_commit_lsn"], row["_seq"], name) for name, row in changes)

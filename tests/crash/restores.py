"""Restores of a mirror's tables to earlier versions, by delta-rs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from pgwire_codec import log

_APP_ID = "pgwire_codec"
_MOST_VERSIONS = 5


def applied(delta_log: Path) -> list[tuple[int, int, bool]]:
    """Return version, commit LSN, and if it was restored, of each commit that has changed rows."""
    found: list[tuple[int, int, bool]] = []
    for file in sorted(delta_log.glob("*.json")):
        version = int(file.stem)
        for line in file.read_text().splitlines():
            action = json.loads(line)
            transaction, info = action.get("txn", {}), action.get("commitInfo", {})
            if transaction.get("appId") == _APP_ID:
                found.append((version, transaction["version"], False))
            elif info.get("operation") == "RESTORE":
                restored = int(info["operationParameters"]["version"])
                found.append((version, lsn_at(found, restored), True))
    return found


def lsn_at(commits: list[tuple[int, int, bool]], version: int) -> int:
    """Return the commit LSN that a version of a table has."""
    return next(lsn for number, lsn, _ in reversed(commits) if number <= version)


def restore(lake: Path, log_folder: Path, chance: Random, tables: tuple[str, ...]) -> Path | None:
    """Restore a table to a version that lacks changes that the log has; return its folder.

    Returns None if no table has such a version.
    """
    begin = log.Log(log_folder).begin.lsn
    for name in chance.sample(tables, len(tables)):
        commits = applied(lake / "public" / name / "_delta_log")
        earlier = [
            version
            for version, lsn, _ in commits[-_MOST_VERSIONS:]
            if begin <= lsn < commits[-1][1]
        ]
        if earlier:
            version = chance.choice(earlier)
            while True:
                try:
                    DeltaTable(str(lake / "public" / name)).restore(version)
                except CommitFailedError:
                    continue
                return lake / "public" / name
    return None


def wait_for_changes(folder: Path, seconds: float, check: Callable[[], object]) -> None:
    """Wait until a table that was restored has the changes again."""
    deadline = time.monotonic() + seconds
    while True:
        commits = applied(folder / "_delta_log")
        place = max(number for number, each in enumerate(commits) if each[2])
        before = max(lsn for _, lsn, _ in commits[:place])
        if commits[-1][1] >= before:
            return
        check()
        assert time.monotonic() < deadline, f"{folder.name} lacks changes since its restore"
        time.sleep(0.2)

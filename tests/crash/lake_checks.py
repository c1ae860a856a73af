"""Checks of a lake's commits: each change once, and a status that agrees with the tables."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

from deltalake import DeltaTable

from pgwire_codec.lake.status import SET_ASIDE
from tests.support.lakehouse import delta_rows

_APP_ID = "pgwire_codec"


class Lake:
    """Delta tables of a mirror.

    ``applied`` has the version and the commit LSN of each commit with changes, by table.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.applied = {
            f"{log.parent.parent.name}.{log.parent.name}": _applied(log)
            for log in sorted(folder.glob("[!_]*/*/_delta_log"))
        }
        self.statuses = DeltaTable(str(folder / "_mirror")).version() + 1

    def faults(self) -> list[str]:
        """Return changes that may have been applied twice, and wrong statuses."""
        faults = [
            f"{table}: version {later} applied up to {lsn} after version {earlier} up to {before}"
            for table, commits in self.applied.items()
            for (earlier, before), (later, lsn) in pairwise(commits)
            if lsn <= before
        ]
        whole: dict[str, int] = {}
        for version in range(self.statuses):
            for row in delta_rows(self.folder / "_mirror", version).to_pylist():
                table, name = row["table"], f"{row['table']}, version {version} of its status"
                if row["state"] == SET_ASIDE:
                    faults.append(f"{name}: set aside: {row['error']}")
                if (row["complete_lsn"] or 0) < whole.get(table, 0):
                    faults.append(
                        f"{name}: whole up to {row['complete_lsn']}, before {whole[table]}"
                    )
                whole[table] = row["complete_lsn"] or 0
                held = [lsn for at, lsn in self.applied.get(table, []) if at <= row["version"]]
                if (held[-1] if held else None) != row["commit_lsn"]:
                    faults.append(f"{name}: {row['commit_lsn']}, but the table has {held[-1:]}")
        return faults


def _applied(log: Path) -> list[tuple[int, int]]:
    """Return versions and commit LSNs."""
    found = []
    for file in sorted(log.glob("*.json")):
        for line in file.read_text().splitlines():
            transaction = json.loads(line).get("txn", {})
            if transaction.get("appId") == _APP_ID:
                found.append((int(file.stem), transaction["version"]))
    return found

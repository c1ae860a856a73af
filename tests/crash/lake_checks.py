"""Checks of a lake's commits: each change once, and a status that agrees with the tables."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from deltalake import DeltaTable

from pgwire_codec.lake.status import SET_ASIDE
from tests.crash.restores import applied, lsn_at
from tests.support.lakehouse import delta_rows


class Lake:
    """Delta tables of a mirror.

    ``applied`` has the version and the commit LSN of each commit with changes, by table, and if it
    was a restore. A second mirror (``has_second``) writes its own view of a table's status.
    """

    def __init__(self, folder: Path, *, has_second: bool = False) -> None:
        self.folder = folder
        self._has_second = has_second
        self.applied = {
            f"{log.parent.parent.name}.{log.parent.name}": applied(log)
            for log in sorted(folder.glob("[!_]*/*/_delta_log"))
        }
        self.statuses = DeltaTable(str(folder / "_mirror")).version() + 1

    def faults(self) -> list[str]:
        """Return changes that may have been applied twice, and wrong statuses."""
        faults = [
            f"{table}: version {later} applied up to {lsn} after version {earlier} up to {before}"
            for table, commits in self.applied.items()
            for (earlier, before, _), (later, lsn, is_restored) in pairwise(commits)
            if lsn <= before and not is_restored
        ]
        whole: dict[str, int] = {}
        for version in range(self.statuses):
            for row in delta_rows(self.folder / "_mirror", version).to_pylist():
                table, name = row["table"], f"{row['table']}, version {version} of its status"
                if row["state"] == SET_ASIDE:
                    faults.append(f"{name}: set aside: {row['error']}")
                is_less = (row["complete_lsn"] or 0) < whole.get(table, 0)
                if is_less and not self._has_second:
                    faults.append(
                        f"{name}: whole up to {row['complete_lsn']}, before {whole[table]}"
                    )
                whole[table] = row["complete_lsn"] or 0
                commits = self.applied.get(table, [])
                held = [each for each in commits if each[0] <= row["version"]]
                lsn = lsn_at(held, row["version"]) if held else None
                if lsn != row["commit_lsn"]:
                    faults.append(f"{name}: {row['commit_lsn']}, but the table has {lsn}")
        return faults

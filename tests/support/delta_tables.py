"""Delta tables by delta-rs alone, and the statistics of a table's files."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import deltalake
import pyarrow as pa

#: Of numeric(20, 0), what MySQL's unsigned bigint becomes.
LARGEST: Final = Decimal(2**64 - 1)


def foreign_table(path: Path | str) -> None:
    """Write a table of two files with bounds that do not contain the highest keys."""
    for keys in ([1, LARGEST], [2, LARGEST - 1]):
        rows = {"k": pa.array(keys, pa.decimal128(20, 0)), "v": ["a", "b"], "f": [0.5, 1.5]}
        deltalake.write_deltalake(path, pa.table(rows), mode="append")
    assert all(each["maxValues"]["k"] == 2**63 - 1 for each in file_statistics(path))


def file_statistics(path: Path | str) -> list[dict[str, Any]]:
    """Statistics of the files that a table has now, oldest first."""
    live = {Path(file).name for file in deltalake.DeltaTable(path).file_uris()}
    commits = sorted((Path(path) / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for each in commits for line in each.read_text().splitlines()]
    added = [each["add"] for each in actions if "add" in each]
    return [json.loads(each["stats"]) for each in added if Path(each["path"]).name in live]

"""Answers queries for a number, one a line, with DuckDB and its Delta extension.

Run by an interpreter that has a release of DuckDB for which there is the extension.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import duckdb_ext


def main() -> None:
    (extension,) = Path(duckdb_ext.__path__[0]).rglob("delta.duckdb_extension")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    for line in sys.stdin:
        print(connection.execute(json.loads(line)).fetchone()[0], flush=True)


if __name__ == "__main__":
    main()

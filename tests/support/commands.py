"""Runs of the command line, and messages for them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from pgwire_codec.cli.app import app
from pgwire_codec.protocol import messages as m

INT4, TEXT = 23, 25

#: A shell whose mounts end with it. Root of a new user namespace may not enter a server's folder.
SHELL = ("unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c")


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def inspected(*arguments: object) -> list[str]:
    """Return the lines of a run that succeeds."""
    result = run("inspect", *arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout.splitlines()


def without_place(line: str) -> str:
    """Return a line without its index and LSN, with its indentation."""
    return line[22:]


def as_json(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in inspected("--json", *arguments)]


def write_lines(path: Path, messages: Iterable[bytes]) -> Path:
    lines = [{"options": {}}, *({"lsn": 255, "data": data.hex()} for data in messages)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def relation(*names: str, name: str = "t", xid: int | None = None) -> m.Relation:
    columns = tuple(m.RelationColumn(int(i == 0), each, TEXT, -1) for i, each in enumerate(names))
    return m.Relation(xid, 7, "public", name, "d", columns)


def row(kinds: bytes, *values: bytes | None) -> m.TupleData:
    return m.TupleData(kinds, values)

"""README.md: its Python runs and prints the text after it, its table of types is the code's."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pgwire_codec.cli.app import app
from pgwire_codec.demo.server import EmbeddedServer
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.types import NATIVE, TypeOptions, column_type, default_registry
from tests.support import logs
from tests.support.corpus import capture
from tests.support.servers import Database, database

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Database of the first example.
DSN = "dbname=shop"
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[object]:
    """Each block of a language, with the output that follows it or None."""
    found = []
    for match in FENCED.finditer(README):
        if match[1] == language:
            line = README.count("\n", 0, match.start()) + 1
            with_spark = re.search(r"\bspark\b", match[2]) is not None
            marks = [pytest.mark.slow, pytest.mark.xdist_group("spark-0")] if with_spark else []
            if DSN in match[2]:
                marks = [pytest.mark.slow]
            found.append(pytest.param(match[2], match[3], id=f"line{line}", marks=marks))
    return found


def write_messages(folder: Path) -> None:
    """Write what the Spark blocks read: a capture as Parquet files."""
    messages = capture("dml.pg18.v1-text").messages
    folder.mkdir()
    for start in range(0, len(messages), 50):
        data = messages[start : start + 50]
        ordinals = range(start, start + len(data))
        part = pa.table({"ordinal": ordinals, "data": pa.array(data, pa.binary())})
        pq.write_table(part, folder / f"{start:03}.parquet")


@pytest.fixture
def shop(pg18: EmbeddedServer) -> Iterator[Database]:
    """The database of the first example, made by the README's own statements."""
    with database(pg18) as made:
        [statements] = re.findall(r"^```sql\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
        made.execute(*(each.strip() for each in statements.split(";\n") if each.strip()))
        yield made


@pytest.mark.parametrize(("code", "expected"), blocks("python"))
def test_python_block(
    code: str,
    expected: str | None,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    if re.search(r"\bspark\b", code):
        names["spark"] = request.getfixturevalue("spark")
        write_messages(tmp_path / "messages")
        logs.write(capture("dml.pg18.v1-text"), tmp_path / "shop.log")
        # Spark's idea of the current folder is that of its start.
        for name in ("messages", "shop.log"):
            code = code.replace(f'"{name}"', repr(str(tmp_path / name)))
    if DSN in code:
        made = request.getfixturevalue("shop")
        code = code.replace(DSN, made.dsn)
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), names)
    assert expected is not None, "say what the block prints, in a text block after it"
    assert printed.getvalue().rstrip("\n") == expected.rstrip("\n")


def test_python_blocks_are_found() -> None:
    assert len(blocks("python")) == 6


INSPECT = re.findall(r"^pgwire-codec (inspect .*)$", README, re.MULTILINE)


@pytest.mark.parametrize("command", INSPECT)
def test_inspect_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, shlex.split(command))
    assert result.exit_code == 0, result.output
    assert result.stdout


def test_make_targets_exist() -> None:
    assert INSPECT
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"\bmake (\w+) +#", README)
    assert named
    assert set(named) <= set(targets)


def test_images_exist_and_are_small() -> None:
    images = re.findall(r'\bsrc(?:set)?="([^"]+)"', README)
    assert len(images) == 2
    for name in images:
        assert 0 < (ROOT / name).stat().st_size < 150_000


FORMATS = {
    "bool": "b",
    "int16": "s",
    "int32": "i",
    "int64": "l",
    "float": "f",
    "double": "g",
    "uint32": "I",
    "uint64": "L",
    "string": "u",
    "binary": "z",
    "date32": "tdD",
    "time64[us]": "ttu",
    "timestamp[us]": "tsu:",
    "timestamp[us, UTC]": "tsu:UTC",
    "month_day_nano_interval": "tin",
    "arrow.uuid: fixed_size_binary(16)": "w:16",
    "boolean": "b",
    "short": "s",
    "integer": "i",
    "long": "l",
    "date": "tdD",
    "timestamp_ntz": "tsu:",
    "timestamp": "tsu:UTC",
}
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in README.partition("\n## Types\n")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| `")
]


@pytest.mark.parametrize("row", [row for row in ROWS if "numeric" not in row[0]], ids="-".join)
def test_table_of_types(row: list[str]) -> None:
    names = re.findall(r"`(\w+)`", row[0])
    for target, cell in ((NATIVE, row[1]), (ROW_TYPES, row[2])):
        written = cell.split(", ") if cell not in FORMATS else [cell]
        formats = [FORMATS[each] for each in written]
        for name, expected in zip(names, formats * (len(names) // len(formats)), strict=True):
            known = default_registry.lookup_name(name)
            assert known is not None
            assert column_type(known.oid, -1, TypeOptions(arrow_types=target)).format == expected


def test_table_of_types_on_numeric() -> None:
    assert [row[1] for row in ROWS if "numeric" in row[0]] == [
        "decimal128(p,s)",
        "string, or what `numeric=` says",
    ]
    numeric_12_2 = 4 + (12 << 16 | 2)
    numeric_39_2 = 4 + (39 << 16 | 2)
    for target in (NATIVE, ROW_TYPES):
        options = TypeOptions(arrow_types=target)
        assert column_type(1700, numeric_12_2, options).format == "d:12,2"
        assert column_type(1700, numeric_39_2, options).format == "u"
        assert column_type(1700, -1, options).format == "u"


@pytest.mark.parametrize("name", ["int4range", "point", "inet", "tsvector", "varbit", "timetz"])
def test_everything_else_is_text(name: str) -> None:
    known = default_registry.lookup_name(name)
    assert known is not None
    assert column_type(known.oid, -1, TypeOptions()).format == "u"

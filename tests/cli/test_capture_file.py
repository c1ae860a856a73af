"""Files that ``pgwire-codec inspect`` reads, and errors in them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from pgwire_codec.cli.capture_file import StoredMessage, read_messages
from pgwire_codec.protocol import messages as m
from pgwire_codec.reference import encode_message
from tests.support.commands import as_json, inspected, relation, row, run, without_place
from tests.support.corpus import capture
from tests.support.logs import write

DATA = Path(__file__).parents[1] / "data"

# Files


def test_plain_and_gzipped_lines(tmp_path: Path) -> None:
    each = capture("dml.pg18.v1-text")
    plain = tmp_path / "any name"
    plain.write_bytes(gzip.decompress(each.path.read_bytes()))
    assert inspected(plain) == inspected(each.path)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_segments_of_a_log(version: int, tmp_path: Path) -> None:
    each = capture("immediate.pg18.v4-parallel-2pc")
    folder = DATA / f"log-format-{version}"
    if version == 4:
        folder = tmp_path
        write(each, folder)
    segment = min(folder.glob("*.arrow"))
    found = list(read_messages(segment))
    count = len(found)
    expected = zip(each.messages[:count], each.lsns[:count].tolist(), strict=True)
    assert count > 100
    assert found == [
        StoredMessage(f"row {row}", lsn, data) for row, (data, lsn) in enumerate(expected)
    ]


@pytest.mark.parametrize("kind", ["parquet", "ipc_file", "ipc_stream"])
@pytest.mark.parametrize("binary", ["binary", "large_binary", "binary_view"])
def test_arrow_files(tmp_path: Path, kind: str, binary: str) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    each = capture("dml.pg18.v1-text")
    ordinals = range(len(each.messages))
    data = pa.array(each.messages).cast(pa.type_for_alias(binary))
    table = pa.table({"ordinal": ordinals, "lsn": each.lsns.astype("int64"), "data": data})
    path = tmp_path / "capture"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=50)
    else:
        write = pa.ipc.new_file if kind == "ipc_file" else pa.ipc.new_stream
        with write(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=50)
    assert inspected(path) == inspected(each.path)


def test_arrow_file_of_data_alone(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "data.arrow"
    table = pa.table({"data": [encode_message(m.StreamStart(5, True))]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    assert inspected(path) == ["      0               STREAM START xid 5, first block"]
    assert as_json(path)[0]["lsn"] is None


# Errors


def assert_fails(path: Path, *expected: str) -> Result:
    result = run("inspect", path)
    assert result.exit_code == 4
    for text in expected:
        assert text in result.stderr
    return result


def test_no_such_file(tmp_path: Path) -> None:
    assert_fails(tmp_path / "gone", "could not read", "gone: No such file or directory")


def test_a_directory(tmp_path: Path) -> None:
    assert_fails(tmp_path, "Is a directory")


@pytest.mark.parametrize(
    "content",
    [b"\x89PNG\r\n", b"plain text\n", b"[1, 2]\n", b'{"a": 1}\n', gzip.compress(b"text", mtime=0)],
)
def test_not_a_capture(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert_fails(path, "is not a capture\nhint: Use JSON lines")


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert_fails(path, "is empty")


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:-20], lambda whole: whole[:40] + b"\xff" * 40 + whole[80:]]
)
def test_damaged_gzip(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "file.jsonl.gz"
    path.write_bytes(damage(capture("dml.pg18.v1-text").path.read_bytes()))
    assert_fails(path, "could not read")


@pytest.mark.parametrize("head", [b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff\x10"])
def test_damaged_arrow_files(tmp_path: Path, head: bytes) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "file"
    path.write_bytes(head + b"\x01" * 40)
    assert_fails(path, "could not read")


def test_arrow_file_with_other_columns(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "file"
    pq.write_table(pa.table({"data": ["text"], "x": [1]}), path)
    assert_fails(path, "its columns are data string, x int64", "has a binary column data")


def test_arrow_rows_that_hold_no_message(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "file"
    stop = encode_message(m.StreamStop())
    columns = {"ordinal": [0, 2, 1, 4], "lsn": [1, None, 3, -4], "data": [None, stop, stop, stop]}
    pq.write_table(pa.table(columns), path)
    lines = assert_fails(path, "could not decode 3 of the messages").stdout.splitlines()
    assert [line[22:].strip() for line in lines] == [
        "row 0: data is null",
        "STREAM STOP",
        "row 2: ordinal 1 after ordinal 2",
        "STREAM STOP",
        "row 3: invalid LSN -4",
    ]


def test_lines_that_hold_no_message(tmp_path: Path) -> None:
    path = tmp_path / "file"
    lines = ['{"options": {}}', "{", '{"lsn": 1}', '{"data": "4"}', '{"data": "45", "lsn": -1}']
    path.write_text("\n".join([*lines, '{"data": "45"}']))
    result = assert_fails(path, f"could not decode 4 of the messages in {path}")
    assert [line[22:] for line in result.stdout.splitlines()] == [
        "line 2: invalid JSON",
        'line 3: missing "data", the message in hex',
        'line 4: invalid hex in "data"',
        "line 5: invalid LSN -1",
        "STREAM STOP",
    ]


def test_undecodable_message_is_reported_and_the_rest_shown(stored: Any) -> None:
    insert = encode_message(m.Insert(None, 7, row(b"t", b"1")))
    path = stored(relation("a"), insert[:-1], b"", b"?", insert)
    result = assert_fails(path, f"could not decode 3 of the messages in {path}")
    lines = result.stdout.splitlines()
    assert len(lines) == 5
    assert "line 3: truncated: byte " in lines[1]
    assert "line 5: unknown_tag: byte 0" in lines[3]
    assert without_place(lines[4]) == "INSERT public.t new: a='1'"
    entries = [json.loads(line) for line in run("inspect", path, "--json").stdout.splitlines()]
    assert entries[1]["error"]["code"] == "truncated"
    assert entries[1]["data"] == insert[:-1].hex()
    assert entries[1]["place"] == "line 3"


def test_a_damaged_stream_start_still_starts(stored: Any) -> None:
    start = encode_message(m.StreamStart(5, True))
    change = m.Insert(5, 7, row(b"t", b"1"))
    lines = assert_fails(stored(start[:-1], change), "1 of the messages").stdout.splitlines()
    assert "INSERT (unknown relation 7) new: $1='1'" in lines[1]

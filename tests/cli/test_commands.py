"""Output and errors of the commands."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pgwire_codec.cli.app import app
from pgwire_codec.protocol import messages as m
from pgwire_codec.reference import encode_message
from tests.support.corpus import Capture, capture, captures

INT4, TEXT = 23, 25


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


@pytest.fixture
def stored(tmp_path: Path) -> Any:
    """Return a function that writes messages to a file for inspect."""

    def write(*messages: m.LogicalMessage | bytes) -> Path:
        encoded = [x if isinstance(x, bytes) else encode_message(x) for x in messages]
        return write_lines(tmp_path / "messages.jsonl", encoded)

    return write


# Lines for people


def test_transactions_are_indented() -> None:
    lines = inspected(capture("dml.pg18.v1-text").path, "--limit", 6)
    assert [without_place(line)[:19] for line in lines] == [
        "BEGIN xid 5505, com",
        "  RELATION public.d",
        "  INSERT public.def",
        "  INSERT public.def",
        "  INSERT public.def",
        "COMMIT at 0/126BBE0",
    ]


def test_streamed_blocks_are_indented_and_name_the_subtransaction(stored: Any) -> None:
    lines = inspected(
        stored(
            m.StreamStart(5, True),
            relation("k", xid=5),
            m.Insert(6, 7, row(b"t", b"1")),
            m.StreamStop(),
            m.StreamAbort(5, 6, None, None),
            m.StreamCommit(5, 0, 16, 32, 0),
        )
    )
    assert [without_place(line) for line in lines] == [
        "STREAM START xid 5, first block",
        "  RELATION public.t (oid 7, replica identity default): k text key",
        "  (subxid 6) INSERT public.t new: k='1'",
        "STREAM STOP",
        "STREAM ABORT xid 5, from subxid 6 on",
        "STREAM COMMIT xid 5, at 0/10, 2000-01-01 00:00:00Z",
    ]


def test_the_four_states_and_both_forms_differ(stored: Any) -> None:
    new = row(b"tnutbt", b"1", None, None, b"NULL", b"\x00\xff", b"")
    key = row(b"tnnnnn", b"0", None, None, None, None, None)
    path = stored(relation(*"abcdef"), m.Update(None, 7, key, None, new))
    assert without_place(inspected(path)[1]) == (
        "UPDATE public.t "
        "key: a='0' b=(not sent) c=(not sent) d=(not sent) e=(not sent) f=(not sent) "
        "new: a='1' b=NULL c=(unchanged) d='NULL' e=x'00ff' f=''"
    )
    assert as_json(path)[1] == {
        "index": 1,
        "lsn": "0/FF",
        "type": "Update",
        "table": "public.t",
        "xid": None,
        "relation_oid": 7,
        "key": {"a": "0"} | {name: {"state": "not_sent"} for name in "bcdef"},
        "old": None,
        "new": {
            "a": "1",
            "b": None,
            "c": {"state": "unchanged"},
            "d": "NULL",
            "e": {"binary": "00ff"},
            "f": "",
        },
    }


def test_null_in_a_whole_old_tuple_is_null(stored: Any) -> None:
    path = stored(relation("a", "b"), m.Delete(None, 7, None, row(b"tn", b"1", None)))
    assert without_place(inspected(path)[1]) == "DELETE public.t old: a='1' b=NULL"
    assert as_json(path)[1]["old"] == {"a": "1", "b": None}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("it's", "'it''s'"),
        ("ελ", "'ελ'"),
        ("\\x00", "'\\x00'"),
        ("a\nb\\", "E'a\\nb\\\\'"),
        ("\x1b[2J", "E'\\u001b[2J'"),
        ("\u202e", "E'\\u202e'"),
    ],
)
def test_text_is_quoted_and_harmless(stored: Any, value: str, shown: str) -> None:
    path = stored(relation("a"), m.Insert(None, 7, row(b"t", value.encode())))
    assert without_place(inspected(path)[1]) == f"INSERT public.t new: a={shown}"
    assert as_json(path)[1]["new"] == {"a": value}


def test_text_that_is_not_utf8(stored: Any) -> None:
    path = stored(relation("a"), m.Insert(None, 7, row(b"t", b"caf\xe9")))
    assert without_place(inspected(path)[1]) == "INSERT public.t new: a=E'caf\\xe9'"
    assert as_json(path)[1]["new"] == {"a": {"bytes": "636166e9"}}


@pytest.mark.parametrize("length", [60, 61])
def test_long_values_are_shortened_for_people_only(stored: Any, length: int) -> None:
    text, data = "ё" * length, bytes(length)
    path = stored(relation("a", "b"), m.Insert(None, 7, row(b"tb", text.encode(), data)))
    shown = f"'{text}'" if length == 60 else f"'{'ё' * 60}'... (122 bytes)"
    expected = f"INSERT public.t new: a={shown} b=x'{'00' * 30}'... ({length} bytes)"
    assert without_place(inspected(path)[1]) == expected
    assert as_json(path)[1]["new"] == {"a": text, "b": {"binary": data.hex()}}


def test_unusual_names_are_quoted(stored: Any) -> None:
    path = stored(relation("Id", 'a"b', "c\n", name="order"), m.Truncate(None, 3, (7,)))
    assert [without_place(line) for line in inspected(path)] == [
        "RELATION public.order (oid 7, replica identity default): "
        '"Id" text key, "a""b" text, "c\\n" text',
        "TRUNCATE public.order cascade restart identity",
    ]


def test_without_a_relation_columns_have_numbers(stored: Any) -> None:
    path = stored(m.Insert(None, 7, row(b"tn", b"1", None)))
    assert without_place(inspected(path)[0]) == "INSERT (unknown relation 7) new: $1='1' $2=NULL"
    assert as_json(path)[0]["table"] is None


def test_more_columns_than_the_relation(stored: Any) -> None:
    path = stored(relation("a"), m.Insert(None, 7, row(b"tt", b"1", b"2")))
    assert without_place(inspected(path)[1]) == "INSERT public.t new: a='1' $2='2'"


def test_a_streamed_relation_counts_once_it_commits(stored: Any) -> None:
    insert = m.Insert(None, 7, row(b"t", b"1"))
    block = [m.StreamStart(5, True), relation("new", xid=5), m.StreamStop()]
    end = m.StreamCommit(5, 0, 1, 2, 0)
    lines = inspected(stored(relation("old"), *block, insert, end, insert))
    changes = [without_place(line) for line in lines if "INSERT" in line]
    assert changes == ["INSERT public.t new: old='1'", "INSERT public.t new: new='1'"]
    rolled_back = m.StreamAbort(5, 5, None, None)
    lines = inspected(stored(relation("old"), *block, rolled_back, insert))
    assert without_place(lines[-1]) == "INSERT public.t new: old='1'"


def test_times_beyond_the_calendar(stored: Any) -> None:
    path = stored(m.Commit(0, 1, 2, 2**63 - 1))
    assert without_place(inspected(path)[0]) == (
        "COMMIT at 0/1, 2000-01-01 +9223372036854775807 us"
    )


def test_colour_only_on_a_terminal(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stored(relation("a"), m.Insert(None, 7, row(b"t", b"[bold]x[/bold]")))
    assert "\x1b" not in "".join(inspected(path))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    line = inspected(path)[1]
    assert "\x1b[" in line
    assert "[bold]x[/bold]" in line


# Selection


def test_limit() -> None:
    path = capture("dml.pg18.v1-text").path
    assert len(inspected(path, "--limit", 3)) == 3
    assert inspected(path, "--limit", 0) == []


@pytest.mark.parametrize("table", ["u", "public.u"])
def test_table_shows_its_changes_and_the_transactions_around(table: str) -> None:
    path = capture("immediate.pg18.v4-parallel").path
    whole = {entry["index"]: entry for entry in as_json(path)}
    chosen = as_json(path, "--table", table)
    assert all(entry == whole[entry["index"]] for entry in chosen)

    def changes(entries: Iterable[dict[str, Any]]) -> list[int]:
        return [each["index"] for each in entries if each.get("table") == "public.u"]

    assert changes(chosen) == changes(whole.values()) != []
    assert not [each for each in chosen if each.get("table") not in (None, "public.u")]
    types = Counter(entry["type"] for entry in chosen)
    assert types["StreamStart"] == types["StreamStop"] > 0
    inside = False
    for entry in chosen:
        if entry["type"] in ("StreamStart", "Begin"):
            assert not inside
            inside = True
        elif entry["type"] in ("StreamStop", "Commit"):
            assert inside
            inside = False


def test_table_leaves_out_a_prepare_without_its_begin(stored: Any) -> None:
    """It is not the end of the transaction before it, in which the table occurs."""
    change = [relation("v"), m.Insert(None, 7, row(b"n", None))]
    plain = [m.Begin(5, 0, 7), *change, m.Commit(0, 5, 6, 0)]
    path = stored(*plain, m.Prepare(0, 8, 9, 0, 8, "g"))
    assert [entry["type"] for entry in as_json(path, "--table", "t")] == [
        *("Begin", "Relation", "Insert", "Commit")
    ]


def test_table_that_does_not_occur() -> None:
    assert inspected(capture("dml.pg18.v1-text").path, "--table", "no_such") == []


# The corpus


@pytest.mark.parametrize(
    "each", captures("dml") + captures("traps") + captures("immediate"), ids=str
)
def test_captures_are_shown_whole(each: Capture) -> None:
    lines = inspected(each.path)
    assert len(lines) == len(each.messages)
    assert not [line for line in lines if "unknown relation" in line]
    entries = as_json(each.path)
    assert [entry["index"] for entry in entries] == list(range(len(each.messages)))


# Files


def test_plain_and_gzipped_lines(tmp_path: Path) -> None:
    each = capture("dml.pg18.v1-text")
    plain = tmp_path / "any name"
    plain.write_bytes(gzip.decompress(each.path.read_bytes()))
    assert inspected(plain) == inspected(each.path)


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
    assert_fails(path, "is not a capture — hint: Use JSON lines")


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


# The command itself


def test_help_has_examples() -> None:
    for command in ("inspect", "demo"):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert f"Examples:\n    pgwire-codec {command}" in result.stdout
    assert "inspect" in run("--help").stdout


def test_wrong_usage_is_status_2() -> None:
    assert run("inspect").exit_code == 2
    assert run("inspect", "--limit", "-1", "x").exit_code == 2


@pytest.mark.parametrize(("returned", "status"), [(0, 0), (1, 4)])
def test_demo_passes_its_options_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, returned: int, status: int
) -> None:
    given: dict[str, object] = {}

    def main(**options: object) -> int:
        given.update(options)
        return returned

    stand_in = SimpleNamespace(main=main)
    monkeypatch.setattr("pgwire_codec.cli.demo.import_module", lambda name: stand_in)
    result = run("demo", "--dsn", "x", "--output", tmp_path, "--keep")
    assert result.exit_code == status
    assert given == {"dsn": "x", "output": tmp_path, "keep": True}


def test_demo_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

    monkeypatch.setattr("pgwire_codec.cli.demo.import_module", fail)
    result = run("demo")
    assert result.exit_code == 4
    assert "the demo needs pyspark — hint: Run pip install 'pgwire-codec[demo]'." in result.stderr


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        encoding=environment.get("PYTHONIOENCODING"),
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_entry_point_names_its_extra(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom pgwire_codec.cli import main; main()"
    done = run_python(code)
    assert done.returncode == 4
    assert (
        f"pgwire-codec needs {missing} — hint: Run pip install 'pgwire-codec[cli]'." in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_entry_point() -> None:
    program = Path(sys.executable).with_name("pgwire-codec")
    if not program.exists():
        pytest.skip("the package is not installed here")
    command = [program, "inspect", "--limit", "1", capture("dml.pg18.v1-text").path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "BEGIN xid 5505" in done.stdout
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("pgwire-codec, version ")


def test_output_that_lacks_an_alphabet(stored: Any) -> None:
    path = stored(relation("a"), m.Insert(None, 7, row(b"t", "éё".encode())))
    code = f"import sys; sys.argv[1:] = ['inspect', {str(path)!r}]\n"
    done = run_python(
        code + "from pgwire_codec.cli import main; main()", PYTHONIOENCODING="iso-8859-1"
    )
    assert done.returncode == 0, done.stderr
    assert "a='é\\u0451'" in done.stdout

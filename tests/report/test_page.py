"""Figures of the report against the captures, and the page that shows them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log, report
from pgwire_codec.cli.app import app
from pgwire_codec.format import format_duration, format_share, format_size, format_timestamp
from pgwire_codec.log import partition
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS
from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.report import findings as columns
from pgwire_codec.report.gather import name_of
from pgwire_codec.report.time_bins import TimeBins
from tests.support import corpus
from tests.support.build import (
    T,
    column,
    delete,
    insert,
    relation,
    row,
    streamed,
    transaction,
    update,
    wire,
)
from tests.support.logs import EPOCH, SOURCE, append, write
from tests.support.pages import Page

CAPTURES = corpus.captures(major=18)
CHANGES = "Changes by table and operation, most bytes first"
OPS = "IUDT"

#: Row of a table in the report: inserts, updates, deletes, truncates, bytes.
Counts = dict[str, list[int]]


@pytest.fixture(params=[True, False], ids=["joined", "call by call"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode the log's record batches together, or one by one."""
    if not request.param:
        monkeypatch.setattr(partition, "_SMALL", 1)


def counted(batches: Any) -> Counts:
    """Return rows and bytes, counted one by one."""
    found: Counts = {}
    for batch in batches:
        counts = found.setdefault(batch.version.qualified_name, [0] * 5)
        for number, op in enumerate(batch.op.tolist()):
            counts[OPS.index(chr(op))] += 1
            counts[4] += len(batch.message(number)) if op != ord("T") else 0
    return found


def as_counts(tables: tuple[log.TableCount, ...]) -> Counts:
    return {
        each.table: [each.inserts, each.updates, each.deletes, each.truncates, each.bytes]
        for each in tables
    }


def written(directory: Path, *messages: Any, times: Any = None, **options: Any) -> log.Log:
    """Write a log of one session; ``times`` are microseconds since 2000, one a message, or None."""
    data = wire(messages)
    when = [None] * len(data) if times is None else [at + EPOCH_MICROSECONDS for at in times]
    sent = np.array(["NaT" if at is None else at for at in when], "datetime64[us]")
    with log.LogWriter(directory, SOURCE, **options) as writer:
        writer.append(data, np.zeros(len(data), np.uint64), sent)
    return log.Log(directory)


def page(found: report.Findings) -> Page:
    return Page(report.render(found))


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("capture", CAPTURES, ids=str)
def test_figures_are_those_of_the_capture(capture: corpus.Capture, tmp_path: Path) -> None:
    count = len(capture.messages)
    found = report.gather(write(capture, tmp_path, [count // 3], part_bytes=5000))
    decoder = pgc.Decoder(on_error="skip", unrepresentable="null")
    whole = decoder.decode(capture.messages)
    done = whole.transactions
    assert as_counts(found.tables) == counted(whole.batches)
    assert found.transactions == len(done)
    assert found.logical_messages == len(whole.logical_messages)
    assert sum(found.problems.errors.values()) == len(whole.rejected)
    assert sum(found.problems.warnings.values()) == len(whole.warnings)
    assert found.snapshot == ()
    line = found.time_line
    totals = line.sums.sum(axis=0).tolist()
    assert totals[columns.TRANSACTIONS] == len(done)
    assert totals[:5] == np.sum([*as_counts(found.tables).values(), [0] * 5], axis=0).tolist()
    if len(done):
        times = done.commit_time.astype(np.int64)
        assert (line.first, line.last) == (times.min(), times.max())
        assert line.start <= times.min() <= times.max() < line.stop


@pytest.mark.parametrize("capture", corpus.captures("dml", "v1-text"), ids=str)
def test_the_page_has_the_counts_of_log_info(capture: corpus.Capture, tmp_path: Path) -> None:
    """Without rollbacks and repeated transactions, the counts of a log are committed changes."""
    write(capture, tmp_path)
    found = report.gather(log.Log(tmp_path))
    expected = {
        each.table: [
            *(f"{number:,}" for number in (each.inserts, each.updates, each.deletes)),
            f"{each.truncates:,}",
            format_size(each.bytes),
        ]
        for each in log.statistics(tmp_path).sent
    }
    head, *rows, total = page(found).tables[CHANGES]
    assert head == ["Table", "", "Inserts", "Updates", "Deletes", "Truncates", "Bytes"]
    assert {each[0]: each[2:] for each in rows} == expected
    assert total[0] == "All tables"
    assert total[2] == f"{sum(each.inserts for each in log.statistics(tmp_path).sent):,}"


def test_uncommitted_changes_are_counted_apart(tmp_path: Path) -> None:
    xid = 9
    found = report.gather(
        written(
            tmp_path,
            *transaction(T, insert(1, "1", "a", None), lsn=100),
            *streamed(
                relation(1, *T.columns, xid=xid),
                *(insert(1, "2", "b", None, xid=xid) for _ in range(3)),
                xid=xid,
            ),
            pgc.StreamAbort(xid, xid, None, None),
        )
    )
    assert [each.inserts for each in found.tables] == [1]
    assert [each.inserts for each in found.statistics.sent] == [4]
    assert "The log contains 3 more changes: rolled back" in page(found).text


@pytest.mark.usefixtures("calls")
def test_a_transaction_counts_once_its_commit_is_there(tmp_path: Path) -> None:
    messages = wire(
        [
            *transaction(T, insert(1, "1", "a", None), lsn=100),
            *transaction(*(insert(1, "2", "b", None) for _ in range(4)), lsn=200),
        ]
    )
    with log.LogWriter(tmp_path, SOURCE) as writer:
        for message in messages[:-1]:
            append(writer, [message])
            writer.flush()
        found = report.gather(log.Log(tmp_path))
        assert (found.transactions, found.tables[0].inserts) == (1, 1)
        assert [each.changes for each in found.statistics.open] == [4]
        assert page(found).tables["Open transactions"][1][:4] == ["7", "plain", "", "4"]
        append(writer, messages[-1:])
        writer.flush()
        found = report.gather(log.Log(tmp_path))
    assert (found.transactions, found.tables[0].inserts) == (2, 5)
    assert [each.changes for each in found.largest] == [4, 1]
    assert [each.bytes for each in found.largest] == [4 * len(messages[-2]), len(messages[2])]
    assert {each.tables for each in found.largest} == {("public.t",)}
    assert "Open transactions" not in page(found).text


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("cut", range(1, 7))
def test_changes_that_a_new_session_repeats_count_once(cut: int, tmp_path: Path) -> None:
    inserts = [insert(1, str(number), "a", None) for number in range(3)]
    messages = wire([*transaction(T, *inserts, lsn=100), *transaction(inserts[0], lsn=200)])
    with log.LogWriter(tmp_path, SOURCE) as writer:
        for part in (messages[:cut], messages):
            for message in part:
                append(writer, [message])
                writer.flush()
            writer.new_session()
    found = report.gather(log.Log(tmp_path))
    assert (found.transactions, found.tables[0].inserts) == (2, 4)
    assert [each.changes for each in found.largest] == [3, 1]
    assert found.statistics.sessions == 2


def test_a_session_that_broke_off_in_a_stream_block(tmp_path: Path) -> None:
    """The first message of the next session is not read as a part of the block."""
    inside = relation(1, *T.columns, xid=9), insert(1, "1", "a", None, xid=9)
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire(streamed(*inside, xid=9))[:-1])
        writer.new_session()
        logical = pgc.Message(None, 0, 50, "", b"")  # too short for one with an xid
        append(writer, wire([logical, *transaction(T, insert(1, "1", "a", None), lsn=100)]))
    found = report.gather(log.Log(tmp_path))
    assert found.problems.errors == {}
    assert (found.logical_messages, found.transactions, found.tables[0].inserts) == (1, 1, 1)


@pytest.mark.usefixtures("calls")
def test_a_snapshot_is_no_change(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        writer.new_session(snapshot=True)
        rows = [insert(1, str(number), "a", None) for number in range(1200)]
        append(writer, wire(transaction(T, *rows, xid=0, lsn=50)))
        writer.new_session()
        append(writer, wire(transaction(T, insert(1, "1", "b", None), lsn=100)))
    found = report.gather(log.Log(tmp_path))
    assert (found.transactions, found.tables[0].inserts) == (1, 1)
    assert found.snapshot[0].inserts == 1200
    assert [each.changes for each in found.largest] == [1]
    assert (found.lags.known + found.lags.unknown, found.time_line.sums.sum(axis=0)[0]) == (1, 1)
    shown = page(found)
    assert shown.tables["Rows by table"][1][:2] == ["public.t", "1,200"]
    assert "more change" not in shown.text
    assert "2 segments in 2 sessions, 1 of a snapshot" in shown.text


@pytest.mark.usefixtures("calls")
def test_the_largest_are_the_largest(tmp_path: Path) -> None:
    sizes = np.random.default_rng(3).permutation(60)
    messages: list[Any] = [T]
    for number, length in enumerate(sizes.tolist()):
        messages += transaction(insert(1, "1", "x" * 10 * length, None), xid=number, lsn=number + 1)
    with log.LogWriter(tmp_path, SOURCE) as writer:
        for start in range(0, len(messages), 7):
            append(writer, wire(messages[start : start + 7]))
            writer.flush()
    found = report.gather(log.Log(tmp_path)).largest
    assert [each.xid for each in found] == np.argsort(-sizes)[:20].tolist()


def test_lag_is_from_the_commit_to_the_sending_of_its_message(tmp_path: Path) -> None:
    seconds = 1_000_000
    plain = transaction(T, insert(1, "1", "a", None), lsn=100, time=10 * seconds)
    elsewhere = transaction(pgc.Origin(1, "far"), insert(1, "1", "a", None), lsn=200)
    back = transaction(insert(1, "1", "a", None), lsn=300, time=90 * seconds)
    late = transaction(insert(1, "1", "a", None), lsn=400, time=20 * seconds)
    messages = [*plain, *elsewhere, *back, *plain, *late, *late]  # two are not delivered again
    times = [80 * seconds] * len(messages)
    times[len(plain) - 1] = 10 * seconds + 1500
    times[-len(late) - 1] = 27 * seconds
    reader = written(tmp_path / "log", *messages, times=times)
    lags = report.gather(reader).lags
    assert (lags.known, lags.unknown, lags.worst) == (2, 2, 7 * seconds)
    assert lags.counts == (0, 1, 0, 0, 1, 0, 0, 0, 0)
    found = report.gather(reader)
    assert {each.lag for each in found.largest} == {1500, 7 * seconds, None}
    assert "Transactions by lag; the longest took 7 s" in page(found).tables
    assert "2 transactions have no known lag" in page(found).text
    unknown = report.gather(written(tmp_path / "unknown", *messages))
    assert (unknown.lags.known, unknown.lags.unknown) == (0, 4)
    assert "no commit in the log has the server's time" in page(unknown).text


def test_schema_changes(tmp_path: Path) -> None:
    versions = [
        T,
        relation(1, *T.columns, column("more", "numeric", typmod=(10 << 16 | 2) + 4)),
        relation(1, *T.columns, column("more", "numeric", typmod=(12 << 16 | 0x7FF) + 4)),
        relation(1, T.columns[0], T.columns[2], name="u", identity="f"),
        relation(2, column("v", "varchar", typmod=24), T.columns[0], name="u"),
        relation(2, T.columns[0], column("v", "varchar", typmod=24, key=True), name="u"),
    ]
    messages: list[Any] = []
    for number, version in enumerate(versions):
        values = ["1"] * len(version.columns)
        # In the middle of a transaction, too.
        again = versions[max(number - 1, 0)]
        before = [insert(again.oid, *["1"] * len(again.columns))] if number else []
        messages += transaction(
            *before,
            version,
            insert(version.oid, *values),
            lsn=100 + number,
            time=number * 1_000_000,
        )
    found = report.gather(written(tmp_path, *messages)).schema
    assert [(each.table, each.details) for each in found.first] == [
        ("public.t", (("+", "more numeric(10,2)"),)),
        ("public.t", (("~", "more numeric(10,2) → numeric(12,-1)"),)),
        (
            "public.u",
            (
                ("~", "was public.t"),
                ("-", "v text"),
                ("-", "more numeric(12,-1)"),
                ("~", "replica identity default → full"),
            ),
        ),
        (
            "public.u",
            (
                ("~", "another table of this name"),
                ("-", "note text"),
                ("+", "v varchar(20)"),
                ("~", "replica identity full → default"),
            ),
        ),
        (
            "public.u",
            (("~", "v is now part of the key"), ("~", "the order of columns")),
        ),
    ]
    assert [each.commit_lsn for each in found.first] == [101, 102, 103, 104, 105]
    assert found.count == 5
    shown = page(report.gather(log.Log(tmp_path)))
    rows = shown.tables["What changed"]
    assert [each[3] for each in rows[1:]] == [format_lsn(lsn) for lsn in range(101, 106)]
    assert rows[1][2] == "+more numeric(10,2)"
    [mark] = [each for each in shown.attributes["title"] if "was public.t\n- v text" in each]
    assert mark.startswith("2000-01-01 00:00:03.000\n")
    assert shown.text.count("table first seen") == 1


def test_a_column_that_comes_and_goes(tmp_path: Path) -> None:
    """Within one call of the decoder, and in the order of commits."""
    wide = relation(1, *T.columns, column("more"))
    messages: list[Any] = []
    for number in range(4):
        version = (T, wide)[number % 2]
        messages += transaction(version, insert(1, *["1"] * len(version.columns)), lsn=100 + number)
    found = report.gather(written(tmp_path, *messages)).schema
    assert [each.details for each in found.first] == [
        (("+", "more text"),),
        (("-", "more text"),),
        (("+", "more text"),),
    ]


def test_a_repeated_relation_is_no_schema_change(tmp_path: Path) -> None:
    found = report.gather(
        written(
            tmp_path,
            *transaction(T, insert(1, "1", "a", None), lsn=100),
            *transaction(T, insert(1, "1", "a", None), lsn=200),
        )
    )
    assert found.schema.count == 0
    assert "No table definition changed." in page(found).text


def test_messages_that_do_not_decode(tmp_path: Path) -> None:
    messages = wire(
        [
            *transaction(T, insert(1, "1", "a", None), b"Zrubbish", lsn=100),
            *transaction(insert(1, "one", "a", None), delete(1, key=row("2", None, None)), lsn=200),
            *transaction(insert(5, "1"), update(1, row("1", "a", "b", "c")), lsn=300),
        ]
    )
    found = report.gather(written(tmp_path, *messages))
    assert found.problems.errors == {"unknown_tag": 1, "bad_value": 1, "unknown_relation": 1}
    assert found.problems.warnings == {"too_wide": 1}
    places = {each.ordinal: each.code for each in found.problems.first}
    assert places == {3: "unknown_tag", 6: "bad_value", 10: "unknown_relation", 11: "too_wide"}
    assert as_counts(found.tables)["public.t"][:4] == [1, 1, 1, 0]
    shown = page(found)
    assert "3 messages do not decode" in shown.text
    [head, *rows] = shown.tables["All"]
    assert head[0] == "Ordinal"
    assert [each[:2] for each in rows[:3]] == [
        ["3", "unknown_tag"],
        ["6", "bad_value"],
        ["10", "unknown_relation"],
    ]
    assert rows[3][3] == "decoded, with a warning"


def test_a_value_that_arrow_cannot_hold_is_no_error(tmp_path: Path) -> None:
    version = relation(1, column("n", "numeric", typmod=(8 << 16 | 2) + 4))
    found = report.gather(written(tmp_path, *transaction(version, insert(1, "NaN"))))
    assert (found.problems.errors, found.tables[0].inserts) == ({}, 1)


def test_a_bad_value_of_a_streamed_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found with the commit; the ordinal of its message is not always known."""
    monkeypatch.setattr(partition, "_SMALL", 1)
    declared = relation(1, *T.columns, xid=9)
    block = wire(streamed(declared, insert(1, "one", "a", None, xid=9), xid=9))
    end = wire([pgc.StreamCommit(9, 0, 100, 110, 0)])
    for name, parts in {"apart": [block, end], "together": [[*block, *end]]}.items():
        with log.LogWriter(tmp_path / name, SOURCE) as writer:
            for part in parts:
                append(writer, part)
                writer.flush()
        [problem] = report.gather(log.Log(tmp_path / name)).problems.first
        assert problem.ordinal == (None if name == "apart" else 2)
        assert problem.code == "bad_value"


def test_many_problems_are_counted_and_some_are_shown(tmp_path: Path) -> None:
    messages = [b"Zrubbish"] * 70 + wire(transaction(T, insert(1, "1", "a", None)))
    found = report.gather(written(tmp_path, *messages))
    assert found.problems.errors == {"unknown_tag": 70}
    assert len(found.problems.first) == 50
    assert len(page(found).tables["The first 50 of 70"]) == 51


def test_names_are_harmless(tmp_path: Path) -> None:
    evil = "<script>alert('1')</script>{{ 7 * 7 }}{% raw %}"
    version = relation(1, column("<b>k", key=True), name=evil, namespace='"><img src=x>')
    wider = relation(
        1,
        column("<b>k", key=True),
        column('<b>&lt;" onload="x'),
        name=evil,
        namespace='"><img src=x>',
    )
    messages = [
        *transaction(version, insert(1, "1"), lsn=100, time=1),
        *transaction(wider, insert(1, "1", "2"), lsn=200, time=2),
        *transaction(pgc.Origin(1, "<i>"), insert(1, "1", "2"), lsn=300, time=3),
    ]
    source = log.LogSource("7", 1, "</title><script>", "--><svg onload=x>", 180004, {"<u>": "<s>"})
    directory = tmp_path / "<em>.log"
    with log.LogWriter(directory, source) as writer:
        append(writer, wire(messages))
    found = report.gather(log.Log(directory))
    shown = page(found)
    assert not shown.tags & {"script", "img", "b", "i", "u", "s", "em"} - {"b"}  # b: the page's own
    assert not any(name.startswith("on") for name in shown.attributes)
    assert [each[0] for each in shown.tables[CHANGES][1:2]] == ['"><img src=x>.' + evil]
    for name in (
        evil,
        "</title><script>",
        "--><svg onload=x>",
        "from <i>",
        "<u> <s>",
        '<b>&lt;" onload="x text',
        "<em>",
    ):
        assert name in shown.text, name
    empty_policy = "default-src 'none'; style-src 'unsafe-inline'"
    assert empty_policy in shown.attributes["content"]
    assert not {"src", "href", "srcset", "data", "action"} & shown.attributes.keys()
    assert "url(" not in report.render(found)
    assert "@import" not in report.render(found)


def test_without_jinja2_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['jinja2'] = None; import pgwire_codec.report"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "MissingExtraError" in last
    assert "needs jinja2 — hint: Run pip install 'pgwire-codec[cli]'." in last


@pytest.mark.parametrize("messages", [[], wire([pgc.Begin(100, 0, 7)])], ids=["empty", "begun"])
def test_a_log_without_a_transaction(messages: list[bytes], tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, messages)
    shown = page(report.gather(log.Log(tmp_path)))
    assert "No transaction has committed in this log yet." in shown.text
    assert CHANGES not in shown.tables


def test_a_pruned_log(tmp_path: Path) -> None:
    capture = corpus.capture("dml.pg18.v1-text")
    half = len(capture.messages) // 2
    commit = next(n for n, data in enumerate(capture.messages) if n > half and data[:1] == b"C")
    reader = write(capture, tmp_path, [commit + 1])
    middle = reader.segments[0].delivered_lsn
    assert log.prune(tmp_path, middle)
    found = report.gather(log.Log(tmp_path))
    assert as_counts(found.tables) == counted(log.Log(tmp_path).read())
    assert min(each.commit_lsn for each in found.largest) > middle


times = st.integers(-(2**40), 2**50) | st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.lists(st.tuples(times, st.integers(-1, 10**9)), max_size=20), max_size=5))
def test_bins(parts: list[list[tuple[int, int]]]) -> None:
    bins = TimeBins()
    for part in parts:
        values = np.zeros((len(part), 8), np.int64)
        values[:, columns.TRANSACTIONS] = 1
        bins.add(
            np.array([time for time, _ in part], np.int64),
            values,
            np.array([lag for _, lag in part], np.int64),
        )
    line = bins.time_line()
    everything = [each for part in parts for each in part]
    assert len(line) <= 200
    assert line.start % line.width == 0
    expected = Counter((time - line.start) // line.width for time, _ in everything)
    transactions = line.sums[:, columns.TRANSACTIONS].tolist()
    assert {place: count for place, count in enumerate(transactions) if count} == expected
    for place in expected:
        lags = [lag for time, lag in everything if (time - line.start) // line.width == place]
        assert line.worst_lag[place] == max(lags)
    if everything:
        assert (line.first, line.last) == (min(everything)[0], max(everything)[0])
        assert len(line) == 1 or len(line) >= 10 or line.width == 1000


@pytest.mark.parametrize(
    ("format_it", "value", "text"),
    [
        (format_size, 0, "0 B"),
        (format_size, 999, "999 B"),
        (format_size, 1000, "1.0 kB"),
        (format_size, 99_960, "100 kB"),
        (format_size, 999_950, "1.0 MB"),
        (format_size, 12_345_678_901, "12.3 GB"),
        (format_size, 10**16, "10,000 TB"),
        (format_duration, 0, "0 s"),
        (format_duration, 394, "394 µs"),
        (format_duration, 1500, "1.5 ms"),
        (format_duration, 60_000_000, "1 min"),
        (format_duration, 3 * 3_600_000_000, "3 h"),
        (format_duration, 2.5 * 86_400_000_000, "2.5 d"),
        (format_timestamp, 0, "1970-01-01 00:00:00"),
        (format_timestamp, -1, "1969-12-31 23:59:59"),
    ],
)
def test_formats(format_it: Callable[[Any], str], value: float, text: str) -> None:
    assert format_it(value) == text


def test_shares() -> None:
    assert [format_share(each, 1000) for each in (0, 0.5, 1, 500, 999.99, 1000)] == [
        *("0 %", "< 0.1 %", "0.1 %", "50.0 %", "> 99.9 %", "100 %")
    ]
    assert format_share(0, 0) == "0 %"


@pytest.mark.parametrize(
    "uri", ["/a?b/shop.log", "/a/shop.log/", "s3://key:secret@bucket/shop.log?region=x/y"]
)
def test_the_page_contains_no_secret(uri: str) -> None:
    assert name_of(uri) == "shop.log"


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["report", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_command(tmp_path: Path) -> None:
    capture = corpus.capture("dml.pg18.v1-text")
    reader = write(capture, tmp_path / "log")
    output = tmp_path / "report.html"
    result = run(tmp_path / "log", "-o", output)
    assert (result.exit_code, result.stderr) == (0, "")
    transactions = len(pgc.Decoder().decode(capture.messages).transactions)
    assert result.stdout.startswith(f"{output}: {transactions:,} transactions, ")
    assert output.read_text("utf-8") == report.render(report.gather(reader))
    assert format_timestamp(int(EPOCH.astype(int))) in Page(output.read_text("utf-8")).text


def test_the_command_reports_errors(tmp_path: Path) -> None:
    result = run(tmp_path, "-o", tmp_path / "report.html")
    assert (result.exit_code, "is not a log" in result.stderr) == (4, True)
    directory = tmp_path / "log"
    write(corpus.capture("dml.pg18.v1-text"), directory)
    result = run(directory, "-o", tmp_path / "nowhere" / "report.html")
    assert (result.exit_code, "does not exist" in result.stderr) == (2, True)
    result = run(directory)
    assert (result.exit_code, "'-o' / '--output'" in result.stderr) == (2, True)
    [path] = directory.glob("0*.json")
    segment = path.with_suffix(".arrow")
    [part] = log.Log(directory).segments[0].parts
    for file, place in ((segment, part.extent.offset), (path, part.extent.offset // 2)):
        content = file.read_bytes()
        file.write_bytes(content[:place] + b"x" + content[place + 1 :])
        result = run(directory, "-o", tmp_path / "report.html")
        assert result.exit_code == 4
        assert f"{file.name} is damaged" in result.stderr
        assert not (tmp_path / "report.html").exists()
        file.write_bytes(content)

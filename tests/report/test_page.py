"""Figures of the report against the captures, and the page that shows them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pgwire_codec as pgc
from pgwire_codec import log, report
from pgwire_codec.format import format_size
from pgwire_codec.log import ipc_file
from pgwire_codec.protocol.quoting import qualified_name
from pgwire_codec.report import findings as columns
from pgwire_codec.report.gather import name_of
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
from tests.support.examples import in_turn
from tests.support.logs import SOURCE, append, write
from tests.support.reports import as_counts, counted, page, written

CAPTURES = corpus.captures(major=18)
CHANGES = "Changes by table and operation, most bytes first"


@pytest.fixture(params=[True, False], ids=["joined", "call by call"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode the log's record batches together, or one by one."""
    if not request.param:
        monkeypatch.setattr(ipc_file, "_COMBINED_BYTES", 1)


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("capture", "calls"),
    list(in_turn(CAPTURES, [(True,), (False,)])),
    indirect=["calls"],
    ids=str,
)
def test_figures_are_those_of_the_capture(capture: corpus.Capture, tmp_path: Path) -> None:
    count = len(capture.messages)
    found = report.gather(write(capture, tmp_path, [count // 3], part_bytes=5000))
    decoder = pgc.Decoder(on_error="skip", unrepresentable="null")
    whole = decoder.decode(capture.messages)
    done = whole.transactions
    assert as_counts(found.tables) == counted(whole.batches)
    assert found.transactions == len(done)
    assert found.logical_messages == len(whole.logical_messages)
    rejected = pgc.Decoder(on_error="skip").decode(capture.messages).rejected
    assert sum(found.problems.errors.values()) == len(rejected)
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


def test_a_value_that_arrow_cannot_hold_is_an_error_of_a_change(tmp_path: Path) -> None:
    """As ``log dead-letters`` says; the change is one all the same."""
    version = relation(1, column("n", "numeric", typmod=(8 << 16 | 2) + 4), column("v"))
    changes = [insert(1, "NaN", "a"), insert(1, "1", "b"), insert(1, "NaN", "c")]
    logged = written(tmp_path, *transaction(version, *changes))
    found = report.gather(logged)
    assert (found.problems.errors, found.tables[0].inserts) == ({"unrepresentable": 2}, 3)
    assert found.uncommitted == 0
    assert sum(map(len, log.dead_letters(logged))) == 2
    assert "every message decodes" not in page(found).text


def test_a_bad_value_of_a_streamed_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found with the commit; the ordinal of its message is not always known."""
    monkeypatch.setattr(ipc_file, "_COMBINED_BYTES", 1)
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
    name = qualified_name('"><img src=x>', evil)
    assert [each[0] for each in shown.tables[CHANGES][1:2]] == [name]
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


@pytest.mark.parametrize(
    "uri", ["/a?b/shop.log", "/a/shop.log/", "s3://key:secret@bucket/shop.log?region=x/y"]
)
def test_the_page_contains_no_secret(uri: str) -> None:
    assert name_of(uri) == "shop.log"


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    """A name that moves a terminal's cursor does not, when the page is shown there."""
    evil = "t\x1b[2J\x07\x9b1m"
    messages = transaction(relation(7, column(evil), name=evil), insert(7, "1"))
    text = report.render(report.gather(written(tmp_path / "log", *messages)))
    assert all(character.isprintable() or character in "\n\t" for character in text)
    assert r"t\u001b[2J\u0007\u009b1m" in text

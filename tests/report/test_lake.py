"""The tables of a mirror in a report: their files, what they lack, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import log, report
from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake import mirroring
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS
from tests.support.build import column, delete, insert, row, transaction
from tests.support.mirrors import ID, relation
from tests.support.reports import page, written

pytest.importorskip("deltalake")

MINUTE = 60_000_000
NOTE = column("note")
ORDERS = relation(1, ID, NOTE, name="orders")
WIDER = relation(1, ID, NOTE, column("more"), name="orders")
ITEMS = relation(2, ID, column("price", "numeric", typmod=(10 << 16) + 2 + 4), name="items")
CUT = pgc.encode_message(insert(2, "9", "0.00"))[:-1]
HEADS = [
    *("Table", "State", "Lacks", "Behind by", "Last commit, UTC", "Commit LSN"),
    *("Files", "Bytes", "Rows", "Deleted"),
]
TABLES = "Tables by name"
TROUBLED = "Tables that need you"
LETTERS = "Dead letters: changes that the tables lack, because they do not decode"


class Logged:
    """A log and its mirror; transactions are a minute apart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = f"delta:{folder / 'lake'}"
        self._count = 0

    def commit(self, *inside: Any) -> None:
        self._count += 1
        number = self._count
        messages = transaction(*inside, xid=number, lsn=100 * number, time=number * MINUTE)
        written(self.folder / "log", *messages)

    def mirror(self, **options: Any) -> None:
        mirroring.mirror(self.folder / "log", self.target, once=True, **options).run()

    def findings(self, target: str | None = None) -> report.Findings:
        return report.gather(log.Log(self.folder / "log"), lake=target or self.target)


@pytest.fixture
def logged(tmp_path: Path) -> Logged:
    made = Logged(tmp_path)
    rows = (insert(1, str(number), "x") for number in range(10))
    made.commit(ORDERS, *rows, ITEMS, insert(2, "1", "1.50"))
    return made


def tables(findings: report.Findings) -> dict[str, report.LakeTable]:
    assert findings.lake is not None
    return {each.table: each for each in findings.lake.tables}


def test_files_and_changes_that_are_missing(logged: Logged) -> None:
    logged.mirror()
    logged.commit(ORDERS, delete(1, key=row("3", None)))
    logged.mirror()
    files = list((logged.folder / "lake" / "public" / "orders").glob("*.parquet"))
    found = tables(logged.findings())["public.orders"]
    assert (found.state, found.missing, found.missing_since) == ("ok", 0, None)
    assert (found.commit_lsn, found.commit_time) == (200, EPOCH_MICROSECONDS + 2 * MINUTE)
    assert (found.rows, found.deleted) == (9, 1)
    assert (found.files, found.bytes) == (len(files), sum(each.stat().st_size for each in files))
    assert found.is_complete
    logged.commit(ORDERS, insert(1, "20", "y"))
    logged.commit(ORDERS, insert(1, "21", "y"), insert(1, "22", "y"))
    findings = logged.findings()
    found = tables(findings)["public.orders"]
    assert (found.missing, found.missing_since) == (3, EPOCH_MICROSECONDS + 3 * MINUTE)
    assert tables(findings)["public.items"].missing == 0
    shown = page(findings).tables[TABLES]
    assert shown[0] == HEADS
    assert [each[:4] for each in shown[1:]] == [
        ["public.items", "ok", "0", "0 s"],
        ["public.orders", "ok", "3 changes", "1 min"],
    ]
    assert shown[2][5:] == ["0/C8", "1", report_size(found), "9", "1"]
    assert "1 of 2 tables up to date" in page(findings).text


def report_size(table: report.LakeTable) -> str:
    from pgwire_codec.format import format_size

    return format_size(table.bytes)


def test_a_transaction_without_its_commit_is_not_missing(logged: Logged) -> None:
    logged.mirror()
    written(logged.folder / "log", *transaction(ORDERS, insert(1, "30", "z"), lsn=900)[:-1])
    assert tables(logged.findings())["public.orders"].missing == 0


def test_errors_incomplete_columns_and_dead_letters(logged: Logged) -> None:
    logged.mirror(dead_letters=True)
    logged.commit(WIDER, insert(1, "11", "x", "more"), ITEMS, insert(2, "2", "NaN"), CUT, CUT)
    logged.mirror(dead_letters=True)
    logged.commit(relation(3, ID, name="added"), insert(3, "1"))
    findings = logged.findings()
    shown = page(findings)
    found = tables(findings)
    assert found["public.orders"].state == "incomplete"
    assert [each.split(" since ")[0] for each in found["public.orders"].incomplete] == ["more"]
    assert shown.tables[TROUBLED][1][:2] == ["public.orders", "incomplete: more since 0/C8"]
    assert "pgwire-codec log add-table" in shown.tables[TROUBLED][1][2]
    assert findings.lake is not None
    assert sum(each.count for each in findings.lake.letters) == 3
    assert shown.tables[LETTERS][1:] == [
        [each.table, each.code, str(each.count)] for each in findings.lake.letters
    ]
    assert {each.table for each in findings.lake.letters} == {"public.items"}
    assert "1 table of the log without a table there: public.added" in shown.text


def test_a_table_that_is_set_aside(logged: Logged) -> None:
    logged.mirror()
    logged.commit(ITEMS, insert(2, "2", "NaN"))
    logged.mirror()
    findings = logged.findings()
    found = tables(findings)["public.items"]
    assert (found.state, found.missing) == ("set aside", 1)
    shown = page(findings)
    assert shown.tables[TROUBLED][1] == ["public.items", found.error, found.hint]
    assert "1 set aside of 2 tables" in shown.text


def test_a_history(tmp_path: Path) -> None:
    made = Logged(tmp_path)
    made.target = f"parquet:{tmp_path / 'history'}"
    made.commit(ORDERS, insert(1, "1", "x"))
    made.mirror()
    findings = made.findings()
    found = tables(findings)["public.orders"]
    assert (found.files, found.rows, found.missing) == (1, None, 0)
    assert page(findings).tables[TABLES][1][8] == "?"


def test_other_places(logged: Logged) -> None:
    with pytest.raises(
        OptionError, match=r"unsupported lake 'iceberg:lake'.*lake\._mirror\.status"
    ):
        logged.findings("iceberg:lake")
    nowhere = logged.folder / "nowhere"
    with pytest.raises(TableError, match=r"has no tables of a mirror — hint: Use the target"):
        logged.findings(f"delta:{nowhere}")
    assert not nowhere.exists()


def test_the_page_without_a_lake_has_no_section(logged: Logged) -> None:
    findings = report.gather(log.Log(logged.folder / "log"))
    assert findings.lake is None
    assert TABLES not in page(findings).tables

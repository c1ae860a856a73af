"""LogChanges: what Log.read returns, as batches and as one Arrow stream of a table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.errors import LogError, OptionError, TableError
from pgwire_codec.log.partition import LogPartition
from tests.changes.test_arrow_stream import MICROSECONDS, SPAN, SPANS, WIDER
from tests.support.build import T, insert, transaction, wire
from tests.support.logs import SOURCE, append
from tests.support.pages import Page

OF_T = transaction(T, insert(1, "1", "a", None), lsn=100)
OF_SPANS = transaction(SPANS, insert(3, "1", SPAN), lsn=200)
ALTERED = transaction(WIDER, insert(1, "2", "5", "t"), lsn=300)


@pytest.fixture
def shop(tmp_path: Path) -> log.Log:
    """A log with a segment for each of three transactions."""
    with log.LogWriter(tmp_path / "shop.log", SOURCE) as writer:
        for messages in (OF_T, OF_SPANS, ALTERED):
            append(writer, wire(messages))
            writer.seal()
    return log.Log(tmp_path / "shop.log")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Segments of the partitions that have been decoded."""
    segments: list[str] = []
    decode = LogPartition.decode

    def recording(self: LogPartition, *arguments: Any) -> Iterator[Any]:
        segments.append(self.segment)
        return decode(self, *arguments)

    monkeypatch.setattr(LogPartition, "decode", recording)
    return segments


def test_each_iteration_reads_the_range_again(shop: log.Log) -> None:
    changes = shop.read(after=100)
    for _ in range(2):
        assert [batch.version.qualified_name for batch in changes] == [
            "public.spans",
            "public.renamed",
        ]


def test_a_reader_has_the_columns_of_the_newest_version(shop: log.Log) -> None:
    table = shop.to_reader("public.renamed").read_all()
    assert table.select(["id", "v", "more", "_commit_lsn"]).to_pydict() == {
        "id": [1, 2],
        "v": ["a", "5"],
        "more": [None, True],
        "_commit_lsn": [100, 300],
    }
    assert pa.table(shop.read("public.renamed")).equals(table)
    before = shop.to_reader("public.t", until=200)
    assert before.schema.names[:4] == ["id", "v", "note", "_op"]
    assert before.read_all()["v"].to_pylist() == ["a"]


def test_a_range_without_changes_has_the_columns(shop: log.Log) -> None:
    table = shop.to_reader("public.renamed", after=300).read_all()
    assert (len(table), table.schema.names[:4]) == (0, ["id", "v", "more", "_op"])


def test_a_reader_decodes_as_it_is_read(shop: log.Log, decoded: list[str]) -> None:
    reader = shop.to_reader("public.renamed")
    assert decoded == []
    reader.read_next_batch()
    assert len(decoded) == 1
    reader.read_all()
    assert len(decoded) == 2


def test_polars_and_pandas(shop: log.Log) -> None:
    pytest.importorskip("polars")
    changes = shop.read("public.spans")
    assert changes.to_polars()["span"].to_list() == [SPAN]
    assert changes.to_pandas()["id"].tolist() == [1]
    frame = shop.read("public.spans", intervals="microseconds").to_polars()
    assert frame["span"].to_list() == [MICROSECONDS]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="DuckDB 2 has no Python 3.10")
def test_duckdb_reads_a_table_of_the_log(shop: log.Log) -> None:
    duckdb: Any = pytest.importorskip("duckdb")
    changes = shop.read("public.renamed")  # noqa: F841  (DuckDB finds it)
    query = "SELECT count(*), sum(a.id)::int FROM changes a JOIN changes b USING (id)"
    assert duckdb.sql(query).fetchall() == [(2, 3)]


def test_an_error_of_a_value_reaches_the_reader(tmp_path: Path) -> None:
    with log.LogWriter(tmp_path, SOURCE) as writer:
        append(writer, wire(transaction(T, insert(1, "one", "a", None))))
    reader = log.Log(tmp_path).to_reader("public.t")
    with pytest.raises(pgc.DecodeError, match=r"column id \(int4\)"):
        reader.read_all()


def test_errors_come_at_the_call(shop: log.Log, tmp_path: Path) -> None:
    for read in (shop.read, shop.to_reader):
        with pytest.raises(TableError, match=r"no table 'public\.span' — hint: Did you mean"):
            read("public.span")
        with pytest.raises(OptionError, match="before must be one of"):
            read("public.spans", before="all")
        with pytest.raises(TypeError, match="nonsense"):
            read("public.spans", nonsense=1)
    with pytest.raises(OptionError, match="before must be one of"):
        shop.changes(before="all")
    with pytest.raises(OptionError, match="before must be one of"):
        log.dead_letters(shop, before="all")
    with pytest.raises(TableError, match=r"no table 'public\.nobody'"):
        log.dead_letters(shop, "public.nobody")
    with pytest.raises(LogError, match="is not a log"):
        log.Log(tmp_path)


def test_several_tables_are_not_one_stream(shop: log.Log) -> None:
    for changes in (shop.read(), shop.read("public.*")):
        with pytest.raises(TableError, match="are changes of 2: ") as raised:
            pa.table(changes)
        assert raised.value.hint == "Name one table, as in log.read('schema.table')."
    with pytest.raises(TableError, match="are changes of 2: "):
        shop.to_reader("public.*")


def test_messages_that_were_pruned(shop: log.Log) -> None:
    log.prune(shop.uri, before_lsn=200)
    shop.refresh()
    with pytest.raises(LogError, match="cannot read messages from ordinal 0 on"):
        shop.messages(0)


def test_reprs(shop: log.Log) -> None:
    assert repr(shop) == f"<Log {shop.uri}: 3 segments>"
    changes = shop.read("public.renamed", until=200 + 100)
    assert repr(changes) == (
        "<LogChanges of public.renamed, public.t: commit LSN after 0/0 until 0/12C, 2 partitions>"
    )
    assert Page(shop._repr_html_()).tables == {
        f"{shop.uri}: 3 segments, 2 tables": [
            ["table", "columns"],
            ["public.renamed", "id, v, more"],
            ["public.spans", "id, span"],
        ]
    }
    page = Page(changes._repr_html_())
    assert [*page.tables] == ["public.t: 1 row (1 insert)"]
    assert "commit LSN after 0/0 until 0/12C" in page.text
    assert Page(shop.read("public.spans", after=200)._repr_html_()).tables == {}

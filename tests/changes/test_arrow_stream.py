"""Changes as one Arrow stream: in nanoarrow, pyarrow, polars, DuckDB and pandas."""

from __future__ import annotations

import datetime
import sys
from typing import Any

import nanoarrow
import pyarrow as pa
import pytest

import pgwire_codec as pgc
from pgwire_codec.errors import OptionError, TableError
from tests.support.build import T, column, decode, insert, relation, row, transaction, update

OTHER = relation(2, column("id", "int4", key=True), name="other")
#: T after ALTER TABLE: a wider key, a column whose type changed, a new one, and none that is gone.
WIDER = relation(
    1, column("id", "int8", key=True), column("v", "int4"), column("more", "bool"), name="renamed"
)
SPANS = relation(3, column("id", "int4", key=True), column("span", "interval"), name="spans")

ONE = transaction(T, insert(1, "1", "a", None), update(1, row("1", "b", ...)), lsn=100)
TWO = [*ONE, *transaction(OTHER, insert(2, "7"), lsn=200)]
ALTERED = [*ONE, *transaction(WIDER, insert(1, "2", "5", "t"), lsn=300)]
SPAN = "1 year 2 mons -3 days 04:05:06.5"
WITH_SPANS = transaction(SPANS, insert(3, "1", SPAN), insert(3, "2", None))
MICROSECONDS = datetime.timedelta(days=365.25 + 60 - 3, hours=4, minutes=5, seconds=6.5)


def test_a_batch_and_changes_of_one_version_are_what_to_arrow_returns() -> None:
    changes = decode(ONE)
    (batch,) = changes
    expected = pa.Table.from_batches([batch.to_arrow()])
    for exported in (batch, changes):
        assert pa.table(exported).equals(expected)
        assert len(nanoarrow.ArrayStream(exported).read_all()) == 2
    assert (changes.num_rows, len(changes), batch.num_rows) == (2, 1, 2)


def test_batches_of_several_calls_of_one_version() -> None:
    decoder = pgc.Decoder()
    arrays = [pa.array(map(pgc.encode_message, part), pa.binary()) for part in (ONE[:3], ONE[3:])]
    changes = decoder.decode(pa.chunked_array(arrays))
    assert len(changes) == 2
    assert pa.table(changes)["v"].to_pylist() == ["a", "b"]


def test_changes_of_several_tables_name_a_way_to_pick_one() -> None:
    changes = decode(TWO)
    with pytest.raises(TableError, match=r"of 2: public\.t, public\.other") as raised:
        pa.table(changes)
    assert raised.value.hint == "Select a table, as in changes.table('public.t')."
    assert pa.table(changes.table("public.other"))["id"].to_pylist() == [7]
    assert changes.table("public.t").num_rows == 2
    with pytest.raises(TableError, match=r"no table 'public\.others'") as raised:
        changes.table("public.others")
    assert raised.value.hint == "Did you mean public.other?"
    with pytest.raises(TableError, match=r"these are changes of 0: none$"):
        decode([]).to_polars()


def test_versions_of_a_table_have_the_columns_of_the_newest() -> None:
    changes = decode(ALTERED).table("public.renamed")
    table = pa.table(changes)
    assert table.schema.names[:4] == ["id", "v", "more", "_op"]
    assert table.select(["id", "v", "more"]).to_pydict() == {
        "id": [1, 1, 2],
        "v": ["a", "b", "5"],
        "more": [None, None, True],
    }
    assert table.schema.field("id").type == pa.int64()
    assert changes.to_polars()["more"].to_list() == [None, None, True]
    with pytest.raises(TableError, match=r"no table 'public\.nobody'"):
        changes.table("public.nobody")


def test_polars_gets_no_intervals() -> None:
    pytest.importorskip("polars")
    assert decode(WITH_SPANS).to_polars()["span"].to_list() == [SPAN, None]
    (batch,) = decode(WITH_SPANS, intervals="microseconds")
    assert batch.to_polars()["span"].to_list() == [MICROSECONDS, None]
    assert batch.new["span"].to_pylist() == [MICROSECONDS, None]
    (batch,) = decode(WITH_SPANS, intervals="string")
    assert batch.to_arrow().schema.field("span").type == pa.string()


def test_options_of_intervals() -> None:
    with pytest.raises(OptionError, match='one of "month_day_nano", "string", "microseconds"'):
        pgc.Decoder(intervals="seconds")


def test_pandas_gets_integers_with_null() -> None:
    pandas = pytest.importorskip("pandas")
    uuid = "11111111-1111-1111-1111-111111111111"
    table = relation(
        1,
        column("id", "int8"),
        column("span", "interval"),
        column("u", "uuid"),
        column("n", "int8"),
    )
    frame = decode(transaction(table, insert(1, str(2**62 + 1), SPAN, uuid, None))).to_pandas()
    assert frame["id"].tolist() == [2**62 + 1]
    assert frame["n"].isna().tolist() == [True]
    assert frame["n"].dtype == pandas.ArrowDtype(pa.int64())
    assert str(frame["u"][0]) == uuid
    assert "DateOffset" in str(frame["span"][0])
    assert "[1 rows x" in str(frame)  # pandas asks each type for its values' class


@pytest.mark.skipif(sys.version_info < (3, 11), reason="DuckDB 2 has no Python 3.10")
def test_duckdb_reads_changes_by_their_name() -> None:
    duckdb: Any = pytest.importorskip("duckdb")
    changes = decode(WITH_SPANS)  # noqa: F841  (DuckDB finds it)
    query = duckdb.sql("SELECT count(*), max(span)::text FROM changes")
    assert query.fetchall() == [(2, "1 year 2 months -3 days 04:05:06.5")]
    several = decode(TWO)  # noqa: F841
    with pytest.raises(Exception, match=r"Select a table, as in changes\.table\('public\.t'\)"):
        duckdb.sql("FROM several").fetchall()


def test_a_schema_cannot_be_requested() -> None:
    with pytest.raises(NotImplementedError, match="requested_schema"):
        decode(ONE).__arrow_c_stream__(object())

"""Benchmarks of the reference, pypgoutput, and a client that fetches the same rows in binary."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pyarrow as pa
import pyarrow.csv
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks import datasets, timed_steps
from benchmarks.change_sets import ChangeSet
from benchmarks.measure import measure, measure_change_set
from benchmarks.timed_steps import Step
from pgwire_codec.capture.connection.connect import connect
from pgwire_codec.demo.server import EmbeddedServer

FEW_ROWS = 2_000  # a slow decoder takes as long for these as a fast one for all
ChangeSets = Callable[[str], ChangeSet]

LINEITEM = """
CREATE UNLOGGED TABLE lineitem (
    l_orderkey bigint, l_partkey int, l_suppkey int, l_linenumber int,
    l_quantity numeric(15, 2), l_extendedprice numeric(15, 2),
    l_discount numeric(15, 2), l_tax numeric(15, 2),
    l_returnflag char(1), l_linestatus char(1),
    l_shipdate date, l_commitdate date, l_receiptdate date,
    l_shipinstruct char(25), l_shipmode char(10), l_comment varchar(44))
"""


@pytest.mark.parametrize("form", ["text", "binary"])
@pytest.mark.parametrize("name", ["scan", "tuples", "decode", "decode 2 of 16", "to_arrow"])
def bench_reference(
    benchmark: BenchmarkFixture, change_sets: ChangeSets, form: str, name: str
) -> None:
    few = change_sets(f"lineitem {form}").first(FEW_ROWS)
    cut = timed_steps.batches(few, None)
    made: dict[str, Callable[[], Step]] = {
        "scan": lambda: timed_steps.scan(cut, "reference"),
        "tuples": lambda: timed_steps.tuples(few, cut, "reference"),
        "decode": lambda: timed_steps.decode(few, cut, "reference"),
        "decode 2 of 16": lambda: timed_steps.decode(few, cut, "reference", wanted=(0, 10)),
        "to_arrow": lambda: timed_steps.to_arrow(few, None, "reference"),
    }
    measure_change_set(benchmark, made[name](), few, cut, name=name, who="reference", rounds=5)


def bench_pypgoutput(benchmark: BenchmarkFixture, change_sets: ChangeSets) -> None:
    """Measure one object a message with values as str; pypgoutput reads no binary form."""
    if find_spec("pypgoutput") is None:
        pytest.skip("pypgoutput is not installed")
    from pypgoutput.decoders import Insert

    messages = change_sets("lineitem text").messages.slice(0, FEW_ROWS).to_pylist()

    def step() -> None:
        for message in messages:
            Insert(message)

    measure(
        benchmark,
        step,
        name="decode_message",
        who="pypgoutput",
        rows=len(messages),
        size=sum(map(len, messages)),
        table="lineitem",
        form="text",
        operation="insert",
    )


@pytest.fixture(scope="module")
def server(size: str) -> Iterator[str]:
    """Start an embedded server with lineitem; yield its DSN."""
    rows = io.BytesIO()
    pyarrow.csv.write_csv(
        datasets.lineitem(datasets.SIZES[size]).rows,
        rows,
        pyarrow.csv.WriteOptions(include_header=False),
    )
    rows.seek(0)
    with EmbeddedServer() as running:
        connection = connect(running.dsn)
        try:
            with connection.cursor() as cursor:
                cursor.execute(LINEITEM)
                cursor.copy_expert("COPY lineitem FROM STDIN (FORMAT csv)", rows)
            connection.commit()
        finally:
            connection.close()
        yield running.dsn


def bench_adbc(benchmark: BenchmarkFixture, server: str) -> None:
    """Measure the client's CPU time, without the server's; numeric stays text."""
    from adbc_driver_postgresql import dbapi

    def fetch() -> pa.Table:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM lineitem")
            return cursor.fetch_arrow_table()

    with dbapi.connect(server) as connection:
        measure(
            benchmark,
            fetch,
            name="fetch",
            who="adbc",
            rows=fetch().num_rows,
            table="lineitem",
            form="binary",
            operation="select",
            rounds=5,
        )

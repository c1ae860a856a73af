"""Mirrors of the corpus have the server's rows, in whatever pieces the log comes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pgwire_codec import log
from pgwire_codec.lake import (
    change_split,
    data_files,
    mirror_options,
    mirroring,
    rewriting,
    table_turns,
    tasks,
)
from pgwire_codec.lake.runners import threads
from pgwire_codec.lake.status import CURRENT, GONE
from pgwire_codec.lake.tables import delta, delta_vectors
from tests.support import spark_logs
from tests.support.corpus import Capture, captures
from tests.support.corpus_truth import truth_differences
from tests.support.lakehouse import delta_rows, usable_format
from tests.support.mirrors import MirrorOf, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("deltalake")

#: Those with the server's texts.
TEXT: Final = [
    each for each in captures() if "binary" not in each.options and each.scenario != "settings"
]

#: Captures of which each engine of Spark mirrors some pieces.
EXAMPLES: Final = {"delta": 10, "iceberg": 3, "parquet": 3}

#: Limits so low that few rows take the ways of many.
LOW: Final = (
    (table_turns, "_BUCKET_BYTES", 2000),
    (change_split, "_PIECE_BYTES", 200),
    (threads, "_MOST_BYTES", 0),
    (tasks, "_BUFFERED_BYTES", 0),
    (data_files, "_GROUP_ROWS", 3),
    (data_files, "_TEXT", 2),
    (rewriting, "_SMALL_FILES", 2),
    (delta, "_CHECKPOINT_COMMITS", 2),
    (delta_vectors, "_INLINE_BYTES", 0),
)


@dataclass(frozen=True)
class Pieces:
    """How a log comes to a mirror.

    ``cuts`` are numbers of messages after which the mirror has the log so far, ``restarts`` says
    whether it is another process each time, ``turn_bytes`` are those of a turn, and ``is_low``
    whether limits are.
    """

    cuts: tuple[int, ...]
    restarts: bool = True
    turn_bytes: int | None = None
    is_low: bool = False

    @contextmanager
    def limits(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module, name, limit in LOW if self.is_low else ():
                patch.setattr(module, name, limit)
            yield


@st.composite
def pieces(draw: st.DrawFn, capture: Capture, most: int = 6) -> Pieces:
    """Cuts between any two messages, in the middle of transactions, too."""
    last = len(capture.messages) - 1
    cuts = draw(st.sets(st.integers(1, max(last, 1)), max_size=most))
    return Pieces(
        tuple(sorted(cuts)),
        draw(st.booleans()),
        draw(st.sampled_from([None, None, 20_000])),
        draw(st.booleans()),
    )


@st.composite
def cut_captures(draw: st.DrawFn, among: Sequence[Capture]) -> tuple[Capture, Pieces]:
    capture = draw(st.sampled_from(among))
    return capture, draw(pieces(capture))


def mirrored(capture: Capture, cut: Pieces, folder: Path, **options: Any) -> MirrorOf:
    """Mirror a capture without Spark."""
    made = MirrorOf(None, folder, options.pop("engine", "local"))
    chosen = mirror_options.MirrorOptions(once=True, max_bytes=cut.turn_bytes, **options)
    running: mirroring.Mirror | None = None

    def run() -> None:
        nonlocal running
        if running is None or cut.restarts:
            running = mirroring.Mirror(made.log, made.opened, "*", threads.Threads(), chosen)
        running.run()

    with cut.limits():
        write(capture, cut, made, run)
    return made


def write(capture: Capture, cut: Pieces, made: MirrorOf, run: Any) -> None:
    """Write a capture to a log, and run a mirror after each piece."""
    ends = [*cut.cuts, len(capture.messages)]
    times = np.full(len(capture.messages), np.datetime64("2024-02-29", "us"))
    with log.LogWriter(made.log, spark_logs.source()) as writer:
        start = 0
        for end in ends:
            part = slice(start, end)
            writer.append(capture.messages[part], capture.lsns[part], times[part])
            writer.flush()
            start = end
            run()


def states(made: MirrorOf) -> dict[str, tuple[Any, ...]]:
    """States of the tables, and how far they are, but of those that were renamed meanwhile."""
    return {
        name: (row["state"], row["commit_lsn"], row["complete_lsn"], row["incomplete"])
        for name, row in made.status().items()
        if row["state"] != GONE
    }


def tables(made: MirrorOf) -> dict[str, pa.Table]:
    """Rows of the tables that the mirror keeps up to date, by name."""
    known = log.Log(made.log).relations_at().relations
    relations = {
        name: known[row["relation_oid"]][1].relation
        for name, row in made.status().items()
        if row["state"] in CURRENT
    }
    if made.engine == "delta":  # of which a query by Spark takes long
        return {name: delta_rows(made.opened.path(each)) for name, each in relations.items()}
    return {name: made.table_of(each) for name, each in relations.items()}


def rows(made: MirrorOf) -> dict[str, list[str]]:
    """Rows of the tables as texts, in order."""
    return {
        name: sorted(map(repr, _comparable(table).to_pylist()))
        for name, table in tables(made).items()
    }


def _comparable(table: pa.Table) -> pa.Table:
    """Return rows whose times are numbers, which Python has all of."""
    names = sorted(table.column_names)
    columns = [table.column(name) for name in names]
    return pa.table([column.cast(_number(column.type)) for column in columns], names)


def _number(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_number(kind.value_type))
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind


def check_truth(capture: Capture, cut: Pieces) -> None:
    """Compare a mirror's tables with the server's."""
    with tempfile.TemporaryDirectory() as folder:
        made = mirrored(capture, cut, Path(folder), types="text")
        errors = {name: row["error"] for name, row in made.status().items() if row["error"]}
        no_columns = "public.empty_row has no columns to mirror, and a target has at least one"
        assert set(errors.values()) <= {no_columns}
        named: dict[str, list[Row]] = {}
        for name, table in tables(made).items():
            short = name.removeprefix("public.")
            lacking = {each.rpartition(" since ")[0] for each in made.status()[name]["incomplete"]}
            # Partitions are rows of their parent.
            named.setdefault("part" if short.startswith("part_") else short, []).extend(
                {
                    column: value
                    for column, value in row.items()
                    if not (value is None and column in lacking)
                }
                for row in table.to_pylist()
            )
        assert list(truth_differences(capture, named)) == []


@pytest.mark.slow
@settings(max_examples=10)
@given(cut_captures(TEXT))
def test_the_servers_rows(example: tuple[Capture, Pieces]) -> None:
    check_truth(*example)


@pytest.mark.thorough
@pytest.mark.parametrize("capture", TEXT, ids=str)
def test_the_servers_rows_of_each_capture(capture: Capture) -> None:
    @settings(max_examples=3)
    @given(pieces(capture))
    def check(cut: Pieces) -> None:
        check_truth(capture, cut)

    check()


#: Options by which tables have types, and values of all captures.
TYPED: Final = {"unrepresentable": "null"}


def check_typed(capture: Capture, cut: Pieces) -> None:
    """Compare a mirror's tables, histories included, with those of a log that comes at once."""
    for engine in ("local", "local parquet"):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            whole = mirrored(capture, Pieces(()), Path(one), engine=engine, **TYPED)
            made = mirrored(capture, cut, Path(other), engine=engine, **TYPED)
            assert states(made) == states(whole)
            assert rows(made) == rows(whole)


@pytest.mark.slow
@settings(max_examples=4)
@given(cut_captures(captures()))
def test_typed_rows(example: tuple[Capture, Pieces]) -> None:
    check_typed(*example)


@pytest.mark.thorough
@pytest.mark.parametrize("capture", captures(), ids=str)
def test_typed_rows_of_each_capture(capture: Capture) -> None:
    @settings(max_examples=1)
    @given(pieces(capture))
    def check(cut: Pieces) -> None:
        check_typed(capture, cut)

    check()


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["delta", "iceberg", "parquet"])
def test_spark_has_the_same_tables(spark: SparkSession, engine: str) -> None:
    """The same rows and states as without Spark, for the same pieces."""
    usable_format(engine)

    @settings(
        max_examples=EXAMPLES[engine], phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(cut_captures(captures()))
    def check(example: tuple[Capture, Pieces]) -> None:
        capture, cut = example
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            alone = "local parquet" if engine == "parquet" else "local"
            expected = mirrored(capture, cut, Path(one), engine=alone, **TYPED)
            made = MirrorOf(spark, Path(other), engine)
            with cut.limits():
                write(capture, cut, made, lambda: made.run(**TYPED))
            assert states(made) == states(expected)
            assert rows(made) == rows(expected)

    check()

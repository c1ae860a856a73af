"""Logs of the benchmark of size: many segments, many tables, and a small table among large ones."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks import change_sets, datasets, spark_data, synthetic_log
from benchmarks.change_sets import CACHE

ONE, SMALL, LARGE, SYNTHETIC = "one", "small", "large", "synthetic"
TABLE = "public.lineitem"
SMALL_TABLE = "public.lineitem1"
SMALL_SHARE = 1000  # the small table has one in so many rows, one after the other


@dataclass(frozen=True)
class Size:
    """Size of the logs.

    Attributes
    ----------
    base : str
        Size of the change set that is repeated.
    rows : int
        Rows of the log of one table, and of that of many.
    scanned : int
        Rows of the log with the small table.
    large : int
        Rows of the large log of one table.
    segments, tables : int
        Of the synthetic log.
    """

    base: str
    rows: int
    scanned: int
    large: int
    segments: int
    tables: int


SIZES = {
    "tiny": Size("tiny", 5_000, 50_000, 20_000, 50, 100),
    "quick": Size("quick", 500_000, 1_000_000, 2_000_000, 1_000, 1_000),
    "full": Size("full", 5_000_000, 8_700_000, 90_000_000, 10_000, 10_000),
}

#: Function from the numbers of rows to the numbers of their tables.
Tables: TypeAlias = "Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]"


def make(size: str) -> Path:
    """Write the logs unless they are cached; return their directory."""
    sources = [change_sets, datasets, spark_data, synthetic_log]
    paths = [Path(__file__), *(Path(str(each.__file__)) for each in sources)]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in paths)).hexdigest()[:8]
    folder = CACHE / f"large-{size}-{digest}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        made = SIZES[size]
        synthetic_log.write_log(unfinished / SYNTHETIC, made.segments, made.tables)
        middle = made.scanned // 2
        few = made.scanned // SMALL_SHARE
        for name, rows, tables, table_of in (
            (ONE, made.rows, 1, lambda row: 0 * row),
            (LARGE, made.large, 1, lambda row: 0 * row),
            (SMALL, made.scanned, 2, lambda row: (row >= middle) & (row < middle + few)),
        ):
            pieces = _messages(made.base, rows, tables, table_of)
            spark_data.write_log(pieces, unfinished / name)
        unfinished.replace(folder)
    return folder


def _messages(size: str, rows: int, tables: int, table_of: Tables) -> Iterator[pa.Array]:
    """Yield transactions of eight inserts, in pieces: the change set, again and again."""
    made = change_sets.change_set("lineitem text", size)
    whole = len(made.messages) // spark_data.ROWS * spark_data.ROWS
    relations = [
        replace(made.relation, oid=made.relation.oid + number, name=f"lineitem{number or ''}")
        for number in range(tables)
    ]
    for start in range(0, rows, whole):
        count = min(whole, rows - start)
        oids = made.relation.oid + table_of(np.arange(start, start + count))
        inserts = _of_relations(made.messages.slice(0, count), oids)
        yield spark_data.in_transactions(relations, inserts, start // spark_data.ROWS)


def _of_relations(inserts: pa.LargeBinaryArray, oids: npt.NDArray[np.int64]) -> pa.Array:
    """Return the inserts with other relations."""
    # An Insert begins with its tag and the OID of its relation.
    begins = np.frombuffer(inserts.buffers()[1], np.int64)[inserts.offset :][: len(inserts)]
    data = np.frombuffer(inserts.buffers()[2], np.uint8).copy()
    data[begins[:, np.newaxis] + np.arange(1, 5)] = oids.astype(">u4").view(np.uint8).reshape(-1, 4)
    buffers = [None, inserts.buffers()[1], pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(inserts), buffers, offset=inserts.offset
    )

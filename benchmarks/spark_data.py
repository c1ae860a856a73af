"""Data of the Spark benchmark: lineitem as a log, as messages, as JSON and as Arrow batches."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import pgwire_codec as pgc
from benchmarks import change_sets, datasets
from benchmarks.change_sets import CACHE, LSN, XID
from pgwire_codec import log

TABLE = "public.lineitem"
ROWS = 8  # of a transaction
FILES = 8
LOG, PLAIN, MESSAGES, ENVELOPES = "log", "plain", "messages", "json"


def make(size: str) -> Path:
    """Make the data unless they are cached; return their directory."""
    sources = [Path(__file__), Path(change_sets.__file__), Path(datasets.__file__)]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:8]
    folder = CACHE / f"spark-{size}-{digest}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        messages = transactions(size)
        write_log([messages], unfinished / LOG)
        write_log([messages], unfinished / PLAIN, compression=None)
        _write_messages(messages, unfinished / MESSAGES)
        _write_envelopes(size, unfinished / ENVELOPES)
        unfinished.replace(folder)
    return folder


def transactions(size: str) -> pa.LargeBinaryArray:
    """Return the inserts in plain transactions of eight: Begin, Inserts, Commit; one Relation."""
    made = change_sets.change_set("lineitem text", size)
    return in_transactions([made.relation], made.messages)


def in_transactions(
    relations: list[pgc.Relation], messages: pa.LargeBinaryArray, first: int = 0
) -> pa.LargeBinaryArray:
    """Return inserts in transactions, of which ``first`` have gone before, and Relations."""
    count = len(messages)
    number = np.arange(-(-count // ROWS))
    begin, commit = change_sets.bounds(LSN + 4096 * (first + number), XID + first + number)
    relation = pa.array(list(map(pgc.encode_message, relations)), pa.large_binary())
    apart = pa.concat_arrays([messages, begin, commit, relation])
    # Position of each message: its transaction, and before, among or after its changes.
    inserts = np.arange(count)
    place = np.concatenate(
        [inserts // ROWS * 3 + 1, number * 3, number * 3 + 2, [0.5] * len(relations)],
    )
    return apart.take(pa.array(np.argsort(place, kind="stable")))


def write_log(pieces: Iterable[pa.LargeBinaryArray], folder: Path, **options: Any) -> None:
    """Write messages as a log, with options of its writer."""
    source = log.LogSource("1", 1, "bench", "bench", 180_000, {})
    with log.LogWriter(folder, source, **options) as writer:
        for messages in pieces:
            for start in range(0, len(messages), 10_000):
                piece = messages.slice(start, 10_000).cast(pa.binary())
                lsn = np.zeros(len(piece), np.uint64)
                writer.append(piece, lsn, np.full(len(piece), np.datetime64("2024-02-29", "us")))


def _write_messages(messages: pa.LargeBinaryArray, folder: Path) -> None:
    folder.mkdir()
    table = pa.table({"ordinal": np.arange(len(messages)), "data": messages.cast(pa.binary())})
    _write_parquet(table, folder)


def _write_envelopes(size: str, folder: Path) -> None:
    """Write Debezium's JSON without schemas, with decimals as numbers and dates as text."""
    folder.mkdir()
    rows = datasets.lineitem(datasets.SIZES[size]).rows
    source = json.dumps({"connector": "postgresql", "table": "lineitem", "txId": XID, "lsn": LSN})
    pieces = []
    for number, name in enumerate(rows.column_names):
        column = rows[name]
        text = column.cast(pa.string())
        if pa.types.is_string(column.type) or pa.types.is_date(column.type):
            text = pc.binary_join_element_wise('"', text, '"', "")
        start = '{"before":null,"after":{' if number == 0 else ","
        pieces += [f'{start}"{name}":', text]
    end = f'}},"source":{source},"op":"c","ts_ms":1709164800000}}'
    envelopes = pc.binary_join_element_wise(*pieces, end, "")
    _write_parquet(pa.table({"value": envelopes}), folder)


def _write_parquet(table: pa.Table, folder: Path) -> None:
    rows = -(-len(table) // FILES)
    for number in range(FILES):
        piece = table.slice(number * rows, rows)
        pq.write_table(piece, folder / f"part-{number}.parquet", compression="none")


def keep_batches(batches: Iterator[tuple[int, pa.RecordBatch]], folder: Path) -> None:
    """Write the record batches of each partition to a file, named by its number."""
    folder.mkdir()
    writers: dict[int, Any] = {}
    for number, batch in batches:
        if number not in writers:
            writers[number] = pa.ipc.new_file(str(folder / f"{number}.arrow"), batch.schema)
        writers[number].write(batch)
    for writer in writers.values():
        writer.close()

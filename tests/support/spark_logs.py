"""Captures of the corpus as logs, and their rows from a serial decoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.lake.row_types import ROW_TYPES
from tests.support.corpus import Capture

Row = dict[str, Any]

#: True if Spark limits the micro-batches of Python sources, which 4.2 and later do.
HAS_LIMITS = (
    find_spec("pyspark") is not None and find_spec("pyspark.sql.streaming.datasource") is not None
)


def source() -> log.LogSource:
    """Return the source of a log."""
    return log.LogSource(
        system_identifier="7",
        timeline=1,
        database="shop",
        slot="slot",
        server_version=180_000,
        plugin_options={},
    )


def write(
    folder: Path,
    messages: Sequence[bytes],
    lsns: npt.ArrayLike | None = None,
    *,
    flushes: int = 1,
    **options: Any,
) -> str:
    """Write a log of one session, or append a session to one, and return its path."""
    lsn = np.zeros(len(messages), np.uint64) if lsns is None else np.asarray(lsns, np.uint64)
    time = np.full(len(messages), np.datetime64("2024-02-29", "us"))
    bounds = np.linspace(0, len(messages), flushes + 1).astype(int).tolist()
    with log.LogWriter(folder, source(), **options) as writer:
        for start, stop in pairwise(bounds):
            writer.append(list(messages[start:stop]), lsn[start:stop], time[start:stop])
            writer.flush()
    return str(folder)


def to_log(capture: Capture, folder: Path, **options: Any) -> str:
    """Write a capture as a log, and return its path."""
    return write(folder / capture.name, capture.messages, capture.lsns, **options)


def place(row: Row) -> tuple[int, int]:
    """Return the place of a row in the total order of a table's changes."""
    return row["_commit_lsn"], row["_seq"]


def serial_rows(capture: Capture, table: str, columns: Iterable[str], **options: Any) -> list[Row]:
    """Return a table's rows from a serial decoder, in order, with its newest version's names."""
    columns = list(columns)
    decoder = pgc.Decoder(**{"arrow_types": ROW_TYPES} | options)
    rows = []
    changes = decoder.decode(capture.messages, capture.lsns)
    newest = decoder.carry.scope.named(table)
    assert newest is not None
    for batch in changes:
        if batch.relation.oid == newest.relation.oid:
            rows += [{name: row.get(name) for name in columns} for row in batch.to_pylist()]
    return sorted(rows, key=place)


def serial_changes(capture: Capture) -> list[Row]:
    """Return all tables' rows from a serial decoder, with the values as text."""
    rows = []
    for batch in pgc.Decoder(types="text", before="none").decode(capture.messages, capture.lsns):
        sent = batch.to_arrow([]).rename_columns(_METADATA).to_pylist()
        new, old = (_texts(columns, len(batch)) for columns in (batch.new, batch.old))
        for row, (metadata, op) in enumerate(zip(sent, batch.op.tolist(), strict=True)):
            rows.append(
                {
                    "relation": batch.version.qualified_name,
                    "op": metadata.pop("_op"),
                    "new": new[row] if chr(op) in "IU" else None,
                    "old": old[row] if chr(op) in "UD" and old[row] else None,
                    **metadata,
                }
            )
    return sorted(rows, key=in_order)


def in_order(row: Row) -> tuple[int, int, str]:
    """Return the place of a row of any table: a truncate of several has one number for each."""
    return *place(row), row["relation"]


_METADATA = (
    "_op", "_xid", "_lsn", "_commit_lsn", "_commit_time", "_seq", "_origin", "_unchanged",
)  # fmt: skip


def _texts(columns: Any, rows: int) -> list[dict[str, str | None]]:
    """Return the columns that were sent, by row."""
    values = {name: (column.state, column.to_pylist()) for name, column in columns.items()}
    return [
        {name: texts[row] for name, (state, texts) in values.items() if state[row] in (0, 1)}
        for row in range(rows)
    ]

"""Logs whose segments are joined, and all that a reader finds in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from pgwire_codec import log
from pgwire_codec.log import joining
from tests.support import corpus
from tests.support.logs import write
from tests.transactions.test_splits import rows

CAPTURE = corpus.capture("immediate.pg18.v4-parallel-2pc")
#: Sizes of a part of the joined segments: a message, a few messages, the usual size.
PART_BYTES = (1, 2000, joining.PART_BYTES)


def cut(count: int, pieces: int) -> list[int]:
    return [count * number // pieces for number in range(1, pieces)]


def contents(reader: log.Log) -> tuple[Any, ...]:
    """Return all that a reader of the whole log finds."""
    messages = pa.Table.from_batches(reader.messages()).combine_chunks()
    changes = rows([list(reader.read())])
    one_by_one = [list(each.decode()) for each in reader.plan(max_partition_bytes=1).partitions]
    assert rows([[batch for each in one_by_one for batch in each]]) == changes
    assert rows(list(reader.changes())) == changes
    scope = reader.scope_before(len(reader))
    return messages, changes, scope, set(reader.versions), reader.begin, reader.end, reader.source


def check_same(reader: log.Log, before: tuple[Any, ...]) -> None:
    assert contents(reader) == before


def names(directory: Path) -> list[str]:
    return sorted(path.stem for path in directory.glob("*.arrow"))


def build_log(
    directory: Path, pieces: int = 8, capture: corpus.Capture = CAPTURE, **options: Any
) -> log.Log:
    return write(capture, directory, cut(len(capture.messages), pieces), part_bytes=500, **options)


def check_index(directory: Path) -> int:
    """Check that the files of the index have a row for each segment, up to the last few."""
    found = []
    for path in sorted(directory.glob("*.index")):
        with pa.ipc.open_stream(path) as stream:
            table = stream.read_all()
        columns = (table.column(name).to_pylist() for name in ("first_ordinal", "end_ordinal"))
        found += list(zip(*columns, strict=True))
    segments = [(each.first_ordinal, each.end_ordinal) for each in log.Log(directory).segments]
    assert found == segments[: len(found)]
    assert len(segments) - len(found) < 3
    return len(found)

"""Logs of many segments and tables: index and sidecars are real, segments have no messages.

    python -m benchmarks.synthetic_log SEGMENTS TABLES

writes a log, and prints what it costs to open it and to plan the last day of one table.
"""

from __future__ import annotations

import pickle
import resource
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.log.bounds import (
    MANIFEST,
    NOTHING_GROWS,
    WATERMARK,
    Manifest,
    Watermark,
    manifest_to_bytes,
    watermark_to_bytes,
)
from pgwire_codec.log.index_writer import IndexWriter
from pgwire_codec.log.segment import Extent, Segment, SegmentHeader, SegmentPart
from pgwire_codec.log.sidecar import segment_to_bytes
from pgwire_codec.log.state import LogState
from pgwire_codec.log.store import Store, open_store
from pgwire_codec.protocol.messages import RelationColumn
from pgwire_codec.transactions.carry import Scope
from pgwire_codec.transactions.resolver import Advance
from pgwire_codec.transactions.summary import Event

SOURCE = log.LogSource("7000000000000000001", 1, "shop", "slot", 180000)
SEGMENT_BYTES = 128 << 20
PARTS = 16
CHANGED = 100  #: tables with changes in a segment
DAY = 100  #: segments of a day
LSNS = 1 << 20  #: a segment's share of the LSNs
_CHECKSUM = "0" * 16


def write_log(uri: Path, segments: int, tables: int) -> None:
    """Write a log: each segment has changes of a hundred tables, and the first ones declare all."""
    uri.mkdir(parents=True)
    store = open_store(uri)
    log_id = "synthetic"
    store.write(MANIFEST, manifest_to_bytes(Manifest(log_id, 0)))
    index = IndexWriter(store, log_id, [])
    scope, state = Scope(), LogState()
    for number in range(segments):
        segment = _segment(number, tables, log_id, state)
        (uri / f"{segment.name}.arrow").touch()
        (uri / f"{segment.name}.json").write_bytes(segment_to_bytes(segment))
        declared = segment.declared(scope)
        index.add(segment, scope, declared)
        scope.update(declared)
        state = segment.state()
    _write_watermark(store, log_id, segments)


def _segment(number: int, tables: int, log_id: str, state: LogState) -> Segment:
    changed = [1 + (number * CHANGED + each) % tables for each in range(CHANGED)]
    changed.sort()
    is_declared = number * CHANGED < tables
    events: list[Event] = [_relation(oid) for oid in changed] if is_declared else []
    first, messages = number * PARTS * 1000, PARTS * 1000
    lsn = (number + 1) * LSNS
    parts = []
    size = SEGMENT_BYTES // PARTS
    for place in range(PARTS):
        commit = lsn - LSNS + (place + 1) * LSNS // PARTS
        summary = pgc.Summary(
            1000,
            (*(events if not place else ()), Advance(commit)),
            None,
            False,
            number == 0 and place == 0,
            tuple(changed[place * CHANGED // PARTS : (place + 1) * CHANGED // PARTS]),
        )
        extent = Extent(1000 + place * size, size, _CHECKSUM)
        parts.append(
            SegmentPart(extent, first + place * 1000, 1000, size, summary, commit, 0, 1000)
        )
    versions = Scope()
    header = SegmentHeader(log_id, SOURCE, 1, number == 0, False, first, state)
    segment = Segment(
        header=header,
        sealed=True,
        header_extent=Extent(0, 1000, _CHECKSUM),
        bytes=1000 + PARTS * size + 8,
        messages=messages,
        message_bytes=PARTS * size,
        commits=PARTS,
        first_commit_lsn=lsn - LSNS + LSNS // PARTS,
        last_commit_lsn=lsn,
        first_time=np.datetime64(number * 864, "s").astype("datetime64[us]"),
        last_time=np.datetime64(number * 864 + 863, "s").astype("datetime64[us]"),
        delivered_lsn=lsn,
        parts=tuple(parts),
        tables=tuple(
            log.RelationCount(f"public.table_{oid}", 100, 20, 10, 0, 10_000, oid) for oid in changed
        ),
        versions=(),
        opened={},
    )
    declared = segment.declared(versions).relations.values()
    return replace(segment, versions=tuple(version for _, version in declared))


def _relation(oid: int) -> pgc.Relation:
    types = [23, 25, 25, 1184]
    names = ["id", "name", "note", "changed_at"]
    columns = tuple(
        RelationColumn(int(name == "id"), name, type_oid, -1)
        for name, type_oid in zip(names, types, strict=True)
    )
    return pgc.Relation(None, oid, "public", f"table_{oid}", "d", columns)


def _write_watermark(store: Store, log_id: str, segments: int) -> None:
    lsn = segments * LSNS
    watermark = Watermark(
        log_id=log_id,
        source=SOURCE,
        **NOTHING_GROWS._asdict(),
        end_ordinal=segments * PARTS * 1000,
        delivered_lsn=lsn,
        confirm_lsn=lsn,
        received_lsn=lsn,
        time="",
    )
    store.write(WATERMARK, watermark_to_bytes(watermark))


def measure(uri: Path, tables: int) -> None:
    """Open a log, plan the last day of one table, and print the costs."""
    start = time.process_time()
    reader = log.Log(uri)
    until = reader.end.lsn
    opened = time.process_time()
    plan = reader.plan(max(until - DAY * LSNS, 0), table=f"public.table_{tables // 2}")
    planned = time.process_time()
    size = max((len(pickle.dumps(each)) for each in plan.partitions), default=0)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"open {opened - start:.3f} s, plan {planned - opened:.3f} s of CPU; {memory:.0f} MB")
    print(f"{len(plan.partitions)} partitions of at most {size} bytes")


def main() -> None:
    """Write a log in a temporary folder, and measure in another process."""
    segments, tables = map(int, sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        uri = Path(folder) / "log"
        write_log(uri, segments, tables)
        sidecars = sorted(path.stat().st_size for path in uri.glob("0*.json"))
        index = sum(path.stat().st_size for path in uri.glob("*.index"))
        print(f"{segments} segments, {tables} tables, {CHANGED} of them changed in a segment")
        print(f"sidecar: median {sidecars[len(sidecars) // 2]} bytes; index: {index} bytes")
        process = get_context("spawn").Process(target=measure, args=(uri, tables))
        process.start()
        process.join()
        sys.exit(process.exitcode)


if __name__ == "__main__":
    main()

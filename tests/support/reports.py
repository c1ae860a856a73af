"""Logs for tests of the report, and its figures counted in another way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pgwire_codec import log, report
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS
from tests.support.build import wire
from tests.support.logs import SOURCE
from tests.support.pages import Page

OPS = "IUDT"
#: Row of a table in the report: inserts, updates, deletes, truncates, bytes.
Counts = dict[str, list[int]]


def counted(batches: Any) -> Counts:
    """Return rows and bytes, counted one by one."""
    found: Counts = {}
    for batch in batches:
        counts = found.setdefault(batch.version.qualified_name, [0] * 5)
        for number, op in enumerate(batch.op.tolist()):
            counts[OPS.index(chr(op))] += 1
            counts[4] += len(batch.message(number)) if op != ord("T") else 0
    return found


def as_counts(tables: tuple[log.TableCount, ...]) -> Counts:
    return {
        each.table: [each.inserts, each.updates, each.deletes, each.truncates, each.bytes]
        for each in tables
    }


def written(directory: Path, *messages: Any, times: Any = None, **options: Any) -> log.Log:
    """Write a log of one session; ``times`` are microseconds since 2000, one a message, or None."""
    data = wire(messages)
    when = [None] * len(data) if times is None else [at + EPOCH_MICROSECONDS for at in times]
    sent = np.array(["NaT" if at is None else at for at in when], "datetime64[us]")
    with log.LogWriter(directory, SOURCE, **options) as writer:
        writer.append(data, np.zeros(len(data), np.uint64), sent)
    return log.Log(directory)


def page(found: report.Findings) -> Page:
    return Page(report.render(found))

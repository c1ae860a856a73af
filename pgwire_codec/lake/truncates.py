"""Truncates of a relation in a log, such as those with which copies of a table begin."""

from __future__ import annotations

from typing import Final

import numpy as np

from pgwire_codec.log import Log
from pgwire_codec.options import DecoderOptions

_TRUNCATE: Final = ord("T")

#: For changes of which only the kind is read; other messages may be damaged.
TEXTS: Final = DecoderOptions(types="text", before="none", on_error="skip")


def last_truncate(log: Log, oid: int, after: int) -> int | None:
    """Return the commit LSN of the last truncate of a relation after another one, if any."""
    segments = {
        segment.name
        for segment in log.segments
        if any(each.relation_oid in (oid, 0) and each.truncates for each in segment.tables)
    }
    found: list[int] = []
    for partition in log.plan(after, None, relation_oid=oid, on_error="skip").partitions:
        if partition.segment not in segments:
            continue
        for batch in partition.decode(TEXTS):
            if batch.relation.oid == oid:
                rows = np.flatnonzero(batch.op == _TRUNCATE)
                found += batch.commit_lsn[rows].tolist()
    return max(found, default=None)

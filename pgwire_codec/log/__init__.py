"""The durable log of a replication slot: raw messages in Arrow IPC segments.

A slot has one reader, and the server discards confirmed changes. A capture therefore writes raw
messages to a log and confirms those that are durable there. Any number of readers decode the log,
in parallel, from any commit LSN on.

>>> from pgwire_codec import log
>>> with log.LogWriter("shop.log", source) as writer:
...     writer.append(batch.data, batch.lsn, batch.time)
...     writer.flush(confirm_lsn=batch.confirm_lsn)
>>> for changes in log.Log("shop.log").read("public.orders"):
...     print(changes.to_arrow())

Needs the extra ``log``: ``pip install 'pgwire-codec[log]'``.
"""

from pgwire_codec.errors import LogError, missing_extra

try:  # here, for a clear error message
    import msgspec  # noqa: F401
    import pyarrow  # noqa: F401
    import xxhash  # noqa: F401
except ImportError as error:
    raise missing_extra(f"pgwire_codec.log needs {error.name}", "log") from error

from pgwire_codec.log.bounds import Manifest
from pgwire_codec.log.compaction import JoinedFiles, compact
from pgwire_codec.log.consumers import Consumer, LsnFile, SparkCheckpoint
from pgwire_codec.log.dead_letters import dead_letters
from pgwire_codec.log.index_check import Damage
from pgwire_codec.log.log_changes import LogChanges
from pgwire_codec.log.partition import LogPartition, LogPlan, LogPosition
from pgwire_codec.log.prune import prune
from pgwire_codec.log.reader import Log
from pgwire_codec.log.relations import LoggedRelation
from pgwire_codec.log.retention import Retention, retain
from pgwire_codec.log.segment import (
    Extent,
    RelationCount,
    Segment,
    SegmentHeader,
    SegmentPart,
    TableCount,
)
from pgwire_codec.log.source import LogSource
from pgwire_codec.log.statistics import (
    ChangeCounts,
    LogStatistics,
    OpenStatistics,
    statistics,
)
from pgwire_codec.log.table_requests import TableRequest, TableRequests
from pgwire_codec.log.timed_store import WriteTimes
from pgwire_codec.log.verify import Verification, verify
from pgwire_codec.log.writer import LogWriter, WriterStatistics

__all__ = [
    "ChangeCounts",
    "Consumer",
    "Damage",
    "Extent",
    "JoinedFiles",
    "Log",
    "LogChanges",
    "LogError",
    "LogPartition",
    "LogPlan",
    "LogPosition",
    "LogSource",
    "LogStatistics",
    "LogWriter",
    "LoggedRelation",
    "LsnFile",
    "Manifest",
    "OpenStatistics",
    "RelationCount",
    "Retention",
    "Segment",
    "SegmentHeader",
    "SegmentPart",
    "SparkCheckpoint",
    "TableCount",
    "TableRequest",
    "TableRequests",
    "Verification",
    "WriteTimes",
    "WriterStatistics",
    "compact",
    "dead_letters",
    "prune",
    "retain",
    "statistics",
    "verify",
]


def __dir__() -> list[str]:
    return __all__

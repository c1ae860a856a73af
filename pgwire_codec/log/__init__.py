"""The durable log of a replication slot: raw messages in Arrow IPC segments.

A slot has one reader and forgets what was confirmed. A capture therefore writes raw messages to a
log, confirms what is safe there, and any number of readers decode the log, in parallel, from any
commit LSN on.

>>> from pgwire_codec import log
>>> with log.LogWriter("shop.log", source) as writer:
...     writer.append(batch.data, batch.lsn, batch.time)
...     writer.flush(confirm_lsn=batch.confirm_lsn)
>>> for changes in log.Log("shop.log").read("public.orders"):
...     print(changes.to_arrow())

Needs the extra ``log``: ``pip install 'pgwire-codec[log]'``.
"""

from pgwire_codec.errors import LogError, MissingExtraError

try:  # asked for here, so that the message is a clear one
    import msgspec  # noqa: F401
    import pyarrow  # noqa: F401
    import xxhash  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        f"pgwire_codec.log needs {error.name}: pip install 'pgwire-codec[log]'"
    ) from error

from pgwire_codec.log.copying import copy
from pgwire_codec.log.manifest import Manifest
from pgwire_codec.log.partition import LogPartition, LogPlan
from pgwire_codec.log.position import Position
from pgwire_codec.log.prune import prune
from pgwire_codec.log.reader import Log
from pgwire_codec.log.relations import LoggedRelation
from pgwire_codec.log.segment import Extent, Head, Part, Segment, TableCount
from pgwire_codec.log.source import Source
from pgwire_codec.log.statistics import (
    ChangeCounts,
    LogStatistics,
    OpenStatistics,
    statistics,
)
from pgwire_codec.log.verify import Damage, Report, verify
from pgwire_codec.log.writer import LogWriter, WriterStatistics

__all__ = [
    "ChangeCounts",
    "Damage",
    "Extent",
    "Head",
    "Log",
    "LogError",
    "LogPartition",
    "LogPlan",
    "LogStatistics",
    "LogWriter",
    "LoggedRelation",
    "Manifest",
    "OpenStatistics",
    "Part",
    "Position",
    "Report",
    "Segment",
    "Source",
    "TableCount",
    "WriterStatistics",
    "copy",
    "prune",
    "statistics",
    "verify",
]

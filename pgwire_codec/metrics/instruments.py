"""Instruments: name, unit and meaning of each metric, once.

OpenTelemetry, "General metric semantic conventions": units are of UCUM, and in braces if they only
name what is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

#: Upper bounds of the histograms' buckets, in seconds.
SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip

_PROMETHEUS_UNITS: Final = {"By": "bytes", "s": "seconds"}

#: Attribute of all metrics of a capture: its replication slot.
SLOT: Final = "slot"
#: Attribute of all metrics of a mirror: its target.
TARGET: Final = "target"


@dataclass(frozen=True, slots=True)
class Instrument:
    """An OpenTelemetry instrument.

    Attributes
    ----------
    name : str
    kind : {"counter", "gauge", "histogram"}
        A counter begins at 0 with each run.
    unit : str
    description : str
    attributes : tuple of str
        Names of the attributes by which it is divided.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    description: str
    attributes: tuple[str, ...]

    @property
    def prometheus_name(self) -> str:
        """Name of the metric in Prometheus; a histogram's has ``_bucket`` or ``_count`` after it.

        OpenTelemetry, "Prometheus and OpenMetrics Compatibility".
        """
        name, unit = self.name.replace(".", "_"), _PROMETHEUS_UNITS.get(self.unit, "")
        if unit and not name.endswith(f"_{unit}"):
            name += f"_{unit}"
        return f"{name}_total" if self.kind == "counter" else name


def _of_capture(
    name: str,
    kind: Literal["counter", "gauge", "histogram"],
    unit: str,
    description: str,
    *attributes: str,
) -> Instrument:
    return Instrument(f"pgwire_codec.capture.{name}", kind, unit, description, (SLOT, *attributes))


def _of_mirror(
    name: str, kind: Literal["counter", "gauge"], unit: str, description: str, *attributes: str
) -> Instrument:
    return Instrument(f"pgwire_codec.mirror.{name}", kind, unit, description, (TARGET, *attributes))


STATE: Final = _of_capture(
    "state",
    "gauge",
    "",
    "1 for the present state: connecting, snapshot, streaming, waiting (to connect) or stopped; 0 "
    "for the others.",
    "state",
)
LAG_BYTES: Final = _of_capture(
    "lag.bytes", "gauge", "By", "WAL that the server has flushed and that is not confirmed yet."
)
LAG_SECONDS: Final = _of_capture(
    "lag.seconds", "gauge", "s", "Time since the server's WAL ended at the confirmed LSN."
)
CONFIRMED_LSN: Final = _of_capture(
    "confirmed.lsn", "gauge", "{byte}", "LSN up to which everything is durable in the log."
)
RECEIVED_LSN: Final = _of_capture(
    "received.lsn", "gauge", "{byte}", "Highest LSN that the server has reported."
)
MESSAGES: Final = _of_capture("messages", "counter", "{message}", "Messages written to the log.")
MESSAGE_BYTES: Final = _of_capture(
    "message.bytes", "counter", "By", "Bytes of the messages written to the log."
)
TRANSACTIONS: Final = _of_capture(
    "transactions", "counter", "{transaction}", "Commits of transactions received."
)
LOG_BYTES: Final = _of_capture("log.bytes", "counter", "By", "Bytes of the log's segments written.")
LOG_SEGMENTS: Final = _of_capture(
    "log.segments", "counter", "{segment}", "Segments of the log begun."
)
FLUSH_DURATION: Final = _of_capture(
    "flush.duration", "histogram", "s", "Time of a flush, which makes all that arrived durable."
)
SYNC_DURATION: Final = _of_capture(
    "sync.duration", "histogram", "s", "Time of an fsync; in an object store, of the write."
)
STALL_SECONDS: Final = _of_capture(
    "stall.seconds",
    "gauge",
    "s",
    "Time for which the stream was not read or a write has not ended; usually below a second.",
)
RECONNECTS: Final = _of_capture(
    "reconnects", "counter", "{connection}", "Starts of the stream after the first one."
)
ERRORS: Final = _of_capture(
    "errors",
    "counter",
    "{error}",
    "Errors by code: the SQLSTATE, the system's name, as ENOSPC, or the error's class.",
    "code",
)
NOTICES: Final = _of_capture(
    "notices",
    "counter",
    "{notice}",
    "Notices and warnings of the server on the stream's connection, by SQLSTATE.",
    "code",
)
SNAPSHOT_ROWS: Final = _of_capture(
    "snapshot.rows", "gauge", "{row}", "Rows that the snapshot has copied."
)
SNAPSHOT_TABLES: Final = _of_capture(
    "snapshot.tables", "gauge", "{table}", "Tables whose copy the snapshot has begun."
)
SLOT_ACTIVE: Final = _of_capture(
    "slot.active", "gauge", "", "1 if the server has a connection that reads the slot, else 0."
)
SLOT_WAL_STATUS: Final = _of_capture(
    "slot.wal_status",
    "gauge",
    "",
    "1 for the slot's present wal_status: reserved, extended, unreserved or lost; 0 for the "
    "others. PostgreSQL 13+.",
    "wal_status",
)
SLOT_SAFE_WAL_SIZE: Final = _of_capture(
    "slot.safe_wal_size",
    "gauge",
    "By",
    "WAL that can be written before the slot may be lost; only with max_slot_wal_keep_size. "
    "PostgreSQL 13+.",
)
SLOT_RETAINED: Final = _of_capture(
    "slot.retained", "gauge", "By", "WAL that the server keeps for the slot."
)
MONITOR_AGE: Final = _of_capture(
    "monitor.age", "gauge", "s", "Time since the lag and the slot were last read on the server."
)
MONITOR_ERRORS: Final = _of_capture(
    "monitor.errors", "counter", "{error}", "Failed readings of these, by code.", "code"
)

MIRROR_ACTIVE: Final = _of_mirror("active", "gauge", "", "1 while the mirror runs, else 0.")
MIRROR_BATCHES: Final = _of_mirror("batches", "counter", "{batch}", "Micro-batches applied.")
MIRROR_LSN: Final = _of_mirror(
    "lsn", "gauge", "{byte}", "Commit LSN up to which all tables are complete that do not fail."
)
LOG_LSN: Final = _of_mirror(
    "log.lsn", "gauge", "{byte}", "Commit LSN of the last transaction in the log."
)
LOG_AGE: Final = _of_mirror(
    "monitor.age", "gauge", "s", "Time since the end of the log was last read."
)
LOG_ERRORS: Final = _of_mirror(
    "monitor.errors", "counter", "{error}", "Failed readings of it, by code.", "code"
)
TABLE_STATE: Final = _of_mirror(
    "table.state",
    "gauge",
    "",
    "1 for the table's present state: ok, incomplete, modified, retrying, set aside, resuming, "
    "replaying or gone; 0 for the others.",
    "table",
    "state",
)
TABLE_CHANGES: Final = _of_mirror(
    "table.changes", "counter", "{change}", "Changes applied to the table.", "table"
)
TABLE_ERRORS: Final = _of_mirror(
    "table.errors", "counter", "{error}", "Times that the table was set aside.", "table"
)
TABLE_DEAD_LETTERS: Final = _of_mirror(
    "table.dead_letters",
    "gauge",
    "{change}",
    "Changes that the target lacks, because they do not decode.",
    "table",
)
TABLE_LSN: Final = _of_mirror(
    "table.lsn", "gauge", "{byte}", "Commit LSN up to which the table is complete.", "table"
)
TABLE_LAG_BYTES: Final = _of_mirror(
    "table.lag.bytes",
    "gauge",
    "By",
    "WAL from the table's LSN to the end of the log, if the log has changes of it after that.",
    "table",
)
TABLE_LAG_SECONDS: Final = _of_mirror(
    "table.lag.seconds", "gauge", "s", "Time since the log ended at the table's LSN.", "table"
)

#: All instruments.
INSTRUMENTS: Final = tuple(each for each in globals().values() if isinstance(each, Instrument))

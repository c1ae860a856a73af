"""Status of the capture and the mirror of a file: slot, log and tables, each by itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pgwire_codec.capture import with_password_command
from pgwire_codec.capture.lag import Lag, Sample, Samples, read_slot
from pgwire_codec.capture.slot_status import SlotStatus
from pgwire_codec.cli import PERMANENT, RETRY
from pgwire_codec.cli.arguments import name_options
from pgwire_codec.cli.capture import capture
from pgwire_codec.cli.failure import exit_code_of
from pgwire_codec.cli.lake_options import opened_lake
from pgwire_codec.cli.mirror import mirror
from pgwire_codec.cli.mirror_report import lag_seconds, plain_table
from pgwire_codec.errors import PgwireError
from pgwire_codec.format import (
    format_count,
    format_duration,
    format_size,
    format_timestamp,
    printable,
)
from pgwire_codec.lake.status import GONE, OK, SET_ASIDE, TableStatus
from pgwire_codec.log import Log
from pgwire_codec.log.statistics import LogStatistics, statistics_of
from pgwire_codec.protocol.epoch import EPOCH_MICROSECONDS
from pgwire_codec.protocol.lsn import format_lsn

if TYPE_CHECKING:
    from pgwire_codec.cli.run_file import RunFile

_Part = TypeVar("_Part")

_LOST: Final = "lost"  # pg_replication_slots.wal_status

#: Seconds after the log's last commit from which on a table without it lags.
_BEHIND_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class LogStatus:
    """Statistics of a log, and its last commit time in microseconds since 1970, if it has one."""

    statistics: LogStatistics
    commit_time: int | None


@dataclass(frozen=True, slots=True)
class FileStatus:
    """Status of what a file describes. An error takes the place of a part that cannot be read.

    Attributes
    ----------
    file : RunFile
    log : LogStatus or PgwireError
    slot : tuple of Sample and SlotStatus, PgwireError, or None
        End of the server's WAL and the slot, if that exists; None without a capture.
    tables : list of TableStatus, PgwireError, or None
        Tables of the target, by name; None without a mirror.
    """

    file: RunFile
    log: LogStatus | PgwireError
    slot: tuple[Sample, SlotStatus | None] | PgwireError | None
    tables: list[TableStatus] | PgwireError | None

    @property
    def exit_code(self) -> int:
        """Exit status: the highest of the parts, and 0 if all is well."""
        parts = (self.log, self.slot, self.tables)
        codes = [exit_code_of(part) for part in parts if isinstance(part, PgwireError)]
        if isinstance(self.slot, tuple) and not isinstance(self.log, PgwireError):
            slot = self.slot[1]
            codes.append(PERMANENT if slot is None or slot.wal_status == _LOST else 0)
        if isinstance(self.tables, list):
            codes += map(self._code_of, self.tables)
        return max(codes, default=0)

    def _code_of(self, table: TableStatus) -> int:
        if _remedy(self.file, table) is not None:
            return PERMANENT
        if table.state == GONE:
            return 0
        return RETRY if table.state != OK or self.is_behind(table) else 0

    def is_behind(self, table: TableStatus) -> bool:
        """Return whether a table lacks changes that the log has had for some time."""
        if isinstance(self.log, PgwireError) or self.log.commit_time is None:
            return False
        age = datetime.now(timezone.utc) - _time(self.log.commit_time)
        return bool(self.lag_bytes(table)) and age.total_seconds() > _BEHIND_SECONDS

    @property
    def lag(self) -> Lag | None:
        """Lag of the log, if server and log can be read."""
        if not isinstance(self.slot, tuple) or isinstance(self.log, PgwireError):
            return None
        samples = Samples()
        samples.add(self.slot[0])
        time = self.log.commit_time
        since = None if time is None else time - EPOCH_MICROSECONDS
        return samples.lag(self.log.statistics.confirm_lsn, since)

    def lag_bytes(self, table: TableStatus) -> int | None:
        """Return how far the log's end is ahead of a table, if both are known."""
        if isinstance(self.log, PgwireError) or table.complete_lsn is None:
            return None
        return max(0, self.log.statistics.end.lsn - table.complete_lsn)


def read_status(file: RunFile) -> FileStatus:
    """Read the status of what a file describes, in its folder."""
    captured, mirrored = file.values.get("capture"), file.values.get("mirror")
    values = captured or mirrored
    assert values is not None, "a file has a section"
    return FileStatus(
        file,
        _attempt(lambda: _read_log(values["log"])),
        None if captured is None else _attempt(lambda: _read_slot(captured)),
        None if mirrored is None else _attempt(lambda: _read_tables(mirrored)),
    )


def _attempt(read: Callable[[], _Part]) -> _Part | PgwireError:
    try:
        return read()
    except PgwireError as error:
        return error


def _read_log(uri: str) -> LogStatus:
    log = Log(uri)
    times = [times.latest for each in log.segments if (times := each.commit_times) is not None]
    return LogStatus(statistics_of(log), max(times, default=None))


def _read_slot(values: dict[str, Any]) -> tuple[Sample, SlotStatus | None]:
    dsn = with_password_command(values["dsn"], values["password_command"])
    return read_slot(dsn, values["slot"])


def _read_tables(values: dict[str, Any]) -> list[TableStatus]:
    with opened_lake(values["target"], values["conf"]) as lake:
        rows = lake.status().read()
    return [rows[name] for name in sorted(rows)]


def _remedy(file: RunFile, table: TableStatus) -> str | None:
    """Return the command for a table that lacks changes, once the cause is removed."""
    if table.state != SET_ASIDE and not table.dead_letters:
        return None
    option = [] if table.state == SET_ASIDE else ["--replay"]
    return shlex.join(["pgwire-codec", "resume", *option, str(file.path), table.table])


def plain(status: FileStatus) -> dict[str, Any]:
    """Return a status for JSON."""
    parts: dict[str, Any] = {"log": _plain_log(status)}
    if status.slot is not None:
        parts["slot"] = _plain_slot(status)
    if status.tables is not None:
        parts["mirror"] = _plain_mirror(status)
    return parts | {"exit_status": status.exit_code}


def _plain_error(error: PgwireError) -> dict[str, Any]:
    hint = None if error.hint is None else _in_options(error.hint)
    return {"error": _in_options(error.primary), "hint": hint}


def _in_options(text: str) -> str:
    """Return a text with Python's arguments replaced by the options of the commands."""
    return name_options(name_options(text, capture), mirror)


def _plain_log(status: FileStatus) -> dict[str, Any]:
    if isinstance(status.log, PgwireError):
        return _plain_error(status.log)
    found, time = status.log.statistics, status.log.commit_time
    last = found.last_commit_lsn
    return {
        "segments": found.segments,
        "bytes": found.bytes,
        "messages": found.messages,
        "end_lsn": format_lsn(found.end.lsn),
        "confirmed_lsn": format_lsn(found.confirm_lsn),
        "last_commit_lsn": None if last is None else format_lsn(last),
        "last_commit_time": None if time is None else _time(time).isoformat(),
    }


def _plain_slot(status: FileStatus) -> dict[str, Any]:
    if not isinstance(status.slot, tuple):
        assert status.slot is not None
        return _plain_error(status.slot)
    lag, slot = status.lag, status.slot[1]
    return {
        "exists": slot is not None,
        "lag_bytes": None if lag is None else lag.bytes,
        "lag_seconds": None if lag is None else round(lag.seconds, 3),
        **({} if slot is None else asdict(slot)),
    }


def _plain_mirror(status: FileStatus) -> dict[str, Any]:
    if isinstance(status.tables, PgwireError):
        return _plain_error(status.tables)
    now = datetime.now(timezone.utc)
    return {
        "tables": [
            plain_table(table, now, mirror)
            | {"lag_bytes": status.lag_bytes(table), "command": _remedy(status.file, table)}
            for table in status.tables or ()
        ]
    }


def show(status: FileStatus, console: Console) -> None:
    """Print a status for people."""
    for name, lines in _facts(status).items():
        for line in lines:
            text = printable(" ".join(line.split()))
            console.print(Text.assemble((f"{name:<8}", "bold"), text))
            name = ""
    if isinstance(status.tables, list) and status.tables:
        console.print(_tables(status, status.tables))
        for table in status.tables:
            for line in _problem(status.file, table):
                console.print(printable(line), markup=False, highlight=False)


def _facts(status: FileStatus) -> dict[str, list[str]]:
    facts = {}
    if status.slot is not None:
        facts["slot"] = _slot_facts(status)
    facts["log"] = _log_facts(status)
    if isinstance(status.tables, PgwireError):
        facts["mirror"] = _error_facts(status.tables)
    elif status.tables == []:
        facts["mirror"] = ["no tables yet"]
    return facts


def _error_facts(error: PgwireError) -> list[str]:
    found = _plain_error(error)
    return [found["error"], *([] if error.hint is None else [f"hint: {found['hint']}"])]


def _slot_facts(status: FileStatus) -> list[str]:
    if not isinstance(status.slot, tuple):
        assert status.slot is not None
        return _error_facts(status.slot)
    name, slot, lag = status.file.values["capture"]["slot"], status.slot[1], status.lag
    if slot is None:
        return [f"{name} does not exist"]
    facts = ["is read" if slot.active else "is not read"]
    if lag is not None:
        facts.append(f"lag {format_size(lag.bytes)}, {format_duration(lag.seconds * 1e6)}")
    if slot.retained_bytes is not None:
        facts.append(f"the server keeps {format_size(slot.retained_bytes)} of WAL for it")
    if slot.wal_status is not None:
        facts.append(slot.wal_status)
    if slot.waits_for is not None:
        facts.append(slot.waits_for)
    return [f"{name} {'; '.join(facts)}"]


def _log_facts(status: FileStatus) -> list[str]:
    if isinstance(status.log, PgwireError):
        return _error_facts(status.log)
    found, time = status.log.statistics, status.log.commit_time
    text = f"{format_count(found.segments, 'segment')}, {format_size(found.bytes)}"
    if found.last_commit_lsn is not None:
        text += f"; last commit {format_lsn(found.last_commit_lsn)}"
    return [text if time is None else f"{text}, {format_timestamp(time)} UTC"]


def _tables(status: FileStatus, tables: Sequence[TableStatus]) -> Table:
    shown = Table(box=None, pad_edge=False)
    for name in ("table", "state", "complete up to", "lag", "last change"):
        shown.add_column(name, justify="right" if name == "lag" else "left")
    now = datetime.now(timezone.utc)
    for table in tables:
        lag, age = status.lag_bytes(table), lag_seconds(table, now)
        cells = (
            table.table,
            table.state,
            "" if table.complete_lsn is None else format_lsn(table.complete_lsn),
            "" if lag is None else format_size(lag),
            "" if age is None else f"{format_duration(max(age, 0) * 1e6)} ago",
        )
        shown.add_row(*(Text(printable(cell)) for cell in cells))
    return shown


def _problem(file: RunFile, table: TableStatus) -> Iterator[str]:
    """Yield lines on a table that lacks something."""
    if table.error is not None:
        yield f"{table.table}: {table.error}"
    if table.dead_letters:
        yield f"{table.table}: {format_count(table.dead_letters, 'change')} left out"
    if table.hint is not None:
        yield f"  hint: {name_options(table.hint, mirror)}"
    if (command := _remedy(file, table)) is not None:
        yield f"  {command}"


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1e6, timezone.utc)

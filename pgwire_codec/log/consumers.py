"""Consumers: positions up to which others have read a log, and need it no more."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from pgwire_codec.errors import LogError
from pgwire_codec.log.local_store import LocalStore
from pgwire_codec.log.store import Store, open_store
from pgwire_codec.log.store_errors import MissingFileError, writing
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn

if TYPE_CHECKING:
    from pgwire_codec.log.reader import Log

#: First line of the files of a checkpoint's folders ``offsets`` and ``commits``.
_VERSION: Final = "v1"


class Consumer(Protocol):
    """A reader of a log that keeps its position."""

    def read_lsn(self) -> int:
        """Return the commit LSN up to which the log is read; 0 if nothing is.

        Raises ``LogError`` when that is not known.
        """


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """Checkpoint of a streaming query that reads a log by ``format("pgoutput")``.

    Micro-batches that the query has not committed count as not read. If the query reads the log
    several times, the earliest position counts.

    Attributes
    ----------
    location : str or path
        Folder of the checkpoint: a path or a URI.
    """

    location: str | os.PathLike[str]

    def read_lsn(self) -> int:
        """Return the commit LSN at the end of the last micro-batch that was committed."""
        committed = self._batches("commits")
        if not committed:
            if not self._batches("offsets"):
                raise LogError(
                    f"{self} is not the checkpoint of a streaming query that has begun",
                    hint="Name the folder that the query has as checkpointLocation.",
                )
            return 0
        lines = self._lines("offsets", committed[-1])
        found = [offset["lsn"] for offset in map(self._offset, lines[1:]) if offset]
        if not found:
            raise LogError(f"{self} is the checkpoint of a query that reads no log")
        return min(map(parse_lsn, found))

    def __str__(self) -> str:
        return os.fspath(self.location)

    def _batches(self, folder: str) -> list[int]:
        return sorted(int(name) for name in self._store(folder).names() if name.isdecimal())

    def _lines(self, folder: str, batch: int) -> list[str]:
        """Return the lines of a batch's file after the first one: metadata, and the sources'."""
        data = self._store(folder).read(str(batch))
        lines = [] if data is None else data.decode("utf-8", "replace").splitlines()
        if len(lines) < 2 or lines[0] != _VERSION:
            raise LogError(
                f"{self}/{folder}/{batch} is not an offset log of version {_VERSION}",
                hint="Prune by the LSN in the query's progress, with --before.",
            )
        return lines[1:]

    def _offset(self, line: str) -> dict[str, Any] | None:
        """Return the offset of a source if it is one in a log."""
        try:
            found = json.loads(line)
        except ValueError:  # another source's: Spark's own has no form
            return None
        is_ours = isinstance(found, dict) and found.keys() == {"ordinal", "lsn"}
        return found if is_ours else None

    def _store(self, folder: str) -> Any:
        return open_store(f"{os.fspath(self.location).rstrip('/')}/{folder}")


@dataclass(frozen=True, slots=True)
class LsnFile:
    """File that a program keeps its position in: an LSN as text, such as ``16/B374D848``.

    Attributes
    ----------
    location : str or path
        The file: a path or a URI.
    """

    location: str | os.PathLike[str]

    def read_lsn(self) -> int:
        """Return the LSN in the file."""
        store, name = self._place()
        data = store.read(name)
        if data is None:
            raise LogError(
                f"{self} does not exist",
                hint="A consumer writes it before it reads: 0/0 when it has read nothing.",
            )
        text = data.decode("utf-8", "replace").strip()
        try:
            return parse_lsn(text)
        except ValueError:
            raise LogError(f"{self} contains {text[:40]!r}, not an LSN") from None

    def write_lsn(self, lsn: int) -> None:
        """Replace the LSN in the file, durably. It need not exist, nor its folder.

        On a local disk, only its owner may read a file or folder that is created. The permissions
        of those that exist are kept. Raises ``LogError`` when it cannot be written.
        """
        store, name = self._place()
        if isinstance(store, LocalStore):
            with writing(self.location):
                store.make_directory()
            with suppress(MissingFileError):
                store = store.with_mode_of(name)
        store.write(name, f"{format_lsn(lsn)}\n".encode())

    def _place(self) -> tuple[Store, str]:
        folder, separator, name = os.fspath(self.location).rpartition("/")
        return open_store(folder or separator or "."), name

    def __str__(self) -> str:
        return os.fspath(self.location)


def parse_consumer(text: str) -> Consumer:
    """Return the consumer of a text ``spark:CHECKPOINT`` or ``file:FILE``.

    Raises ``ValueError`` for another text.
    """
    kind, _, location = text.partition(":")
    if kind not in _KINDS or not location:
        raise ValueError(f"{text!r} is neither spark:CHECKPOINT nor file:FILE")
    return _KINDS[kind](location)


_KINDS: Final[dict[str, Callable[[str], Consumer]]] = {"spark": SparkCheckpoint, "file": LsnFile}


def earliest(consumers: tuple[Consumer, ...], log: Log) -> int:
    """Return the LSN that all consumers have read up to; without consumers, the log's end.

    Raises ``LogError`` when one is beyond the end of the log: it reads another log.
    """
    read = [(consumer, consumer.read_lsn()) for consumer in consumers]
    log.refresh()  # a consumer may have read what has come since the log was opened
    found = end_lsn = log.end.lsn
    for consumer, lsn in read:
        if lsn > end_lsn:
            raise LogError(
                f"{consumer} is at {format_lsn(lsn)}, and the log ends at {format_lsn(end_lsn)}",
                hint="It is the consumer of another log.",
            )
        found = min(found, lsn)
    return found

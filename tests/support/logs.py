"""Logs for tests: captures of the corpus written as logs, and stores without appends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import fs

import pgwire_codec as pgc
from pgwire_codec import log
from tests.support.corpus import Capture

SOURCE = log.LogSource("7000000000000000001", 1, "shop", "slot", 180004, {"proto_version": "4"})

#: Start of the server's clock, which advances a second each message.
EPOCH = np.datetime64("2024-05-01T00:00:00", "us")


def times(start: int, stop: int) -> Any:
    return EPOCH + np.arange(start, stop) * np.timedelta64(1, "s")


def append(writer: log.LogWriter, messages: Sequence[bytes], lsns: Any = None) -> None:
    """Append messages, with LSNs if they are given."""
    start = writer.end_ordinal
    lsns = np.zeros(len(messages), np.uint64) if lsns is None else lsns
    writer.append(list(messages), lsns, times(start, start + len(messages)))


def write(capture: Capture, uri: Path | str, seals: Iterable[int] = (), **options: Any) -> log.Log:
    """Write a capture as a log of one session, with segments that end at these messages."""
    filesystem = options.get("filesystem")
    with log.LogWriter(uri, SOURCE, **options) as writer:
        start = 0
        for stop in [*sorted(seals), len(capture.messages)]:
            append(writer, capture.messages[start:stop], capture.lsns[start:stop])
            writer.seal()
            start = stop
    return log.Log(uri, filesystem=filesystem)


def write_flushed(
    messages: Sequence[bytes], cuts: Sequence[int], uri: str, filesystem: fs.FileSystem
) -> log.Log:
    """Write messages as a log in an object store, with flushes at these messages and at the end."""
    with log.LogWriter(uri, SOURCE, filesystem=filesystem) as writer:
        for start, stop in zip([0, *cuts], [*cuts, len(messages)], strict=True):
            append(writer, messages[start:stop])
            writer.flush()
    return log.Log(uri, filesystem=filesystem)


def flushed_carry(directory: Path) -> pgc.Carry:
    """Return the carry after the last message that was flushed, without relations."""
    segments = log.Log(directory).segments
    return segments[-1].state().carry if segments else pgc.Carry()


def no_appends(directory: Path) -> fs.FileSystem:
    """Return a file system that acts as an object store: to pyarrow it is not a local one."""
    return fs.SubTreeFileSystem(str(directory), fs.LocalFileSystem())


def memory() -> fs.FileSystem:
    """Return an object store in memory, which cannot be pickled."""
    filesystem, _ = fs.FileSystem.from_uri("mock:///")
    return filesystem


def commit_lsns(capture: Capture) -> list[int]:
    """Return the commit LSNs of a capture, ascending."""
    found: list[int] = pgc.Decoder().decode(capture.messages).transactions.commit_lsn.tolist()
    return found

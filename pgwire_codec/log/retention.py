"""Retention: the part of a log that is kept, by its age, its size and its consumers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import numpy as np

from pgwire_codec.errors import OptionError
from pgwire_codec.log.consumers import Consumer, earliest
from pgwire_codec.log.prune import exclusive, remove_unneeded

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from pgwire_codec.log.index import LogIndex
    from pgwire_codec.log.reader import Log


@dataclass(frozen=True, slots=True)
class Retention:
    """The part of a log that is kept.

    Without ``keep`` and ``max_bytes``, it is what a consumer has not read.

    Attributes
    ----------
    keep : datetime.timedelta, optional
        Keep a segment until its last message was sent so long ago, by the server's clock.
    max_bytes : int, optional
        Keep the last segments whose files have up to so many bytes in all, even those that are
        younger than ``keep``.
    consumers : tuple of Consumer
        Keep what one of them has not read, whatever its age and size.
    """

    keep: timedelta | None = None
    max_bytes: int | None = None
    consumers: tuple[Consumer, ...] = ()

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep < timedelta(0):
            raise OptionError(f"keep must not be negative, as {self.keep} is")
        if self.max_bytes is not None and self.max_bytes < 0:
            raise OptionError(f"max_bytes must be 0 or more, not {self.max_bytes}")
        if self.keep is None and self.max_bytes is None and not self.consumers:
            raise OptionError(
                "a retention needs an age, a size or a consumer",
                hint="Set `keep`, `max_bytes` or `consumers`.",
            )

    def needless_lsn(self, log: Log, now: datetime | None = None) -> int:
        """Return the commit LSN up to which a log's transactions are not kept.

        Parameters
        ----------
        log : Log
        now : datetime.datetime, optional
            By default the time of this machine's clock.
        """
        read = earliest(self.consumers, log)
        if self.keep is None and self.max_bytes is None:
            return read
        index = log.index
        count = max(self._outdated(index, now), self._excess(index, log))
        return min(read, int(index.delivered_lsn[count - 1])) if count else 0

    def _outdated(self, index: LogIndex, now: datetime | None) -> int:
        """Return the number of segments, from the first on, that are older than is kept."""
        if self.keep is None:
            return 0
        since = (now or datetime.now(timezone.utc)) - self.keep
        bound = np.datetime64(since.astimezone(timezone.utc).replace(tzinfo=None), "us")
        return _leading(index.last_time < bound)

    def _excess(self, index: LogIndex, log: Log) -> int:
        """Return the number of segments, from the first on, that are more than is kept."""
        if self.max_bytes is None:
            return 0
        # Bytes of each and those after it.
        after = log.growing_bytes + np.cumsum(index.bytes[::-1])[::-1]
        return _leading(after > self.max_bytes)


def retain(
    uri: str | os.PathLike[str],
    retention: Retention,
    *,
    filesystem: FileSystem | None = None,
    now: datetime | None = None,
) -> list[str]:
    """Remove the segments that a retention does not keep, as :func:`prune` does.

    Parameters
    ----------
    uri, filesystem
        As for :class:`Log`.
    retention : Retention
    now : datetime.datetime, optional
        By default the time of this machine's clock.

    Returns
    -------
    list of str
        Names of the segments' files that were removed.

    Raises
    ------
    LogError
        When the position of a consumer is not known, or is not one of this log. Nothing is removed
        then.
    """
    with exclusive(uri, filesystem) as (store, log):
        return remove_unneeded(store, log, retention.needless_lsn(log, now))


def _leading(found: np.ndarray) -> int:
    """Return the number of True at the beginning."""
    return len(found) if found.all() else int(np.argmin(found))

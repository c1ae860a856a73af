"""Writes of a mirror in this process, which end as if it was killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from pgwire_codec.lake import folder
from pgwire_codec.lake.tables.iceberg import IcebergTarget

#: State of the last write on disk: a part of it, or all.
Moment = Literal["during", "after"]


class Killed(BaseException):
    """End of the process: what it does about errors does not count, as it writes nothing more."""


class Writes:
    """Writes to local folders, checkpoints of delta-rs and commits of Iceberg, and their number.

    Parameters
    ----------
    last : int, optional
        Number of the last write; by default, the mirror is not killed.
    moment : {"during", "after"}
    """

    def __init__(self, last: int | None = None, moment: Moment = "after") -> None:
        self.count = 0
        self._last = last
        self._moment = moment
        self._is_dead = False
        self._lock = threading.Lock()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the writes in the ``with`` block, and end at the last one."""
        import deltalake

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(folder, "_new_file", self._new_file(folder._new_file))
            for kind, name in (
                (Path, "hardlink_to"),
                (Path, "replace"),
                (Path, "unlink"),
                (deltalake.DeltaTable, "create_checkpoint"),
                (deltalake.DeltaTable, "cleanup_metadata"),
                (IcebergTarget, "commit"),
            ):
                patch.setattr(kind, name, self._whole(getattr(kind, name)))
            yield

    @contextmanager
    def _one(self) -> Iterator[bool]:
        """A write; yield whether only a part of it comes to disk."""
        with self._lock:
            if self._is_dead:
                raise Killed
            self.count += 1
            self._is_dead = is_last = self.count == self._last
        yield is_last and self._moment == "during"
        if is_last:
            raise Killed

    def _whole(self, write: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            with self._one() as is_partial:
                return None if is_partial else write(*arguments, **options)

        return counted

    def _new_file(self, new_file: Any) -> Any:
        @contextmanager
        def counted(path: Path) -> Iterator[Any]:
            with self._one() as is_partial, new_file(path) as file:
                yield file
                if is_partial:
                    file.truncate(file.tell() // 2)

        return counted

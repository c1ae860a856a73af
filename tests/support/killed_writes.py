"""Writes of a mirror in this process, which end as if it was killed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from pgwire_codec.lake.folder import LocalFolder
from pgwire_codec.lake.tables.iceberg import IcebergTarget

#: Whether a part of the last write is on disk, or all of it.
Moment = Literal["during", "after"]


class Killed(BaseException):
    """End of the process: what it does about errors does not count, as it writes nothing more."""


class Writes:
    """Writes to local folders, checkpoints of delta-rs and commits of Iceberg, and their number.

    Parameters
    ----------
    last : int, optional
        Number of the last write; by default there is no last one.
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
            patch.setattr(LocalFolder, "create", self._create(LocalFolder.create))
            patch.setattr(LocalFolder, "writer", self._writer(LocalFolder.writer))
            patch.setattr(LocalFolder, "move", self._whole(LocalFolder.move))
            patch.setattr(LocalFolder, "remove", self._whole(LocalFolder.remove))
            for kind, name in (
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
        def counted(*arguments: Any) -> Any:
            with self._one() as is_partial:
                return None if is_partial else write(*arguments)

        return counted

    def _create(self, create: Any) -> Any:
        def counted(folder: LocalFolder, path: str, data: Any) -> None:
            with self._one() as is_partial:
                if is_partial:
                    target = Path(folder.uri, path)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.with_name(f".{target.name}.1.tmp").write_bytes(data[: len(data) // 2])
                else:
                    create(folder, path, data)

        return counted

    def _writer(self, writer: Any) -> Any:
        @contextmanager
        def counted(folder: LocalFolder, path: str) -> Iterator[Any]:
            with self._one() as is_partial:
                with writer(folder, path) as file:
                    yield file
                if is_partial:
                    written = Path(folder.uri, path)
                    os.truncate(written, written.stat().st_size // 2)

        return counted

"""Requests to copy tables of the server into a log, which the log's capture fulfils."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pgwire_codec.errors import OptionError
from pgwire_codec.log.bounds import MANIFEST
from pgwire_codec.log.checked_json import dump, load
from pgwire_codec.log.local_store import LocalStore
from pgwire_codec.log.store import open_store
from pgwire_codec.log.store_errors import LogInUseError
from pgwire_codec.options import SegmentOptions
from pgwire_codec.protocol.quoting import parse_qualified_name

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_FOLDER: Final = "requests"
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class TableRequest:
    """Tables to copy.

    Attributes
    ----------
    tables : list of str
        Names, ``schema.table``.
    is_automatic : bool
        Whether the capture itself has requested them.
    error, hint : str or None
        Why it cannot be fulfilled, and what to do about that.
    problem : str or None
        Why the last attempt has failed. The capture tries again.
    """

    tables: list[str]
    is_automatic: bool = False
    error: str | None = None
    hint: str | None = None
    problem: str | None = None


class TableRequests:
    """The requests of a log: a file each, in a folder of the log.

    The capture that writes the log copies all rows of the tables, as
    :class:`~pgwire_codec.capture.LogCapture` describes. A request lasts until it is fulfilled,
    also if the capture ends before. It is not checked that the log exists.

    Parameters
    ----------
    uri : str or path
        Location of the log.
    filesystem : pyarrow.fs.FileSystem, optional
        File system in which ``uri`` is a path.
    """

    def __init__(self, uri: str | os.PathLike[str], filesystem: FileSystem | None = None) -> None:
        folder = os.fspath(uri).rstrip("/")
        self._log = open_store(folder, filesystem)
        self._store = open_store(f"{folder}/{_FOLDER}", filesystem)

    @property
    def is_local(self) -> bool:
        """True if a look for requests costs next to nothing, as it does not in an object store."""
        return self._store.grows

    def add(self, tables: Sequence[str], *, is_automatic: bool = False) -> str:
        """Write a request durably, and return its name.

        Raises
        ------
        OptionError
            For a name that is not ``schema.table``.
        LogError
            When it cannot be written.
        """
        parsed = {name: parse_qualified_name(name) for name in tables}
        wrong = [name for name, parts in parsed.items() if parts is None or not parts[0]]
        if wrong or not tables:
            raise OptionError(
                f"not the name of a table: {wrong[0]!r}" if wrong else "no table is named",
                hint="Write names with their schema, as public.orders.",
            )
        name = uuid.uuid4().hex
        with self._store.lock():  # it makes the folder
            self._write(name, TableRequest(list(tables), is_automatic))
        return name

    def get(self, name: str) -> TableRequest | None:
        """Return a request; None if it was fulfilled. Raises ``LogError`` if it is damaged."""
        file = name + _SUFFIX
        data = self._store.read(file)
        return None if data is None else load(data, TableRequest, f"{self._store.name}/{file}")

    def pending(self) -> dict[str, TableRequest]:
        """Return the requests that are neither fulfilled nor failed; errors as for :meth:`get`."""
        names = [
            name.removesuffix(_SUFFIX) for name in self._store.names() if name.endswith(_SUFFIX)
        ]
        found = {name: self.get(name) for name in names}
        return {name: each for name, each in found.items() if each and each.error is None}

    def remove(self, name: str) -> None:
        """Remove a request, which is fulfilled or not wanted any more."""
        self._store.remove(name + _SUFFIX)

    def fail(self, name: str, request: TableRequest, error: str, hint: str | None) -> None:
        """Record why a request cannot be fulfilled; the capture does not try again."""
        self._write(name, replace(request, error=error, hint=hint))

    def postpone(self, name: str, request: TableRequest, problem: str) -> None:
        """Record why an attempt has failed; the capture tries again."""
        self._write(name, replace(request, problem=problem))

    def writer(self) -> str | None:
        """Return who writes the log, for a text: None, if nobody does.

        That is not known of a log in an object store; see :attr:`is_local`.

        Raises
        ------
        LogError
            When the lock of the log cannot be read.
        """
        try:
            with self._log.lock():
                return None
        except LogInUseError as error:
            return error.writer

    def file_mode(self) -> int:
        """Return the permissions of the log's files, which is on a local disk."""
        store = self._log.with_mode_of(MANIFEST) if isinstance(self._log, LocalStore) else None
        return SegmentOptions.file_mode if store is None else store.file_mode

    def _write(self, name: str, request: TableRequest) -> None:
        self._store.write(name + _SUFFIX, dump(request))

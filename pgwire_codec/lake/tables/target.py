"""Tables of any format: their files, and the changes of a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from pgwire_codec.errors import PgwireError
from pgwire_codec.lake.data_files import Bounds, NewFile
from pgwire_codec.lake.position import Position

if TYPE_CHECKING:
    from pyroaring import BitMap64


class CommitConflict(PgwireError):
    """Another commit has changed what this one was decided on: it has to be decided again."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a table.

    Attributes
    ----------
    path : str
        Path in the table's folder.
    size : int
        Bytes.
    rows : int or None
        Rows, deleted ones included; None if the table does not record it.
    bounds : Bounds
    deleted : int
        Number of its rows that are deleted.
    """

    path: str
    size: int
    rows: int | None
    bounds: Bounds
    deleted: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Changes of a table by a commit.

    Attributes
    ----------
    position : Position
        The part of the stream that the table has then.
    added : sequence of NewFile
    deleted : mapping of str to BitMap64
        Positions of rows to delete, by the file's path: rows that are not deleted yet.
    replaces : bool
        Whether all files that the table had are removed.
    schema : pyarrow.Schema or None
        Columns of the table from now on, if they change.
    counts : mapping of str to int
        Numbers of rows, for the table's history.
    """

    position: Position
    added: Sequence[NewFile] = ()
    deleted: Mapping[str, BitMap64] = field(default_factory=dict)
    replaces: bool = False
    schema: pa.Schema | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def appends(self) -> bool:
        """True if the commit only adds files."""
        return not (self.deleted or self.replaces or self.schema is not None)


class Target(Protocol):
    """Table of a lakehouse, for one stream of changes."""

    name: str

    @property
    def schema(self) -> pa.Schema | None:
        """Its columns; None if the table does not exist."""

    @property
    def position(self) -> Position:
        """The part of the stream that it has."""

    @property
    def version(self) -> int | None:
        """Number of its last commit; None if it does not exist."""

    @property
    def files(self) -> list[DataFile]:
        """Its data files."""

    def vector(self, path: str) -> BitMap64:
        """Return the positions of a file's deleted rows."""

    def commit(self, commit: Commit) -> None:
        """Change the table, which is created if it does not exist.

        Raises
        ------
        CommitConflict
            If another commit has changed a file or the columns; the table has its state then.
        TableError
            If the table cannot be changed.
        """

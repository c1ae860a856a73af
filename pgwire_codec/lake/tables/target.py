"""Tables of any format: their files, and the changes of a commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

import pyarrow as pa

from pgwire_codec.errors import PgwireError, TableError
from pgwire_codec.lake.data_files import FileLayout, NewFile
from pgwire_codec.lake.folder import Folder
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.table_files import TableFiles
from pgwire_codec.lake.tables.column_steps import ColumnStep

if TYPE_CHECKING:
    from pyroaring import BitMap64


#: How rows of a table are deleted: they are marked, or their files are written again without them.
WriteMode = Literal["merge-on-read", "copy-on-write"]
WRITE_MODES: Final[tuple[WriteMode, ...]] = ("merge-on-read", "copy-on-write")

#: Commits that lose their race one after the other before the table is given up.
_ATTEMPTS: Final = 20


_TOO_OFTEN: Final = (
    "A mirror tries the table again by itself. If the error stays, have other programs write to it "
    "less often."
)


class CommitConflict(PgwireError):
    """Another commit has changed what this one was decided on: it has to be decided again."""

    def __init__(self, text: str) -> None:
        super().__init__(text, hint=_TOO_OFTEN, is_transient=True)


@dataclass(frozen=True, slots=True)
class Commit:
    """Changes of a table by a commit."""

    position: Position  # the part of the stream that the table has then
    added: Sequence[NewFile] = ()
    #: Positions of rows to delete, by the file's path: rows that are not deleted yet.
    deleted: Mapping[str, BitMap64] = field(default_factory=dict)
    removed: Collection[str] = ()  # paths of files that are removed, because others have their rows
    replaces: bool = False  # True if all files that the table had are removed
    #: Columns of a new table, or those that the table has from now on.
    schema: pa.Schema | None = None
    steps: Sequence[ColumnStep] = ()  # steps by which the columns of a table become those
    keeps_rows: bool = False  # True if the table has the same rows as before, in other files
    #: Numbers of rows, for the table's history.
    counts: Mapping[str, int] = field(default_factory=dict)
    #: Text of the facts that the table records from now on; None to keep those that it has.
    record: str | None = None
    base: Position | None = None  # position that the table must have; None if any will do

    def check_base(self, name: str, position: Position) -> None:
        """Raise ``CommitConflict`` if a table has another position than this was decided on."""
        if self.base is not None and self.base != position:
            raise CommitConflict(f"another mirror wrote changes into {name}")

    @property
    def appends(self) -> bool:
        """True if the commit only adds files."""
        return not (self.deleted or self.removed or self.replaces or self.schema is not None)


@dataclass(frozen=True, slots=True)
class Basis:
    """State of a table that a commit was decided on."""

    columns: object
    position: Position
    files: Mapping[str, object]  # by path, what another commit of a file changes
    #: Commits of other programs, of which a commit's ``record`` has those that were known.
    others: Sequence[str] = ()

    def check(self, name: str, commit: Commit, newest: Basis) -> None:
        """Raise ``CommitConflict`` if a commit does not fit the newest state of a table."""
        if newest.columns != self.columns:
            raise CommitConflict(f"another commit changed the columns of {name}")
        if newest.position != self.position:
            raise CommitConflict(f"another mirror wrote changes into {name}")
        if commit.record is not None and newest.others != self.others:
            raise CommitConflict(f"another program changed rows of {name}")
        for path in self.files if commit.replaces else (*commit.deleted, *commit.removed):
            if path not in newest.files or newest.files[path] != self.files.get(path):
                raise CommitConflict(f"another commit changed the file {path} of {name}")
        # Files that are written again for other columns are all that there are.
        replaces = commit.replaces or (commit.steps and self.files.keys() <= {*commit.removed})
        if replaces and len(newest.files) != len(self.files):
            raise CommitConflict(f"another commit added files to {name}")


def attempts(name: str) -> Iterator[int]:
    """Yield the numbers of a commit's attempts, then raise ``TableError``."""
    yield from range(_ATTEMPTS)
    raise TableError(
        f"{name}: {_ATTEMPTS} commits of other writers came before this one",
        hint=_TOO_OFTEN,
        is_transient=True,
    )


class Target(Protocol):
    """Table of a lakehouse, for one stream of changes."""

    name: str  # name for messages

    deletes: bool  # True if rows can be deleted; otherwise, the table can only be appended to

    @property
    def marks(self) -> bool:
        """True if rows are deleted in vectors; otherwise, their files are to be replaced."""

    @property
    def schema(self) -> pa.Schema | None:
        """Its columns; None if the table does not exist."""

    @property
    def position(self) -> Position:
        """The part of the stream that it has, as of a version to which it was restored."""

    @property
    def record(self) -> str | None:
        """Text of the facts that the stream's last commit recorded; None if it has none."""

    @property
    def others(self) -> Sequence[str]:
        """Commits by which other programs changed rows since the stream's last commit."""

    @property
    def version(self) -> int | None:
        """Number of its last commit; None if it does not exist."""

    @property
    def files(self) -> TableFiles:
        """Its data files."""

    @property
    def layout(self) -> FileLayout:
        """Paths of new data files for the next commit."""

    def takes(self, steps: Sequence[ColumnStep]) -> bool:
        """Return whether steps need no file written again."""

    def file_schema(self, schema: pa.Schema, steps: Sequence[ColumnStep] = ()) -> pa.Schema:
        """Return the columns that data files must have, for columns of the table.

        The table has the columns after some steps, or will be created with them.
        """

    def refresh(self) -> None:
        """Read what other commits have changed."""

    def commit(self, commit: Commit) -> None:
        """Change the table, which is created if it does not exist.

        Raises ``CommitConflict`` if another commit has changed a file or the columns; the table has
        its state then. Raises ``TableError`` if the table cannot be changed.
        """


def create_commit(folder: Folder, path: str, text: str, is_written: Callable[[], bool]) -> bool:
    """Create the file of a commit; return False if another commit was first.

    The file may exist after an error, too. So ``is_written`` reads the table's newest state.
    """
    failure: Exception | None = None
    try:
        folder.create(path, text.encode())
    except FileExistsError:
        pass
    except Exception as error:  # noqa: BLE001  (the commit may have been written)
        failure = error
    if is_written():
        return True
    if failure is not None:
        raise failure
    return False

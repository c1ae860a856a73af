"""Damage of files of a table: the errors of programs that read them, as errors with the file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pgwire_codec.errors import PgwireError, TableError
from pgwire_codec.lake.folder import Folder

#: Advice for a file of a table that is damaged or missing.
RESTORE: Final = "Restore the file, or remove the table, and resume it."

#: Advice for a table that has lost what a commit is for.
REMOVED: Final = "Another program has removed it meanwhile. Resume the table."


class DamagedFileError(TableError):
    """A file of a table is damaged or missing; ``path`` is in the table's folder.

    ``is_transient`` is true for a missing file: a later version of the table may not have it.
    """

    def __init__(self, text: str, path: str, is_transient: bool = False) -> None:
        super().__init__(text, hint=RESTORE, is_transient=is_transient)
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return DamagedFileError, (self.primary, self.path, self.is_transient)


@contextmanager
def reading(folder: Folder, path: str, kind: str) -> Iterator[None]:
    """Raise ``DamagedFileError`` for an error of the ``with`` block, which reads a file.

    An error of the disk or the store, which may pass, remains as it is.
    """
    place = f"{kind} {folder.uri}/{path}"
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFileError(f"{place} is missing", path, is_transient=True) from error
    except PgwireError:
        raise
    except (ValueError, LookupError, TypeError, struct.error) as error:
        raise DamagedFileError(f"{place} is damaged: {_text(error)}", path) from error
    except OSError as error:
        if error.errno is not None:
            raise
        # PyArrow's error of pages that it cannot decompress, or that do not match their checksum.
        raise DamagedFileError(f"{place} is damaged: {_text(error)}", path) from error


def _text(error: Exception) -> str:
    """Return an error's text in one line."""
    text = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return " ".join(text.split()) or type(error).__name__

"""Conversion of a file system's errors to ``LogError``."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import pyarrow as pa

from pgwire_codec.errors import LogError


class MissingFileError(LogError):
    """A file of a log does not exist, or does not any more."""


class LogInUseError(LogError):
    """A log is being written by another process or thread.

    Attributes
    ----------
    writer : str
        Which one, for a text.
    """

    def __init__(self, text: str, *, hint: str, writer: str) -> None:
        super().__init__(text, hint=hint, is_transient=True)
        self.writer = writer


@contextmanager
def reading(path: object, *, is_remote: bool = False) -> Iterator[None]:
    """Convert errors of the reading of a file."""
    try:
        yield
    except FileNotFoundError:
        raise MissingFileError(
            f"{path} is missing",
            hint="If the log was pruned or compacted meanwhile, open it again. Else restore the "
            "file from a copy of the log.",
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise LogError(f"cannot read {path}: {_reason(error)}", is_transient=is_remote) from error


@contextmanager
def creating(path: object, *, is_remote: bool = False) -> Iterator[None]:
    """Convert errors of the creation of a log's folder."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise LogError(
            f"cannot create the log {path}: {_reason(error)}",
            hint="Remove the cause, or capture into a log elsewhere.",
            is_transient=is_remote or _is_full(error),
        ) from error


class writing:  # noqa: N801  (a context, which is entered several times a flush)
    """Convert errors of the writing of a file."""

    __slots__ = ("_is_remote", "_path")

    def __init__(self, path: object, *, is_remote: bool = False) -> None:
        self._path = path
        self._is_remote = is_remote

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            is_full = _is_full(error)
            advice = "Free some space" if is_full else "Remove the cause"
            raise LogError(
                f"cannot write {self._path}: {_reason(error)}",
                hint=f"{advice} and open the log again. Flushed messages are safe.",
                is_transient=is_full or self._is_remote,
            ) from error


def too_short(path: object, size: int, wanted: int) -> LogError:
    """Return the error for a file that has fewer bytes than belong to the log."""
    return LogError(
        f"{path} has {size} bytes, and {wanted} of it belong to the log",
        hint="Restore it from a copy of the log.",
    )


def out_of_memory(path: object) -> LogError:
    """Return the error for a writer without memory, whose log is not damaged."""
    return LogError(
        f"out of memory while writing the log {path}",
        hint="Provide more memory to the process. Flushed messages are safe.",
        is_transient=True,
    )


def _reason(error: BaseException) -> object:
    return getattr(error, "strerror", None) or error


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)

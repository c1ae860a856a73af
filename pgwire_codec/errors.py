"""Errors that this package raises, with their place in the input if they have one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "CaptureError",
    "DecodeError",
    "EncodeError",
    "ErrorCode",
    "LogError",
    "MissingExtraError",
    "OptionError",
    "PgwireError",
    "Rejected",
    "TableError",
]


def __dir__() -> list[str]:
    return __all__


class ErrorCode(str, Enum):
    """Values of :attr:`DecodeError.code`: strings, stable between releases."""

    TRUNCATED = "truncated"  #: the bytes end before the field does
    TRAILING_BYTES = "trailing_bytes"  #: bytes remain after the end of the message
    UNKNOWN_TAG = "unknown_tag"  #: the first byte is not the tag of a message
    BAD_LENGTH = "bad_length"  #: an impossible length or count
    BAD_VALUE = "bad_value"  #: bytes that are not a value of the field's type
    INVALID_UTF8 = "invalid_utf8"  #: text that is not UTF-8
    UNKNOWN_RELATION = "unknown_relation"  #: a change of a relation that was not declared before
    PROTOCOL = "protocol"  #: a message where the protocol does not allow it
    UNREPRESENTABLE = "unrepresentable"  #: a value that the column's Arrow type cannot hold
    TOO_WIDE = "too_wide"  #: a tuple with more columns than its Relation
    TOO_NARROW = "too_narrow"  #: a tuple with fewer columns than its Relation

    __str__ = str.__str__

    def __format__(self, format_spec: str) -> str:
        return str.__format__(self, format_spec)


class PgwireError(Exception):
    """Base of every error that this package raises on its own account.

    Attributes
    ----------
    hint : str or None
        Advice on what to do, as full sentences; also the end of the error's text.
    is_transient : bool
        Whether the cause may pass by itself, so that a later attempt can succeed.
    """

    def __init__(self, *args: object, hint: str | None = None, is_transient: bool = False) -> None:
        super().__init__(*args)
        self.hint = hint
        self.is_transient = is_transient

    @property
    def primary(self) -> str:
        """The error's text without the hint."""
        return super().__str__()

    def __str__(self) -> str:
        return with_hint(self.primary, self.hint)


class OptionError(PgwireError, ValueError):
    """An option has an invalid value; the text names the valid ones."""


class EncodeError(PgwireError, ValueError):
    """A message contains something that the wire format cannot carry."""


class CaptureError(PgwireError):
    """A server cannot be captured from.

    ``is_transient`` is true for a lost connection, or a server that is starting.

    Attributes
    ----------
    sqlstate : str or None
        The server's code of the error; ``08001`` or ``08006`` for a connection that failed without
        one. None for an error that this package has found.
    """

    def __init__(
        self,
        *args: object,
        hint: str | None = None,
        is_transient: bool = False,
        sqlstate: str | None = None,
    ) -> None:
        super().__init__(*args, hint=hint, is_transient=is_transient)
        self.sqlstate = sqlstate


class TableError(PgwireError, ValueError):
    """A relation, DataFrame or target table does not exist or does not fit."""


class LogError(PgwireError):
    """A log cannot be written or read in its present state; the text names the file.

    ``is_transient`` is true for a full disk, and where a file system or object store may answer
    later.
    """


class MissingExtraError(PgwireError, ImportError):
    """A library that a part of the package needs is not installed; the text names the extra."""


class DecodeError(PgwireError, ValueError):
    """Bytes that do not follow the protocol.

    Attributes
    ----------
    code : ErrorCode
        What is wrong.
    offset : int
        Byte offset in the message at which decoding stopped.
    expected : str
        What the protocol requires there.
    message_index : int or None
        Index of the message in the input; None when one message was decoded by itself.
    context : str
        Where in the message: ``"Insert.new"``, ``"column price"``; may be empty.
    """

    def __init__(
        self,
        code: str,
        *,
        offset: int,
        expected: str,
        message_index: int | None = None,
        context: str = "",
        hint: str | None = None,
    ) -> None:
        super().__init__(code, offset, expected, message_index, context, hint, hint=hint)
        self.code = ErrorCode(code)
        self.offset = offset
        self.expected = expected
        self.message_index = message_index
        self.context = context

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, self.args

    @property
    def primary(self) -> str:
        """The error's text without the hint."""
        message = "" if self.message_index is None else f"message {self.message_index}, "
        context = f" ({self.context})" if self.context else ""
        return f"{self.code}: {message}byte {self.offset}{context}: {self.expected}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DecodeError) and self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args)

    def at(self, message_index: int | None, context: str = "") -> DecodeError:
        """Return the same error, placed at a message of the input, or at none."""
        return DecodeError(
            self.code,
            offset=self.offset,
            expected=self.expected,
            message_index=message_index,
            context=context or self.context,
            hint=self.hint,
        )


def _rebuild(
    code: str,
    offset: int,
    expected: str,
    message_index: int | None,
    context: str,
    hint: str | None,
) -> DecodeError:
    return DecodeError(
        code,
        offset=offset,
        expected=expected,
        message_index=message_index,
        context=context,
        hint=hint,
    )


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message that was set aside under ``on_error="skip"``.

    Attributes
    ----------
    message_index : int
        Index of the message in the input.
    data : bytes
        The message.
    error : DecodeError
        Why it does not decode.
    relation_oid : int or None
        OID of the relation that it changes, if its bytes have one.
    xid : int or None
        The top-level transaction, if it is known.
    commit_lsn : int or None
        Of the transaction, if it is known: that of a streamed or prepared one is not, unless the
        message is sound, and only a value does not decode.
    commit_time : numpy.datetime64 or None
        Of the transaction, UTC, if it is known.
    lsn : int or None
        The LSN that was given with the message.
    after_lsn : int
        Commit LSN after which to read, to have the message: that of the last transaction that was
        delivered before it, or one less than its own.
    """

    message_index: int
    data: bytes
    error: DecodeError
    relation_oid: int | None = None
    xid: int | None = None
    commit_lsn: int | None = None
    commit_time: np.datetime64 | None = None
    lsn: int | None = None
    after_lsn: int = 0


def with_hint(text: str, hint: str | None) -> str:
    """Return an error's text and its hint, if it has one, as one line."""
    return text if hint is None else f"{text} — hint: {hint}"


def missing_extra(text: str, extra: str) -> MissingExtraError:
    """Return the error for a library that is not installed; the extra installs it."""
    return MissingExtraError(text, hint=f"Run pip install 'pgwire-codec[{extra}]'.")


def check_choice(name: str, value: str, *allowed: str) -> str:
    """Return an option's value if it is one of those allowed; else raise ``OptionError``."""
    if value not in allowed:
        words = ", ".join(f'"{word}"' for word in allowed)
        raise OptionError(f"{name} must be one of {words}, not {value!r}")
    return value


def check_on_error(on_error: str) -> bool:
    """Return whether to skip messages that do not decode, by the option ``on_error``."""
    return check_choice("on_error", on_error, "raise", "skip") == "skip"

"""What can go wrong, with the place where it did."""

from __future__ import annotations

from typing import Final


class ErrorCode:
    """The values of :attr:`DecodeError.code`: plain strings, stable between releases."""

    TRUNCATED: Final = "truncated"  #: the bytes end before the field does
    TRAILING_BYTES: Final = "trailing_bytes"  #: the message is over and bytes remain
    UNKNOWN_TAG: Final = "unknown_tag"  #: the first byte names no message
    BAD_LENGTH: Final = "bad_length"  #: a length or count that cannot be
    BAD_VALUE: Final = "bad_value"  #: bytes that no value of the field's type is written as
    INVALID_UTF8: Final = "invalid_utf8"  #: text that is not UTF-8
    UNKNOWN_RELATION: Final = "unknown_relation"  #: a change of a relation that no Relation told
    PROTOCOL: Final = "protocol"  #: a message where the protocol does not allow it
    UNREPRESENTABLE: Final = "unrepresentable"  #: a value that the column's type cannot hold
    TOO_WIDE: Final = "too_wide"  #: a tuple with more columns than its Relation
    TOO_NARROW: Final = "too_narrow"  #: a tuple with fewer columns than its Relation


class PgwireError(Exception):
    """Base of every error that this package raises on its own account.

    Attributes
    ----------
    hint : str or None
        Advice on what to do, as full sentences; also the end of the error's text.
    is_transient : bool
        Whether the cause may go by itself, so that a later attempt can succeed.
    """

    hint: str | None = None
    is_transient: bool = False

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.hint is None else f"{text} — hint: {self.hint}"


class OptionError(PgwireError, ValueError):
    """An option has a value that it cannot have; the text says which it can."""


class EncodeError(PgwireError, ValueError):
    """A message holds something that the wire cannot carry."""


class CaptureError(PgwireError):
    """The server cannot be captured from; the text says what to do about it.

    Attributes
    ----------
    is_transient : bool
        Whether it may go by itself, as a lost connection or a server that is starting does: trying
        again helps. Otherwise somebody has to do something first.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, is_transient: bool = False
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.is_transient = is_transient


class LogError(PgwireError):
    """A log cannot be written or read as it is; the text says what was found, and where.

    ``is_transient`` is true for a full disk, and where a file system or object store may answer
    later.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, is_transient: bool = False
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.is_transient = is_transient


class MissingExtraError(PgwireError, ImportError):
    """A part of the package needs a library that is not installed; the text names the extra."""


class DecodeError(PgwireError, ValueError):
    """Bytes that are not what the protocol says they are.

    Attributes
    ----------
    code : str
        One of :class:`ErrorCode`.
    offset : int
        Byte offset in the message at which decoding stopped.
    expected : str
        What was wanted there.
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
    ) -> None:
        super().__init__(code, offset, expected, message_index, context)
        self.code = code
        self.offset = offset
        self.expected = expected
        self.message_index = message_index
        self.context = context

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, self.args

    def __str__(self) -> str:
        message = "" if self.message_index is None else f"message {self.message_index}, "
        context = f" ({self.context})" if self.context else ""
        return f"{self.code}: {message}byte {self.offset}{context}: {self.expected}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DecodeError) and self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args)

    def at(self, message_index: int, context: str = "") -> DecodeError:
        """Give the same error, placed at a message of the input."""
        return DecodeError(
            self.code,
            offset=self.offset,
            expected=self.expected,
            message_index=message_index,
            context=context or self.context,
        )


def _rebuild(
    code: str, offset: int, expected: str, message_index: int | None, context: str
) -> DecodeError:
    return DecodeError(
        code, offset=offset, expected=expected, message_index=message_index, context=context
    )

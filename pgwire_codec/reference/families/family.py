"""The codec of a type family, which each file of this folder has for its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.reference.families.forms import Unwritable
from pgwire_codec.reference.stored_values import STRINGS
from pgwire_codec.types import ColumnType

#: Reads one form.
Read = Callable[[bytes], Any]
#: Writes a stored value, given the Arrow formats of its array, of a list's elements, of theirs.
Write = Callable[[ColumnType, Sequence[str], Any], bytes]


def _as_it_is(arrow: str, value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Family:
    """Codec of the values of a type family.

    A *value* is plain Python: int, bool, bytes. A float is its bit pattern and a numeric its own
    ASCII text, so that nothing is lost; a date is days and a timestamp microseconds since 1970,
    and an infinite one the float of that name. A *stored value* is what an Arrow array holds of
    it: int for every number, date and time, bool, bytes, a tuple of months, days and nanoseconds,
    a list of stored elements.

    Attributes
    ----------
    render : callable
        Binary form to the server's text, as UTF-8.
    read_text, read_binary : callable or None
        Text form and binary form to a value. None in a family whose columns are always strings.
    store : callable
        Arrow format and value to the stored value. Raises Unrepresentable if the Arrow type
        cannot hold it.
    write : callable or None
        Column, Arrow formats and stored value to the binary form. None in a family that is
        written from strings only.
    write_text : callable or None
        The same to the text form; by default, what is rendered of the binary form.
    arrow_name : str
        Arrow types that `write` takes, as an error names them.
    arrow_formats : str
        Regular expression of their formats in the Arrow C data interface.
    text_prefix : bytes or None
        What precedes the text in the binary form, in a family whose binary form is its text.
    element : Family or None
        Codec of a container's elements.
    """

    render: Callable[[bytes], bytes]
    read_text: Read | None = None
    read_binary: Read | None = None
    store: Callable[[str, Any], Any] = _as_it_is
    write: Write | None = None
    write_text: Write | None = None
    arrow_name: str = ""
    arrow_formats: str = ""
    text_prefix: bytes | None = None
    element: Family | None = None

    @property
    def is_text_checked(self) -> bool:
        """True if a string is read before it is written; that of an array is not."""
        return self.read_text is not None and self.element is None

    @property
    def wanted_arrow(self) -> str:
        """Arrow types that values are written from, as an error names them."""
        text = "string (the server's text)"
        return f"{self.arrow_name}, or {text}" if self.arrow_name else text

    def is_written_from(self, formats: Sequence[str]) -> bool:
        """Return True if values are written from an Arrow type."""
        arrow, *elements = formats
        if arrow in STRINGS:
            return True
        if re.fullmatch(self.arrow_formats, arrow) is None:
            return False
        return self.element is None or self.element.is_written_from(elements)

    def has_binary_form(self, formats: Sequence[str]) -> bool:
        """Return True if a binary form can be written, for which a string may not suffice."""
        if formats[0] in STRINGS:
            return self.text_prefix is not None
        return self.element is None or self.element.has_binary_form(formats[1:])

    def binary_form(self, column: ColumnType, formats: Sequence[str], value: Any) -> bytes:
        """Return a stored value as the type's send function writes it.

        Raises
        ------
        Unwritable
            If the column's type has no such value.
        """
        if formats[0] in STRINGS:
            assert self.text_prefix is not None
            return self.text_prefix + bytes(value)
        assert self.write is not None
        return self.write(column, formats, value)

    def text_form(self, column: ColumnType, formats: Sequence[str], value: Any) -> bytes:
        """Return a stored value as the server writes it; raises as `binary_form` does."""
        if formats[0] in STRINGS:
            return self._checked(value)
        if self.write_text is not None:
            return self.write_text(column, formats, value)
        return self.render(self.binary_form(column, formats, value))

    def _checked(self, text: bytes) -> bytes:
        if self.read_text is not None and self.is_text_checked:
            try:
                self.read_text(text)
            except ValueProblem as problem:
                raise Unwritable(f"{problem.expected}, not {text!r}") from None
        return text

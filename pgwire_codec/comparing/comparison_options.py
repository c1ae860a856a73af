"""ComparisonOptions: the options of a comparison, and their defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pgwire_codec.errors import OptionError
from pgwire_codec.options import DecoderOptions

#: Seconds for the log and the target to reach the server.
WAIT: Final = 60.0

#: Number of connections that read a table.
JOBS: Final = 4

#: Number of rows of a table that are shown.
MAX_ROWS: Final = 10


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """Options of a comparison.

    Attributes
    ----------
    tables : str or sequence of str
        Names and patterns of tables.
    publication : str or sequence of str
        Publications; by default those of the log's last session.
    wait : float
        Seconds for the log and the target to reach the server.
    jobs : int
        Number of connections that read a table at once, at most.
    max_rows : int
        Number of rows of a table that are shown.
    decoder : DecoderOptions
        With which values of both sides are decoded.

    Raises
    ------
    OptionError
        For an invalid option.
    """

    tables: str | Sequence[str]
    publication: str | Sequence[str]
    wait: float
    jobs: int
    max_rows: int
    decoder: DecoderOptions

    def __post_init__(self) -> None:
        for name, least in (("wait", 0), ("jobs", 1), ("max_rows", 0)):
            value = getattr(self, name)
            if value < least:
                raise OptionError(f"{name} must be at least {least}, not {value}")

    @property
    def names(self) -> Sequence[str]:
        """Names and patterns of tables."""
        if isinstance(self.tables, str):
            return [each.strip() for each in self.tables.split(",")]
        return self.tables

    @property
    def publications(self) -> Sequence[str]:
        """Names of the publications."""
        return [self.publication] if isinstance(self.publication, str) else self.publication

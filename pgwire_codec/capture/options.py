"""What to ask of pgoutput, and which of it a server's version understands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pgwire_codec.errors import CaptureError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

Streaming = Literal["off", "on", "parallel"]
Origin = Literal["any", "none"]

_OLDEST: Final = 10  # the first major with pgoutput

#: Server major from which each protocol version is known, newest first.
_PROTOCOLS: Final = ((16, 4), (15, 3), (14, 2), (_OLDEST, 1))


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """What the caller asks of pgoutput; :meth:`negotiate` turns it into the server's own options.

    Attributes
    ----------
    publications : tuple of str
        Names of the publications, at least one.
    binary : bool
        Values in the types' binary form where they have one. From PostgreSQL 14.
    streaming : {"off", "on", "parallel"}
        Whether large transactions are sent while they run. ``on`` from 14, ``parallel`` from 16.
    two_phase : bool
        Whether prepared transactions are sent at PREPARE. From 15.
    messages : bool or None
        Whether ``pg_logical_emit_message`` is sent: from 14. None: where the server can.
    origin : {"any", "none"} or None
        ``none`` leaves out what the server itself got by replication. From 16.
    """

    publications: tuple[str, ...]
    binary: bool = False
    streaming: Streaming = "off"
    two_phase: bool = False
    messages: bool | None = None
    origin: Origin | None = None

    def __post_init__(self) -> None:
        if not self.publications or not all(self.publications):
            raise OptionError("publication must name at least one publication")
        if self.streaming not in ("off", "on", "parallel"):
            raise OptionError(
                f"streaming must be 'off', 'on' or 'parallel', not {self.streaming!r}"
            )
        if self.origin not in (None, "any", "none"):
            raise OptionError(f"origin must be None, 'any' or 'none', not {self.origin!r}")

    def negotiate(self, server_version: int) -> dict[str, str]:
        """Give the options of START_REPLICATION for a server, at its highest protocol version.

        Parameters
        ----------
        server_version : int
            As ``server_version_num`` has it: 160014 is 16.14.

        Raises
        ------
        CaptureError
            When the server is too old for what is asked.
        """
        major = server_version // 10000
        asked = (
            ("`binary=True`", self.binary, 14),
            (f"`streaming={self.streaming!r}`", self.streaming == "on", 14),
            (f"`streaming={self.streaming!r}`", self.streaming == "parallel", 16),
            ("`two_phase=True`", self.two_phase, 15),
            ("`messages=True`", self.messages is True, 14),
            (f"`origin={self.origin!r}`", self.origin is not None, 16),
        )
        if major < _OLDEST:
            raise CaptureError(
                f"The server is PostgreSQL {major}; pgoutput came with PostgreSQL {_OLDEST}. "
                "Upgrade it."
            )
        for option, is_asked, first in asked:
            if is_asked and major < first:
                raise CaptureError(
                    f"{option} needs PostgreSQL {first}; the server is PostgreSQL {major}. "
                    "Leave the option out."
                )
        options = {
            "proto_version": str(next(v for first, v in _PROTOCOLS if major >= first)),
            "publication_names": ",".join(quote_identifier(name) for name in self.publications),
        }
        if self.binary:
            options["binary"] = "true"
        if self.streaming != "off":
            options["streaming"] = self.streaming
        if self.two_phase:
            options["two_phase"] = "on"
        if self.messages is not False and major >= 14:
            options["messages"] = "true"
        if self.origin is not None:
            options["origin"] = self.origin
        return options


def publication_names(publication: str | Sequence[str]) -> tuple[str, ...]:
    """Give the names as a tuple, whether one or several were given."""
    return (publication,) if isinstance(publication, str) else tuple(publication)


def quote_identifier(name: str) -> str:
    """Quote a name as SQL and the replication commands do."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(value: str) -> str:
    """Quote a string for a replication command, which knows no escape but the doubled quote."""
    return "'" + value.replace("'", "''") + "'"

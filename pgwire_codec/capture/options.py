"""Options of a capture: pgoutput's own, and the limits of a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypedDict, cast, get_args

from pgwire_codec.errors import CaptureError, OptionError, check_choice
from pgwire_codec.protocol.quoting import quote_identifier, split_identifiers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Streaming = Literal["off", "on", "parallel"]
Origin = Literal["any", "none"]

#: Seconds to wait for a slot that another connection still holds.
SLOT_TIMEOUT: Final = 5.0
#: Seconds of the server's silence after which a connection counts as lost.
RECEIVE_TIMEOUT: Final = 60.0
#: Minimum seconds from the beginning of a flush to that of the next, on a local disk.
FLUSH_SECONDS: Final = 0.005
#: The same in an object store, where each flush writes a segment.
OBJECT_FLUSH_SECONDS: Final = 1.0
#: Number of connections that a snapshot copies over.
SNAPSHOT_JOBS: Final = 4

_OLDEST: Final = 10  # the first major with pgoutput
_FIRST_WITH_MESSAGES: Final = 14
#: First server major with each protocol version, newest first.
_PROTOCOLS: Final = ((16, 4), (15, 3), (14, 2), (_OLDEST, 1))
_MAX_BATCH_BYTES: Final = 1 << 30  # plus the largest message: still a 32-bit Arrow array


class PluginKeywords(TypedDict, total=False):
    """Fields of :class:`PluginOptions` as keyword arguments."""

    publication: str | Sequence[str]
    binary: bool
    streaming: Streaming
    two_phase: bool
    messages: bool | None
    origin: Origin | None


@dataclass(frozen=True)
class PluginOptions:
    """Options of pgoutput; :meth:`negotiate` writes them as a server's version expects them.

    Attributes
    ----------
    publication : str or sequence of str
        Name of the publication, or names of several; kept as a tuple.
    binary : bool
        Send values in their type's binary form, if it has one. PostgreSQL 14 and later.
    streaming : {"off", "on", "parallel"}
        Send large transactions while they run. ``on`` from PostgreSQL 14, ``parallel`` from 16.
    two_phase : bool
        Send prepared transactions at PREPARE. PostgreSQL 15 and later.
    messages : bool or None
        Send the output of ``pg_logical_emit_message``, from PostgreSQL 14 on. None: if the server
        supports it.
    origin : {"any", "none"} or None
        ``none`` omits changes that the server itself received by replication. PostgreSQL 16 and
        later.
    """

    publication: str | Sequence[str]
    binary: bool = False
    streaming: Streaming = "off"
    two_phase: bool = False
    messages: bool | None = None
    origin: Origin | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "publication", self.publications)
        if not self.publications or not all(self.publications):
            raise OptionError("publication must name at least one publication")
        check_choice("streaming", self.streaming, *get_args(Streaming))
        if self.origin is not None:
            check_choice("origin", self.origin, *get_args(Origin))

    @classmethod
    def of(cls, options: PluginOptions | None, keywords: PluginKeywords) -> PluginOptions:
        """Return the options that a caller passed as an object, as keywords, or as both.

        Parameters
        ----------
        options : PluginOptions or None
        keywords : PluginKeywords
            Go over the fields of ``options``. Without ``options``, ``publication`` is required.
        """
        return cls(**keywords) if options is None else replace(options, **keywords)

    @classmethod
    def from_plugin(cls, options: Mapping[str, str]) -> PluginOptions:
        """Return the options that :meth:`negotiate` has written for a server."""
        return cls(
            publication=split_identifiers(options["publication_names"]),
            binary="binary" in options,
            streaming=cast("Streaming", options.get("streaming", "off")),
            two_phase="two_phase" in options,
            messages="messages" in options,
            origin=cast("Origin | None", options.get("origin")),
        )

    @property
    def publications(self) -> tuple[str, ...]:
        """Names of the publications."""
        names = self.publication
        return (names,) if isinstance(names, str) else tuple(names)

    def negotiate(self, server_version: int) -> dict[str, str]:
        """Return the options of START_REPLICATION for a server, at its highest protocol version.

        Parameters
        ----------
        server_version : int
            As in ``server_version_num``: 160014 is 16.14.

        Raises
        ------
        CaptureError
            When the server is too old for an option.
        """
        major = server_version // 10000
        self._check_supported(major)
        options = {
            "proto_version": str(next(v for first, v in _PROTOCOLS if major >= first)),
            "publication_names": ",".join(map(quote_identifier, self.publications)),
        }
        if self.binary:
            options["binary"] = "true"
        if self.streaming != "off":
            options["streaming"] = self.streaming
        if self.two_phase:
            options["two_phase"] = "on"
        if self.messages is not False and major >= _FIRST_WITH_MESSAGES:
            options["messages"] = "true"
        if self.origin is not None:
            options["origin"] = self.origin
        return options

    def _check_supported(self, major: int) -> None:
        if major < _OLDEST:
            raise CaptureError(
                f"unsupported server: pgoutput needs PostgreSQL {_OLDEST}; the server is "
                f"PostgreSQL {major}",
                hint="Upgrade the server.",
            )
        requested = (
            ("`binary=True`", self.binary, 14),
            (f"`streaming={self.streaming!r}`", self.streaming == "on", 14),
            (f"`streaming={self.streaming!r}`", self.streaming == "parallel", 16),
            ("`two_phase=True`", self.two_phase, 15),
            ("`messages=True`", self.messages is True, _FIRST_WITH_MESSAGES),
            (f"`origin={self.origin!r}`", self.origin is not None, 16),
        )
        for option, is_requested, first in requested:
            if is_requested and major < first:
                raise CaptureError(
                    f"{option} needs PostgreSQL {first}; the server is PostgreSQL {major}",
                    hint="Omit the option.",
                )


@dataclass(frozen=True)
class BatchLimits:
    """Limits of a batch, and of the iteration over batches; see ``Capture.batches``."""

    max_messages: int = 50_000
    max_bytes: int = 16 << 20
    max_seconds: float = 1.0
    until_lsn: int | None = None
    idle_seconds: float | None = None
    until_commit: bool = False

    def __post_init__(self) -> None:
        if self.max_messages < 1:
            raise OptionError(f"max_messages must be at least 1, not {self.max_messages}")
        if not 1 <= self.max_bytes <= _MAX_BATCH_BYTES:
            raise OptionError(f"max_bytes must be from 1 to 2**30, not {self.max_bytes}")
        if not self.max_seconds > 0:
            raise OptionError(f"max_seconds must be above 0, not {self.max_seconds}")

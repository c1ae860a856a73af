"""Options of a decoder and of a log's segments, as values that check themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from pgwire_codec.errors import OptionError, check_choice, check_on_error
from pgwire_codec.types import NATIVE, ArrowTypes, TypeOptions, TypeRegistry

Compression = Literal["lz4", "zstd"]


# Without slots: a decoder takes its parameters' defaults from the class.
@dataclass(frozen=True)
class DecoderOptions:
    """Options of a decoder. Hashable and picklable; ``dataclasses.replace`` changes some of them.

    Attributes
    ----------
    atomic : bool
        True: a plain transaction's changes come with its Commit. False: they come as they arrive,
        so that memory stays that of a batch. The server sends a plain transaction only once it is
        committed, but a connection can break in the middle of one; the rest comes when it is sent
        again. Streamed and prepared transactions always come when they commit.
    types : {"native", "text"}
        Arrow types as in the table of types, or every column as string.
    numeric : str
        Type of a numeric without precision, or with more than 38 digits: ``"string"``,
        ``"float64"``, ``"decimal128(p, s)"`` or ``"decimal256(p, s)"``.
    intervals : {"month_day_nano", "string", "microseconds"}
        Type of an interval: ``month_day_nano_interval``, which polars does not take; ``string``,
        the server's text; or ``duration[us]``, as PostgreSQL's ``extract(epoch from …)`` adds its
        parts up: a year has 365.25 days, a month 30 days, and a day 24 hours.
    strings : {"copy", "view"}
        Text columns as ``string``, or as ``string_view`` over the messages' own bytes.
    before : {"key", "full", "none"}
        Columns of the old tuple that ``_before`` has in ``to_arrow``.
    unrepresentable : {"raise", "null", "clamp"}
        How to handle values that the Arrow type cannot represent.
    on_error : {"raise", "skip"}
        How to handle a message that does not decode. ``"raise"``: raise ``DecodeError`` and leave
        the decoder as it was before the call. ``"skip"``: put the message into
        ``Changes.rejected`` and go on.
    arrow_types : ArrowTypes
        What the reader of the columns takes; by default the closest Arrow type of each family.
    threads : int
        Number of threads that scan the messages of a large call, and that decode the values of a
        large batch in ``to_arrow``.
    registry : TypeRegistry or None
        Where user-defined types are looked up; None: where ``register_type`` puts them.

    Raises
    ------
    OptionError
        If an option has an invalid value, or two contradict each other.
    """

    atomic: bool = True
    types: str = "native"
    numeric: str = "string"
    intervals: str = "month_day_nano"
    strings: str = "copy"
    before: str = "key"
    unrepresentable: str = "raise"
    on_error: str = "raise"
    arrow_types: ArrowTypes = NATIVE
    threads: int = 1
    registry: TypeRegistry | None = None
    type_options: TypeOptions = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.atomic, bool):
            raise OptionError(f"atomic must be True or False, not {self.atomic!r}")
        check_choice("before", self.before, "key", "full", "none")
        check_choice("unrepresentable", self.unrepresentable, "raise", "null", "clamp")
        check_on_error(self.on_error)
        if not isinstance(self.threads, int) or self.threads < 1:
            raise OptionError(f"threads must be an integer of at least 1, not {self.threads!r}")
        if not isinstance(self.registry, (TypeRegistry, type(None))):
            raise OptionError(
                f"registry must be a TypeRegistry, not {type(self.registry).__name__}"
            )
        options = TypeOptions(
            self.types, self.numeric, self.strings, self.arrow_types, self.intervals
        )
        object.__setattr__(self, "type_options", options)


#: Bytes that stay free on the disk of a log: for a segment, and what is written beside it.
MIN_FREE_BYTES: Final = 256 << 20


def check_min_free_bytes(given: object) -> None:
    """Raise ``OptionError`` unless a number of bytes can stay free on a disk."""
    if not isinstance(given, int) or given < 0:
        raise OptionError(f"min_free_bytes must be an integer of 0 or more, not {given!r}")


@dataclass(frozen=True)
class SegmentOptions:
    """Segments of a log, as a writer creates them.

    Attributes
    ----------
    compression : {"lz4", "zstd"} or None
        Compression of the record batches. Without compression, reading copies nothing, and takes
        a fourth less CPU time; the files are two to four times as large.
    segment_bytes : int
        Size of a file, in bytes, at which its segment is sealed.
    segment_seconds : float
        Age of a segment, in seconds, from which a flush seals it.
    file_mode : int
        Permissions of the files that are created on a local disk: by default only their owner's, as
        in PostgreSQL's data directory. Those who may read them may search a directory that is
        created.
    """

    compression: Compression | None = "lz4"
    segment_bytes: int = 128 << 20
    segment_seconds: float = 600.0
    file_mode: int = 0o600

    def __post_init__(self) -> None:
        if self.compression not in (None, *get_args(Compression)):
            raise OptionError(
                f'compression must be None, "lz4" or "zstd", not {self.compression!r}'
            )
        if self.segment_bytes < 1:
            raise OptionError(f"segment_bytes must be 1 or more, not {self.segment_bytes}")
        mode = self.file_mode
        if not isinstance(mode, int):
            raise OptionError(f"file_mode must be an int, as 0o640, not {mode!r}")
        if not 0o600 == mode & 0o700 <= mode <= 0o666:
            raise OptionError(f"file_mode must be from 0o600 to 0o666, not {mode:#o}")

"""The options of ``format("pgoutput")``, checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pgwire_codec._impl import Decoder
from pgwire_codec.errors import OptionError
from pgwire_codec.lsn import parse_lsn

#: Every option, as Spark users write it; Spark does not tell upper from lower case.
NAMES: Final = (
    "path", "table", "columns", "startingLsn", "endingLsn", "style", "types", "numeric", "before",
    "unrepresentable", "onError", "maxPartitionBytes", "maxBytesPerTrigger",
)  # fmt: skip

#: Those that say what becomes of a table's columns, and need ``table``.
_OF_A_TABLE: Final = ("columns", "types", "numeric", "before", "unrepresentable")

_WORDS: Final = {
    "style": ("native", "debezium", "delta"),
    "types": ("native", "text"),
    "before": ("key", "full", "none"),
    "unrepresentable": ("raise", "null", "clamp"),
    "onError": ("raise", "skip"),
}

#: Some partitions for each core, of most logs; a task costs some milliseconds.
_MAX_PARTITION_BYTES: Final = 32 << 20

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the options say.

    Attributes
    ----------
    path : str
        Where the log is.
    table : str or None
        ``schema.table``; None: all tables.
    columns : tuple of str or None
        Of the table; None: all.
    starting_lsn, ending_lsn : int or None
        Transactions with ``starting_lsn < commit_lsn <= ending_lsn``.
    style : {"native", "debezium", "delta"}
        Which columns a row has.
    decoder : dict
        Options of :class:`pgwire_codec.Decoder`.
    max_partition_bytes : int
        Of a partition.
    max_bytes_per_trigger : int or None
        Of messages in a micro-batch.
    """

    path: str
    table: str | None
    columns: tuple[str, ...] | None
    starting_lsn: int | None
    ending_lsn: int | None
    style: str
    decoder: dict[str, Any]
    max_partition_bytes: int
    max_bytes_per_trigger: int | None

    @property
    def on_error(self) -> str:
        """The decoder's."""
        return str(self.decoder["on_error"])


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options. Names count without upper and lower case.

    Raises ``OptionError`` for an unknown one, a value that it cannot have, or two that do not go
    together; it says which are allowed.
    """
    known = {name.lower(): name for name in NAMES}
    unknown = [name for name in given if name.lower() not in known]
    if unknown:
        raise OptionError(
            f'format("pgoutput") has no option {", ".join(sorted(unknown))}; it has: '
            f"{', '.join(NAMES)}"
        )
    options = {known[name.lower()]: value for name, value in given.items()}
    if not options.get("path"):
        raise OptionError('the option path is missing: where the log is, .option("path", DIR)')
    for name, words in _WORDS.items():
        if name in options and options[name] not in words:
            raise OptionError(_wrong(name, options[name], f"one of {', '.join(words)}"))
    table = options.get("table")
    style = options.get("style", "native")
    _check_together(options, table, style)
    # An envelope, and the image of a row before its update, are of all that was sent; where rows
    # are of any table, all values are text, and the old ones have a column of their own.
    before = options.get("before", "key") if style == "native" else "full"
    decoder: dict[str, Any] = {
        "types": "text" if table is None else options.get("types", "native"),
        "numeric": options.get("numeric", "string"),
        "before": "none" if table is None else before,
        "unrepresentable": options.get("unrepresentable", "raise"),
        "on_error": options.get("onError", "raise"),
        "target": "spark",
    }
    Decoder(**decoder)  # says what numeric may be
    starting, ending = _lsn(options, "startingLsn"), _lsn(options, "endingLsn")
    if starting is not None and ending is not None and ending < starting:
        raise OptionError(
            f"endingLsn {options['endingLsn']} is before startingLsn {options['startingLsn']}"
        )
    return SourceOptions(
        path=options["path"],
        table=table,
        columns=_columns(options),
        starting_lsn=starting,
        ending_lsn=ending,
        style=style,
        decoder=decoder,
        max_partition_bytes=_size(options, "maxPartitionBytes") or _MAX_PARTITION_BYTES,
        max_bytes_per_trigger=_size(options, "maxBytesPerTrigger"),
    )


def _check_together(options: Mapping[str, str], table: str | None, style: str) -> None:
    if table is not None and not table:
        raise OptionError(_wrong("table", table, "schema.table; without it, all tables come"))
    if table is None:
        if style != "native":
            raise OptionError(f"style={style} needs the option table: a row has its columns")
        if given := [name for name in _OF_A_TABLE if name in options]:
            raise OptionError(
                f"{', '.join(given)} needs the option table: without it, a row is a change of any "
                "table, with its values as text"
            )
    elif style != "native" and "before" in options:
        raise OptionError(f"before goes with style=native only: style={style} has the whole rows")


def _columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    if "columns" not in options:
        return None
    names = tuple(name.strip() for name in options["columns"].split(","))
    if not all(names) or len(set(names)) < len(names):
        wanted = "names of columns, each once, with commas between them"
        raise OptionError(_wrong("columns", options["columns"], wanted))
    return names


def _lsn(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    text = options[name].strip()
    if text.isascii() and text.isdigit() and int(text) < 1 << 64:
        return int(text)
    try:
        return parse_lsn(text)
    except ValueError:
        wanted = "an LSN like 16/B374D848, or its value as a number"
        raise OptionError(_wrong(name, text, wanted)) from None


def _size(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    match = _SIZE.fullmatch(options[name].strip())
    size = 0 if match is None else int(match[1]) << 10 * " kmgt".index(match[2].lower() or " ")
    if not size:
        raise OptionError(
            _wrong(name, options[name], "a number of bytes above 0, like 67108864 or 64m")
        )
    return size


def _wrong(name: str, value: str, wanted: str) -> str:
    return f"{name} must be {wanted}, not {value!r}"

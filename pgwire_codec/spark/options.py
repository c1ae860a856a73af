"""Options of ``format("pgoutput")``, checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from pgwire_codec.errors import OptionError
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.options import DecoderOptions
from pgwire_codec.protocol.lsn import parse_lsn

T = TypeVar("T")

#: Every option, as Spark users write it; Spark ignores case.
NAMES: Final = (
    "path", "table", "relationOid", "columns", "startingLsn", "endingLsn",
    "startingTimestamp", "endingTimestamp", "style", "types", "numeric", "before",
    "unrepresentable", "onError", "withRelationOid", "onRelationChange", "maxPartitionBytes",
    "maxBytesPerTrigger", "pushFilters", "checkIdentity",
)  # fmt: skip

#: Options that select a table, of which a query has one or none.
_SELECTIONS: Final = ("table", "relationOid")

#: Options for the columns of tables, which need one of these.
_OF_A_TABLE: Final = (
    "columns", "types", "numeric", "before", "unrepresentable", "checkIdentity",
)  # fmt: skip

_VALUES: Final = {
    "style": ("native", "debezium"),
    "types": ("native", "text"),
    "before": ("key", "full", "none"),
    "unrepresentable": ("raise", "null", "clamp"),
    "onError": ("raise", "skip"),
    "checkIdentity": ("true", "false"),
    "withRelationOid": ("true", "false"),
    "onRelationChange": ("fail", "replace"),
    "pushFilters": ("true", "false"),
}

#: Some partitions for each core, of most logs; a task costs some milliseconds.
_MAX_PARTITION_BYTES: Final = 32 << 20

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)b?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Values of the options, which :class:`PgoutputDataSource` describes."""

    path: str
    table: str | None
    relation_oid: int | None
    columns: tuple[str, ...] | None
    starting_lsn: int | None
    ending_lsn: int | None
    starting_time: datetime | None
    ending_time: datetime | None
    style: str
    #: If ``table`` and ``relation_oid`` are None: for values of all tables as text.
    decoder: DecoderOptions
    with_relation_oid: bool
    on_relation_change: str
    max_partition_bytes: int
    max_bytes_per_trigger: int | None
    push_filters: bool
    check_identity: bool

    @property
    def is_of_a_table(self) -> bool:
        """True if rows have a table's columns."""
        return self.table is not None or self.relation_oid is not None

    @property
    def on_error(self) -> str:
        """Option ``on_error`` of the decoder."""
        return self.decoder.on_error


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options. The case of names is ignored.

    Raises ``OptionError`` for an unknown option, an invalid value, or options that exclude one
    another. The text lists the valid ones.
    """
    known = {name.lower(): name for name in NAMES}
    unknown = [name for name in given if name.lower() not in known]
    if unknown:
        raise OptionError(
            f'format("pgoutput") has no option {", ".join(sorted(unknown))}',
            hint=f"Its options are {', '.join(NAMES)}.",
        )
    options = {known[name.lower()]: value for name, value in given.items()}
    if not options.get("path"):
        raise OptionError(
            "the option path is missing",
            hint='Set it to the location of the log, with .option("path", DIR).',
        )
    for name, values in _VALUES.items():
        if name in options and options[name] not in values:
            raise _wrong(name, options[name], f"one of {', '.join(values)}")
    style = options.get("style", "native")
    _check_together(options, style)
    has_columns = any(name in options for name in _SELECTIONS)
    on_relation_change = options.get("onRelationChange", "fail")
    # Debezium's format contains whole old rows. Rows of any table have their values as text, and
    # the old ones in a column of their own.
    before = options.get("before", "key") if style == "native" else "full"
    decoder = DecoderOptions(
        types=options.get("types", "native") if has_columns else "text",
        numeric=options.get("numeric", "string"),
        before=before if has_columns else "none",
        unrepresentable=options.get("unrepresentable", "raise"),
        on_error=options.get("onError", "raise"),
        arrow_types=ROW_TYPES,
    )
    starting, ending = _read(options, "startingLsn", _lsn), _read(options, "endingLsn", _lsn)
    if starting is not None and ending is not None and ending < starting:
        raise OptionError(
            f"endingLsn {options['endingLsn']} is before startingLsn {options['startingLsn']}"
        )
    first = _read(options, "startingTimestamp", _time)
    last = _read(options, "endingTimestamp", _time)
    if first is not None and last is not None and last < first:
        raise OptionError(
            f"endingTimestamp {options['endingTimestamp']} is before startingTimestamp "
            f"{options['startingTimestamp']}"
        )
    return SourceOptions(
        path=options["path"],
        table=options.get("table"),
        relation_oid=_read(options, "relationOid", _oid),
        columns=_read(options, "columns", _names),
        starting_lsn=starting,
        ending_lsn=ending,
        starting_time=first,
        ending_time=last,
        style=style,
        decoder=decoder,
        with_relation_oid=(
            options.get("withRelationOid") == "true" or on_relation_change == "replace"
        ),
        on_relation_change=on_relation_change,
        max_partition_bytes=_read(options, "maxPartitionBytes", _size) or _MAX_PARTITION_BYTES,
        max_bytes_per_trigger=_read(options, "maxBytesPerTrigger", _size),
        push_filters=options.get("pushFilters") == "true",
        check_identity=options.get("checkIdentity") == "true",
    )


def _check_together(options: Mapping[str, str], style: str) -> None:
    if options.get("table") == "":
        raise _wrong("table", "", "schema.table", "Without it, all tables are read.")
    selections = [name for name in _SELECTIONS if name in options]
    if len(selections) > 1:
        raise OptionError(f"{' and '.join(selections)} exclude one another")
    if "onRelationChange" in options and "table" not in options:
        raise OptionError(
            "onRelationChange needs the option table",
            hint="A relation that is read by relationOid never changes.",
        )
    if not selections:
        if style != "native":
            raise OptionError(
                f"style={style} needs the option table", hint="Its rows have a table's columns."
            )
        if given := [name for name in _OF_A_TABLE if name in options]:
            raise OptionError(
                f"{', '.join(given)} needs the option table",
                hint="Without it, a row is a change of any table, with its values as text.",
            )
    elif style != "native" and "before" in options:
        raise OptionError(
            f"before and style={style} exclude one another",
            hint=f"Rows of style={style} have whole old rows. Use before with style=native.",
        )
    _check_relation_oid(options, style)


def _check_relation_oid(options: Mapping[str, str], style: str) -> None:
    replaces = options.get("onRelationChange") == "replace"
    if replaces and options.get("withRelationOid") == "false":
        raise OptionError("onRelationChange=replace needs withRelationOid=true, not 'false'")
    if style != "native" and (replaces or options.get("withRelationOid") == "true"):
        name = "onRelationChange=replace" if replaces else "withRelationOid"
        raise OptionError(
            f"{name} and style={style} exclude one another",
            hint=f"style={style} has its own columns. Use {name} with style=native.",
        )


def _read(options: Mapping[str, str], name: str, parse: Callable[[str, str], T]) -> T | None:
    """Return the value of an option, of which ``parse`` gets name and text; None without it."""
    return parse(name, options[name].strip()) if name in options else None


def _names(name: str, text: str) -> tuple[str, ...]:
    names = tuple(each.strip() for each in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise _wrong(name, text, "distinct names of columns, separated by commas")
    return names


def _oid(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 32):
        raise _wrong(name, text, "a number from 1 to 4294967295")
    return int(text)


def _lsn(name: str, text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 1 << 64:
        return int(text)
    try:
        return parse_lsn(text)
    except ValueError:
        raise _wrong(name, text, "an LSN like 16/B374D848, or its value as a number") from None


def _time(name: str, text: str) -> datetime:
    try:
        time = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))  # Python 3.10 reads no Z
    except ValueError:
        time = datetime.min
    if time.utcoffset() is None:
        raise _wrong(
            name,
            text,
            "a time with its offset from UTC, like 2026-01-31T12:00:00Z or 2026-01-31 "
            "12:00:00+02:00",
        )
    return time


def _size(name: str, text: str) -> int:
    match = _SIZE.fullmatch(text)
    size = 0 if match is None else int(match[1]) << 10 * " kmgt".index(match[2].lower() or " ")
    if not size:
        raise _wrong(name, text, "a number of bytes above 0, like 67108864 or 64m")
    return size


def _wrong(name: str, value: str, wanted: str, hint: str | None = None) -> OptionError:
    return OptionError(f"{name} must be {wanted}, not {value!r}", hint=hint)

"""Dead letters of a log: the messages that ``on_error="skip"`` leaves out, as rows."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pgwire_codec.errors import Rejected
from pgwire_codec.log.partition import LogPartition, LogPosition, commit_lsn_of
from pgwire_codec.log.reader import Log
from pgwire_codec.log.relations import select_relations
from pgwire_codec.options import DecoderOptions
from pgwire_codec.transactions.carry import Scope

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: Columns of dead letters.
DEAD_LETTERS: Final = pa.schema(
    {
        "ordinal": pa.int64(),
        "lsn": pa.int64(),
        "commit_lsn": pa.int64(),
        "commit_time": pa.timestamp("us", "UTC"),
        "after_lsn": pa.int64(),
        "xid": pa.int64(),
        "table": pa.string(),
        "relation_oid": pa.int64(),
        "code": pa.string(),
        "error": pa.string(),
        "hint": pa.string(),
        "data": pa.binary(),
    }
)


def dead_letters(
    log: str | os.PathLike[str] | Log,
    table: str | Sequence[str] | None = None,
    after: LogPosition | int | None = None,
    until: LogPosition | int | None = None,
    *,
    filesystem: FileSystem | None = None,
    **decoder_options: Any,
) -> Iterator[pa.RecordBatch]:
    """Read the messages of a log that ``on_error="skip"`` leaves out, each with its error.

    With the same range and options, ``Log.read(..., on_error="skip")`` has all other changes.

    Parameters
    ----------
    log : str, path or Log
        Location of the log, or the log.
    table : str or sequence of str, optional
        Names or patterns, as for ``Log.read``. By default the messages of all tables, and those
        that name none.
    after, until : LogPosition or int, optional
        Range of commit LSNs, as for ``Log.plan``. A message is in the range if ``after_lsn`` of it
        is not before ``after``, and is before ``until``: so it is in one of consecutive ranges,
        also if the commit of its transaction is not known.
    filesystem : pyarrow.fs.FileSystem, optional
        As for ``Log``.
    **decoder_options
        Options of :class:`pgwire_codec.Decoder`, except ``on_error``: they decide which values
        decode.

    Yields
    ------
    pyarrow.RecordBatch
        A row for each message: ``ordinal`` in the log; ``lsn``; ``commit_lsn`` and ``commit_time``
        of its transaction and ``xid``, null if they are not known; ``after_lsn``, after which to
        read the log to have the message; ``table``, by its name at the end of the range, and
        ``relation_oid``, null if the message names none; ``code``, ``error`` and ``hint`` of the
        error; and ``data``, the message.

    Raises
    ------
    LogError
        When the log does not exist, or is damaged.
    TableError
        For a name that no relation has.
    """
    opened = log if isinstance(log, Log) else Log(log, filesystem=filesystem)
    options = DecoderOptions(**{**decoder_options, "on_error": "skip"})
    end = opened.end.lsn
    scope = opened.relations_at(None if until is None else min(commit_lsn_of(until, "until"), end))
    chosen = None
    if table is not None:
        tables = [table] if isinstance(table, str) else table
        chosen = select_relations(scope, lambda: opened.versions, tables)
    plan = opened.plan(after, until, relation_oid=chosen, on_error="skip")
    names = names_of(scope)
    read = (letters_in(partition, options, chosen) for partition in plan.partitions)
    return (to_arrow(letters, names) for letters in read if letters)


def letters_in(
    partition: LogPartition, options: DecoderOptions, relations: Collection[int] | None
) -> list[Rejected]:
    """Return the dead letters of a partition, in order: of some relations, by OID, or all."""
    letters: list[Rejected] = []
    for _ in partition.decode(options, letters):
        pass
    wanted = (each for each in letters if relations is None or each.relation_oid in relations)
    return sorted(wanted, key=lambda each: each.message_index)


def names_of(scope: Scope) -> dict[int, str]:
    """Return the names of the relations that are known at an LSN, by OID."""
    return {oid: version.qualified_name for oid, (_, version) in scope.relations.items()}


def to_arrow(letters: Sequence[Rejected], names: Mapping[int, str]) -> pa.RecordBatch:
    """Return rows with the columns of :data:`DEAD_LETTERS`.

    ``message_index`` of a letter is its ordinal. ``names`` are those of relations, by OID.
    """
    rows = [
        {
            "ordinal": each.message_index,
            "lsn": _signed(each.lsn),
            "commit_lsn": each.commit_lsn,
            "commit_time": None if each.commit_time is None else int(each.commit_time.astype(int)),
            "after_lsn": each.after_lsn,
            "xid": each.xid,
            "table": None if each.relation_oid is None else names.get(each.relation_oid),
            "relation_oid": each.relation_oid,
            "code": str(each.error.code),
            "error": each.error.at(None).primary,
            "hint": each.error.hint,
            "data": each.data,
        }
        for each in letters
    ]
    return pa.RecordBatch.from_pylist(rows, schema=DEAD_LETTERS)


def _signed(lsn: int | None) -> int | None:
    """Return the bits of an LSN as a signed number, as in the messages of a log."""
    return lsn if lsn is None or lsn < 1 << 63 else lsn - (1 << 64)

"""Log: reading and decoding of a log."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pgwire_codec._impl import Decoder
from pgwire_codec.changes.changes import Changes
from pgwire_codec.changes.display import html_table, html_text, names_text
from pgwire_codec.changes.identity import PossibleLeaves
from pgwire_codec.decoder import PartDecoder
from pgwire_codec.errors import LogError, OptionError
from pgwire_codec.format import format_count
from pgwire_codec.log.commit_times import ALL_TIMES, TimeRange, time_range
from pgwire_codec.log.ipc_file import read_extents
from pgwire_codec.log.log_changes import LogChanges
from pgwire_codec.log.partition import (
    LogPlan,
    LogPosition,
    commit_lsn_of,
    decode_batches,
    with_types,
)
from pgwire_codec.log.planner import plan_range
from pgwire_codec.log.relations import (
    LoggedRelation,
    logged_relations,
    relations_at,
    select_relation,
    select_relations,
)
from pgwire_codec.log.segment import Segment, first_ordinal_of
from pgwire_codec.log.segment_sequence import SegmentSequence
from pgwire_codec.log.store_errors import MissingFileError
from pgwire_codec.options import DecoderOptions
from pgwire_codec.transactions.carry import RelationVersion, Scope
from pgwire_codec.transactions.plan import PartPlan

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


#: Largest size of a partition, by default.
PARTITION_BYTES: Final = 64 << 20
_SHOWN_TABLES: Final = 20


class Log(SegmentSequence):
    """Reads a log that a :class:`LogWriter` writes, or wrote.

    It reads the log as of when it was opened or refreshed. Sidecars are read when they are needed.
    If a compaction has replaced files that are needed, the log is refreshed then. A pickled Log
    contains only the location, and opens the log again.

    Parameters
    ----------
    uri : str or path
        A directory, or a URI that ``pyarrow.fs`` understands.
    filesystem : pyarrow.fs.FileSystem, optional
        File system in which ``uri`` is a path.

    Raises
    ------
    LogError
        When ``uri`` has no log, or a damaged one.
    """

    def __init__(
        self, uri: str | os.PathLike[str], *, filesystem: FileSystem | None = None
    ) -> None:
        text = os.fspath(uri)
        is_local = filesystem is None and "://" not in text
        self._leaves: tuple[Scope, PossibleLeaves] | None = None
        absolute = os.path.abspath(text) if is_local else text  # noqa: PTH100  (a str)
        super().__init__(absolute, filesystem)

    def __repr__(self) -> str:
        return f"<Log {self.uri}: {format_count(len(self), 'segment')}>"

    def _repr_html_(self) -> str:
        """Return a table of the relations that have a name at the end."""
        scope = self.relations_at()
        versions = [scope.named(name) for name in sorted(scope.names)]
        tables = [version for version in versions if version is not None]
        rows = [
            (
                html_text(version.qualified_name),
                html_text(names_text([column.name for column in version.relation.columns])),
            )
            for version in tables[:_SHOWN_TABLES]
        ]
        if len(tables) > _SHOWN_TABLES:
            rows.append(("…", ""))
        segments = format_count(len(self), "segment")
        caption = f"{self.uri}: {segments}, {format_count(len(tables), 'table')}"
        return html_table(caption, ["table", "columns"], rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self.uri, self._filesystem)

    def relations_at(self, lsn: int | None = None) -> Scope:
        """Return the relations known after the last transaction up to a commit LSN.

        Parameters
        ----------
        lsn : int, optional
            By default that of :attr:`end`. The result for an LSN stays the same when the log grows.

        Returns
        -------
        Scope
            Must not be changed. It can be the same object as for another LSN, if it is equal.

        Raises
        ------
        LogError
            When the log was pruned beyond it.
        """
        at = None if lsn is None else commit_lsn_of(lsn, "lsn")
        return self._unless_compacted(
            lambda: relations_at(self, self.end.lsn if at is None else at)
        )

    def leaves_at(self, lsn: int) -> PossibleLeaves:
        """Return the relations known at a commit LSN that may be partitions of others."""
        scope = self.relations_at(lsn)
        if self._leaves is None or self._leaves[0] is not scope:
            self._leaves = scope, PossibleLeaves(each for _, each in scope.relations.values())
        return self._leaves[1]

    def relation(self, table: str, at: int | None = None) -> RelationVersion:
        """Return the newest version of the relation that has a name.

        A name is not a table: after DROP TABLE and CREATE TABLE, or after two renames, another
        relation has it. The server sends a new name with the relation's next change.

        Parameters
        ----------
        table : str
            ``schema.table``.
        at : int, optional
            Commit LSN at which the relation has the name, by default that of :attr:`end`.

        Raises
        ------
        TableError
            When no relation has the name. The text lists the tables, or the present names of
            relations that had it.
        """
        return select_relation(self.relations_at(at), lambda: self.versions, table=table)

    @property
    def relations(self) -> tuple[LoggedRelation, ...]:
        """The relations that the log has, each with all its names, by name."""
        return logged_relations(self.versions, self.relations_at())

    def plan(
        self,
        after: LogPosition | int | None = None,
        until: LogPosition | int | None = None,
        *,
        table: str | Sequence[str] | None = None,
        relation_oid: int | Collection[int] | None = None,
        starting_time: datetime | np.datetime64 | None = None,
        ending_time: datetime | np.datetime64 | None = None,
        max_partition_bytes: int = PARTITION_BYTES,
        on_error: str = "raise",
    ) -> LogPlan:
        """Plan the decoding of the transactions that commit in a range, in independent partitions.

        Parameters
        ----------
        after, until : LogPosition or int, optional
            Commit LSNs: transactions with ``after < commit_lsn <= until``, wherever their changes
            are in the log. By default from :attr:`begin` to :attr:`end`. Consecutive ranges have
            every change exactly once.
        table : str or sequence of str, optional
            Names, ``schema.table``, or patterns such as ``public.*``, at the end of the range. The
            partitions are those with changes of these tables, which have others, too. Parts that
            have none are not read: their errors are not found.
        relation_oid : int or collection of int, optional
            OIDs of relations, in place of ``table``; the log need not have them.
        starting_time, ending_time : datetime.datetime or numpy.datetime64, optional
            Commit times, of which the transactions of the range have one between these, or one of
            these. A ``datetime`` has a time zone, a ``datetime64`` is UTC. This filters the range
            of LSNs: clocks are set back, and later transactions can have earlier times. Segments
            without such a commit are found in the index, and are not read.
        max_partition_bytes : int
            Largest size of a partition, in bytes of messages, unless it is a single part.
        on_error : {"raise", "skip"}
            As for ``Decoder``, and the same as for the decoding.

        Raises
        ------
        DecodeError
            When the order of messages violates the protocol.
        LogError
            When messages of the range were pruned, or the log is damaged.
        """
        relations: Collection[int] | None
        if relation_oid is None:
            relations = self._selected(table, until)
        elif table is not None:
            raise OptionError("table and relation_oid exclude one another")
        else:
            relations = {relation_oid} if isinstance(relation_oid, int) else {*relation_oid}
        times = time_range(starting_time, ending_time)
        return self._plan(after, until, relations, times, max_partition_bytes, on_error)

    def changed_relations(
        self, after: LogPosition | int | None = None, until: LogPosition | int | None = None
    ) -> frozenset[int] | None:
        """Return the OIDs of the relations that may have changes in a range; None: any may.

        Parameters
        ----------
        after, until : LogPosition or int, optional
            As in :meth:`plan`.

        Raises
        ------
        DecodeError, LogError
            As from :meth:`plan`.
        """
        plan = self._plan(
            after, until, None, ALL_TIMES, PARTITION_BYTES, "raise", with_versions=False
        )
        known = [changed for changed in plan.changed if changed is not None]
        return None if len(known) < len(plan.changed) else frozenset().union(*known)

    def _plan(
        self,
        after: LogPosition | int | None,
        until: LogPosition | int | None,
        relations: Collection[int] | None,
        times: TimeRange,
        max_partition_bytes: int,
        on_error: str,
        *,
        with_versions: bool = True,
    ) -> LogPlan:
        bounds = (
            None if after is None else commit_lsn_of(after, "after"),
            None if until is None else commit_lsn_of(until, "until"),
        )
        return self._unless_compacted(
            lambda: plan_range(
                self,
                self._filesystem,
                *bounds,
                relations,
                times,
                max_partition_bytes=max_partition_bytes,
                on_error=on_error,
                with_versions=with_versions,
            )
        )

    def read(
        self,
        table: str | Sequence[str] | None = None,
        after: LogPosition | int | None = None,
        until: LogPosition | int | None = None,
        *,
        relation_oid: int | None = None,
        starting_time: datetime | np.datetime64 | None = None,
        ending_time: datetime | np.datetime64 | None = None,
        **decoder_options: Any,
    ) -> LogChanges:
        """Return the changes that commit in a range, which are decoded as they are read.

        The range is planned at once, and decoded partition by partition in this process.

        Parameters
        ----------
        table : str or sequence of str, optional
            Only changes of the relations that have these names at the end of the range, under any
            of their names; see :meth:`relation`. Names are ``schema.table``, or patterns such as
            ``public.*``. Only parts of the log with such changes are read.
        after, until : LogPosition or int, optional
            As in :meth:`plan`.
        relation_oid : int, optional
            Only changes of the relation with this OID; in place of ``table``.
        starting_time, ending_time : datetime.datetime or numpy.datetime64, optional
            As in :meth:`plan`.
        **decoder_options
            Options of :class:`pgwire_codec.Decoder`.

        Returns
        -------
        LogChanges
            Batches of changes. They are in commit order inside each batch, but not across batches:
            a transaction that was streamed or prepared comes where its changes are in the log.
            ``(commit_lsn, seq)`` is the order.

        Raises
        ------
        DecodeError
            When the order of messages violates the protocol. For a value, when it is read.
        LogError
            When messages of the range were pruned, or the log is damaged.
        OptionError
            For an invalid option.
        TableError
            When no relation has a name.
        """
        options = DecoderOptions(**decoder_options)
        if table is not None and relation_oid is not None:
            raise OptionError("table and relation_oid exclude one another")
        relations = self._selected(table, until, relation_oid)
        times = time_range(starting_time, ending_time)
        plan = self._plan(after, until, relations, times, PARTITION_BYTES, options.on_error)
        return LogChanges(
            plan, relations, options, self.user_types, lambda: self.relations_at(plan.until)
        )

    def to_reader(
        self,
        table: str,
        after: LogPosition | int | None = None,
        until: LogPosition | int | None = None,
        *,
        starting_time: datetime | np.datetime64 | None = None,
        ending_time: datetime | np.datetime64 | None = None,
        **decoder_options: Any,
    ) -> pa.RecordBatchReader:
        """Return the changes of one table in a range as one stream of record batches.

        The log is read and decoded as the batches are.

        Parameters
        ----------
        table : str
            ``schema.table``, as in :meth:`read`.
        after, until, starting_time, ending_time
            As in :meth:`plan`.
        **decoder_options
            Options of :class:`pgwire_codec.Decoder`.

        Returns
        -------
        pyarrow.RecordBatchReader
            The columns of the table's newest version in the range, then the metadata columns of
            :meth:`pgwire_codec.ChangeBatch.to_arrow`. Columns of older versions are matched by
            name, and one that an older version lacks is null. A column whose type changed is the
            wider of two integers, floats or decimals, and otherwise a string, as is a column of a
            type that is unknown.

        Raises
        ------
        LogError, OptionError, TableError
            As from :meth:`read`; also when ``table`` is a pattern that several tables match.
        """
        changes = self.read(
            table,
            after,
            until,
            starting_time=starting_time,
            ending_time=ending_time,
            **decoder_options,
        )
        return changes.reader()

    def _selected(
        self,
        table: str | Sequence[str] | None,
        until: LogPosition | int | None,
        relation_oid: int | None = None,
    ) -> frozenset[int] | None:
        """Return the OIDs of the relations that are asked for, or None for all."""
        if table is None and relation_oid is None:
            return None
        at = None if until is None else min(commit_lsn_of(until, "until"), self.end.lsn)
        names = [table] if table is None or isinstance(table, str) else table
        scope = self.relations_at(at)
        return select_relations(scope, lambda: self.versions, names, relation_oid=relation_oid)

    def changes(self, **decoder_options: Any) -> Iterator[Changes]:
        """Decode the whole log in order, with one decoder.

        ``decoder_options`` are those of :class:`pgwire_codec.Decoder`.
        """
        return self._changes(self.decoder(**decoder_options))

    def _changes(self, decoder: Decoder | PartDecoder) -> Iterator[Changes]:
        for segment in self.segments:
            batches, starts = self._batches(segment, 0), segment.session_starts
            for changes, _ in decode_batches(decoder, batches, segment.name, starts):
                yield changes

    def decoder(self, **decoder_options: Any) -> Decoder | PartDecoder:
        """Return a decoder for messages from the log's beginning on."""
        options = with_types(DecoderOptions(**decoder_options), self.user_types)
        decoder = Decoder(options=options)
        if not self.begin.ordinal:
            return decoder
        carry = self.segment(0).header.before.carry.with_scope(self.scope_before(0).copy())
        carry.delivered_lsn = self.begin.lsn  # transactions that are not whole count as delivered
        return decoder.for_part(PartPlan(carry, {}))

    def messages(self, first_ordinal: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the messages as they were captured, in order.

        Parameters
        ----------
        first_ordinal : int, optional
            Ordinal of the first message, by default that of the log.

        Yields
        ------
        pyarrow.RecordBatch
            ``ordinal`` int64, ``lsn`` int64 (the bits of the unsigned LSN), ``time``
            timestamp[us, UTC], ``data`` binary.
        """
        if not self._names:
            return iter(())
        begin = first_ordinal_of(self._names[0])
        first = begin if first_ordinal is None else first_ordinal
        if first < begin:
            raise LogError(
                f"cannot read messages from ordinal {first} on: {self._store.name} was pruned up "
                f"to ordinal {begin}"
            )
        return self._messages(first)

    def _messages(self, first: int) -> Iterator[pa.RecordBatch]:
        number = self.number_of(first)
        while number < len(self):
            try:
                for records in self._batches(self.segment(number), first):
                    begin = records.column("ordinal")[0].as_py()
                    skipped = max(first - begin, 0)
                    if skipped < len(records):
                        yield records.slice(skipped)
                        first = begin + len(records)
                number += 1
            except MissingFileError:
                if not self._was_compacted():
                    raise
                number = self.number_of(first)

    def _batches(self, segment: Segment, first_ordinal: int) -> Iterator[pa.RecordBatch]:
        """Read the batches of a segment's parts that do not end before an ordinal."""
        extents = [part.extent for part in segment.parts if part.end_ordinal > first_ordinal]
        return read_extents(self._store, segment.name, extents, segment.header.encoding)


def _open(uri: str, filesystem: FileSystem | None) -> Log:
    return Log(uri, filesystem=filesystem)

"""Tables of a mirror, beside the log that they are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final

import numpy as np

from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake.lakehouse import ICEBERG, STATUS_NAME, Lake, parse_target
from pgwire_codec.lake.status import GONE, TableStatus
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import parse_qualified_name
from pgwire_codec.report.findings import LakeFindings, LakeTable, LetterCount

if TYPE_CHECKING:
    from pgwire_codec.lake.table_files import DataFile

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class LakeReader:
    """Tables of a mirror, and the changes of the log that they lack.

    Parameters
    ----------
    target : str
        As for ``pgwire-codec mirror --to``, without Iceberg.
    end_lsn : int
        Commit LSN of the last transaction in the log.

    Raises
    ------
    OptionError
        If the target is in a catalog of Iceberg.
    TableError
        If the target has no tables of a mirror.
    """

    def __init__(self, target: str, end_lsn: int) -> None:
        kind, self._location = parse_target(target)
        if kind == ICEBERG:
            raise OptionError(
                f"unsupported lake {target!r}: the tables are in a catalog of Spark",
                hint=f"Read the state of the tables with Spark, from {self._location}."
                f"{STATUS_NAME}.status.",
            )
        self._lake = Lake.parse(target)
        self._tables = self._lake.status().read()
        if not self._tables:
            raise TableError(
                f"{target} has no tables of a mirror",
                hint="Use the target of the mirror: the option --to of pgwire-codec mirror.",
            )
        self._end_lsn = end_lsn
        # A renamed table has the relation that the table of the new name has, too.
        self._lsns = {
            each.relation_oid: each.complete_lsn or 0
            for each in self._tables.values()
            if each.state != GONE
        }
        self._missing: Counter[int] = Counter()
        self._since: dict[int, int] = {}

    def add(self, batches: Iterable[ChangeBatch]) -> None:
        """Count the changes of batches, the next ones of the log, that the tables lack."""
        for batch in batches:
            oid = batch.relation.oid
            if oid not in self._lsns:
                continue
            lacks = (batch.commit_lsn > self._lsns[oid]) & (batch.commit_lsn <= self._end_lsn)
            count = int(np.count_nonzero(lacks))
            if count:
                self._missing[oid] += count
                self._since.setdefault(oid, int(batch.commit_time[lacks].min().astype(np.int64)))

    def findings(self) -> LakeFindings:
        """Return the tables, by name, and their dead letters."""
        tables = [self._table(self._tables[name]) for name in sorted(self._tables)]
        return LakeFindings(
            self._location.rstrip("/").rpartition("/")[2],
            self._lake.format,
            tuple(tables),
            tuple(self._letters()),
        )

    def _table(self, status: TableStatus) -> LakeTable:
        oid = status.relation_oid
        files = self._files(status.table)
        rows = [file.rows for file in files if file.rows is not None]
        deleted = sum(file.deleted for file in files)
        return LakeTable(
            table=status.table,
            state=status.state,
            commit_lsn=status.commit_lsn,
            commit_time=_microseconds(status.commit_time),
            missing=self._missing[oid] if oid in self._lsns and status.state != GONE else None,
            missing_since=self._since.get(oid),
            files=len(files),
            bytes=sum(file.size for file in files),
            rows=sum(rows) - deleted if len(rows) == len(files) else None,
            deleted=deleted,
            incomplete=status.incomplete,
            error=status.error,
            hint=status.hint,
        )

    def _files(self, table: str) -> tuple[DataFile, ...]:
        names = parse_qualified_name(table)
        assert names is not None, "the mirror has written the name"
        target = self._lake.open(Relation(None, 0, *names, "d", ()))
        return () if target.schema is None else target.files.files

    def _letters(self) -> Iterator[LetterCount]:
        rows = self._lake.dead_letters().read().select(["table", "code"]).to_pylist()
        counts = Counter((row["table"], row["code"]) for row in rows)
        for (table, code), count in sorted(counts.items(), key=lambda each: (-each[1], str(each))):
            yield LetterCount(table, code, count)


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else (time - _EPOCH) // timedelta(microseconds=1)

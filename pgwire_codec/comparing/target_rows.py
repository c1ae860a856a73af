"""Rows of a table of the lake, which tasks read from its data files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from pgwire_codec.lake.row_columns import DELETED
from pgwire_codec.lake.table_files import TableFiles

#: Rows of a batch: what is computed from them fits a processor's cache.
_BATCH_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Rows of some files of a table. Picklable.

    Attributes
    ----------
    files : TableFiles
    schema : pyarrow.Schema
        Columns to read, at least one.
    keeps_deleted : bool
        Whether one of them is true in rows that were deleted.
    """

    #: Sign of the number of these rows in differences.
    sign: ClassVar[int] = -1

    files: TableFiles
    schema: pa.Schema
    keeps_deleted: bool

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.size for file in self.files.files)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were not deleted."""
        for file in self.files.files:
            for rows in self.files.batches(file, self.schema):
                if self.keeps_deleted:
                    rows = rows.filter(pc.invert(rows.column(DELETED).fill_null(False)))
                for begin in range(0, len(rows), _BATCH_ROWS):
                    yield rows.slice(begin, _BATCH_ROWS)

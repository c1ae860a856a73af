"""TableState: facts about a table of the lake, from its own commits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa

from pgwire_codec.errors import TableError
from pgwire_codec.lake.position import Position
from pgwire_codec.lake.tables.target import Target
from pgwire_codec.log import Log


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Identity of a log: the tables of a lake have the changes of one."""

    log_id: str
    system_identifier: str
    database: str
    slot: str

    @classmethod
    def from_log(cls, log: Log) -> LogIdentity:
        """Return the identity of a log."""
        source = log.source
        return cls(log.manifest.log_id, source.system_identifier, source.database, source.slot)

    def __str__(self) -> str:
        return (
            f"the log {self.log_id} of slot {self.slot}, database {self.database}, system "
            f"identifier {self.system_identifier}"
        )


@dataclass(frozen=True, slots=True)
class TableRecord:
    """Facts that a mirror records in a property of a table, beside its position."""

    log: LogIdentity | None = None
    #: ``COLUMN=MASK``, with which its rows were written; None if that is not known.
    masks: tuple[str, ...] | None = None
    #: Columns that the mirror added to its rows; None if they are not known.
    row_columns: tuple[str, ...] | None = None
    #: Commit LSN since which a column is there that is null in earlier rows.
    incomplete: dict[str, int] = field(default_factory=dict)
    columns_lsn: int = 0  # commit LSN of the version of the relation whose columns the table has
    others: tuple[str, ...] = ()  # commits of other programs that changed rows, oldest first

    def to_text(self) -> str:
        """Return it as JSON."""
        return msgspec.json.encode(self, order="sorted").decode()

    @classmethod
    def from_text(cls, name: str, text: str | None) -> TableRecord:
        """Return the record of a table. Raises ``TableError`` for a text of another form."""
        if text is None:
            return cls()
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise TableError(
                f"the property of {name} with the facts of its mirror is invalid: {error}",
                hint="Another program or version has written it. Remove the table, and resume it.",
            ) from error


@dataclass(frozen=True, slots=True)
class TableState:
    """State of a table, from its newest commit."""

    schema: pa.Schema | None  # None if the table does not exist
    position: Position
    version: int | None
    record: TableRecord  # with the commits of others since its own last one
    is_empty: bool  # True if it certainly has no rows

    @classmethod
    def from_target(cls, target: Target) -> TableState:
        """Return the state of a table that was just opened, refreshed or committed to."""
        record = TableRecord.from_text(target.name, target.record)
        schema, position = target.schema, target.position
        is_empty = schema is None or target.files.is_empty
        others = tuple(target.others)
        if position.commit_lsn is None and not is_empty:
            others = others or ("rows from before the mirror",)
        record = replace(record, others=(*record.others, *others)) if others else record
        return cls(schema, position, target.version, record, is_empty)

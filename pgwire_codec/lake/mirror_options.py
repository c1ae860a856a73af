"""Options of a mirror, and what its parts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from pgwire_codec.errors import OptionError
from pgwire_codec.format import parse_duration
from pgwire_codec.lake.dead_letters import DeadLetters
from pgwire_codec.lake.evolution import TablePolicies
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.masks import Masks
from pgwire_codec.lake.row_columns import RowColumns
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.lake.runners.runner import Runner
from pgwire_codec.lake.status import TableStatus
from pgwire_codec.options import DecoderOptions

#: Seconds between the beginnings of two turns, for a lake on a disk and in an object store.
DISK_SECONDS: Final = 1.0
STORE_SECONDS: Final = 10.0

#: Seconds for which the recorded LSN waits for a table that fails: a week.
HOLD_SECONDS: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class MirroredBatch:
    """Result of a turn."""

    batch: int  # number of the turn
    #: Commit LSN up to which all tables are complete that do not fail.
    until: int
    changed: tuple[TableStatus, ...]  # tables with changes, or with an error
    all_tables: Callable[[], tuple[TableStatus, ...]] = field(repr=False)

    @property
    def tables(self) -> tuple[TableStatus, ...]:
        """All tables."""
        return self.all_tables()


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """Options of a mirror, which :func:`pgwire_codec.spark.mirror` describes.

    Raises ``OptionError`` for an invalid option.
    """

    once: bool = False
    every: str | float | None = None
    policies: TablePolicies = field(default_factory=TablePolicies)
    masks: Masks = field(default_factory=Masks)
    row_columns: RowColumns = field(default_factory=RowColumns)
    dead_letters: bool = False
    types: str = "native"
    numeric: str = "string"
    unrepresentable: str = "raise"
    on_error: str = "raise"
    max_bytes: int | None = None
    #: True if tables of another log are replaced by those of this one.
    replace: bool = False
    #: Time for which the recorded LSN waits for a table that fails, as text or in seconds.
    hold: str | float = HOLD_SECONDS
    report: Callable[[MirroredBatch], None] | None = None

    def __post_init__(self) -> None:
        if self.dead_letters and self.on_error == "skip":
            raise OptionError(
                "`dead_letters=True` and `on_error='skip'` exclude one another",
                hint="With dead letters, changes that do not decode are left out, too.",
            )
        if self.once and self.every is not None:
            raise OptionError("`once` and `every` exclude one another")
        if self.on_error not in ("raise", "skip"):
            raise OptionError(f"on_error must be one of raise, skip, not {self.on_error!r}")
        _ = self.decoder, self.seconds(is_remote=False), self.hold_seconds

    @property
    def decoder(self) -> DecoderOptions:
        """Options of the decoder."""
        return DecoderOptions(
            types=self.types,
            numeric=self.numeric,
            before="key",
            unrepresentable=self.unrepresentable,
            on_error="skip" if self.dead_letters else self.on_error,
            arrow_types=ROW_TYPES,
        )

    def seconds(self, *, is_remote: bool) -> float:
        """Return the shortest time between the beginnings of two turns.

        Each turn with changes of a table writes files: by default, a store gets fewer.
        """
        if self.every is None:
            return STORE_SECONDS if is_remote else DISK_SECONDS
        return parse_duration(self.every, "every")

    @property
    def hold_seconds(self) -> float:
        """Seconds for which the recorded LSN waits for a table that fails."""
        return parse_duration(self.hold, "hold")

    def for_lake(self, lake: Lake) -> MirrorOptions:
        """Return the options with which a lake can be written."""
        if not lake.has_histories_only:
            return self
        return replace(self, row_columns=replace(self.row_columns, is_history=True))


@dataclass(frozen=True, slots=True)
class MirrorContext:
    """Parts of a mirror that its turns share; ``runner`` runs the tasks."""

    lake: Lake
    options: MirrorOptions
    letters: DeadLetters
    runner: Runner

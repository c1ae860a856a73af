"""Masks: columns that a mirror leaves out, hashes or replaces before it writes anything."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Final

import pyarrow as pa

from pgwire_codec.changes.hints import COPY_AGAIN
from pgwire_codec.changes.identity import column_names
from pgwire_codec.errors import OptionError, TableError
from pgwire_codec.lake.row_types import sql_name
from pgwire_codec.lake.table_names import TableNames
from pgwire_codec.log import Log
from pgwire_codec.protocol.messages import Relation
from pgwire_codec.protocol.quoting import identifier
from pgwire_codec.transactions.carry import RelationVersion

KEEP: Final = "keep"
DROP: Final = "drop"
HASH: Final = "hash"

CONSTANT: Final = "constant:"  # the mask by a constant is ``constant:TEXT``

_KEY_BYTES: Final = 16

#: ``COLUMN=MASK``. Names of columns can have any characters, and so can constants.
_RECORDED: Final = re.compile(r"(.*?)=(?:drop|hash:[0-9a-f]{8}|constant:.*)", re.DOTALL)

#: Text in quotes. An apostrophe follows a letter.
QUOTED: Final = re.compile(r"""(?<!\w)b?(['"])(?:\\.|(?!\1).)*\1""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Masks:
    """Masks of columns."""

    #: Names ``schema.table.column`` or patterns of them, and masks: the first that matches counts.
    patterns: tuple[tuple[str, str], ...] = ()
    key: bytes | None = field(default=None, repr=False)  # of the hashes

    @classmethod
    def parse(cls, masks: Mapping[str, str], key: bytes | None) -> Masks:
        """Return masks by name or pattern. Raises ``OptionError`` for an invalid one."""
        if not isinstance(masks, Mapping):
            raise TypeError(f"masks must be a mapping, not {type(masks).__name__}")
        if key is not None and not isinstance(key, bytes):
            raise TypeError(f"the key of masks must be bytes, not {type(key).__name__}")
        for name, mask in masks.items():
            if mask not in (KEEP, DROP, HASH) and not str(mask).startswith(CONSTANT):
                raise OptionError(
                    f"the mask of {name} must be {DROP}, {HASH}, {CONSTANT}TEXT or {KEEP}, not "
                    f"{mask!r}"
                )
        if HASH in masks.values() and key is None:
            raise OptionError(f"the mask {HASH} needs a key")
        if key is not None and len(key) < _KEY_BYTES:
            raise OptionError(
                f"the key of masks must have at least {_KEY_BYTES} bytes, not {len(key)}",
                hint="Make one with: openssl rand -hex 32",
            )
        return cls(tuple(masks.items()), key)

    def check_names(self, log: Log) -> None:
        """Raise ``OptionError`` for a name or pattern that no column of a log has ever had."""
        tables: dict[int, tuple[set[str], set[str]]] = {}
        for version in log.versions:
            names, columns = tables.setdefault(version.relation.oid, (set(), set()))
            names.add(version.qualified_name)
            columns.update(map(identifier, column_names(version.relation)))
        known = [".".join(each) for names in tables.values() for each in product(*names)]
        for pattern, _ in self.patterns:
            if not any(map(TableNames.parse([pattern]).match, known)):
                raise OptionError(
                    f"the mask {pattern} matches no column of {log.uri}",
                    hint="A mask is for schema.table.column, or for a pattern of such names.",
                )

    def of(self, table: str, columns: Iterable[str]) -> dict[str, str]:
        """Return the masks of a table's columns, by column."""
        if not self.patterns:
            return {}
        parsed = [(TableNames.parse([pattern]), mask) for pattern, mask in self.patterns]
        found = {}
        for column in columns:
            name = f"{table}.{identifier(column)}"
            masks = (mask for names, mask in parsed if names.match(name))
            if (mask := next(masks, None)) is not None:
                found[column] = mask
        return found

    def recorded(self, table: str, relation: Relation) -> tuple[str, ...]:
        """Return the masks of a table's columns for the status: ``COLUMN=MASK``.

        A hash has a mark of the key.
        """
        mark = hmac.digest(self.key, b"pgwire_codec", "sha256").hex()[:8] if self.key else ""
        return tuple(
            f"{name}={mask}:{mark}" if mask == HASH else f"{name}={mask}"
            for name, mask in self.of(table, column_names(relation)).items()
            if mask != KEEP
        )

    def check_versions(self, table: str, versions: Sequence[Relation]) -> None:
        """Raise ``TableError`` if values of a masked column may be in one without a mask.

        That is so if the table had another name before, or the column may have had.
        """
        named = [(RelationVersion(each).qualified_name, each) for each in versions]
        for (before, old), (name, new) in pairwise([*named, (table, versions[-1])]):
            held, wanted = set(column_names(old)), set(column_names(new))
            masked = {column for column, mask in self.of(before, held).items() if mask != KEEP}
            may_be = masked | (wanted - held if masked - wanted else set())
            clear = (wanted & may_be) - set(self.of(name, wanted))
            if clear:
                raise TableError(
                    f"column {_listed(clear)} of {name} has no mask, and may have the values of "
                    f"{_listed(masked)} of {before}",
                    hint=f"Set a mask for it, or {KEEP}, and resume the table.",
                )

    def check_recorded(
        self, table: str, recorded: Iterable[str] | None, before: Relation, now: Relation
    ) -> None:
        """Raise ``TableError`` if rows of a target are known to have other masks.

        ``before`` is the version of its last rows, and ``now`` of the next ones.
        """
        if recorded is None:
            return
        common = set(column_names(before)) & set(column_names(now))
        old, new = (
            {each for each in masks if masked_column(each) in common}
            for masks in (recorded, self.recorded(table, now))
        )
        if old != new:
            raise TableError(
                f"{table} was written with the masks {_listed(old) or '(none)'}, and not with "
                f"{_listed(new) or '(none)'}",
                hint=f"{COPY_AGAIN} Or remove it from the target before you resume it.",
            )

    def check_columns(
        self, table: str, columns: Mapping[str, pa.DataType], keys: Sequence[str]
    ) -> dict[str, str]:
        """Return the masks of a table's columns, by column, without :data:`KEEP`.

        Raises ``TableError`` for a mask that a column cannot have, and if no column is left.
        """
        masks = {name: mask for name, mask in self.of(table, columns).items() if mask != KEEP}
        if masks and all(masks.get(name) == DROP for name in columns):
            raise TableError(f"all columns of {table} have the mask {DROP}")
        for name in keys:
            if masks.get(name, HASH) != HASH:
                raise TableError(
                    f"column {name} of {table} identifies rows, and cannot have the mask "
                    f"{masks[name]}",
                    hint=f"Use {HASH}.",
                )
        for name, mask in masks.items():
            if mask == HASH:
                _check_hashed(name, columns[name])
            elif mask != DROP:
                _check_constant(name, columns[name], mask)
        return masks


def masked_column(recorded: str) -> str:
    """Return the column of a mask as :meth:`Masks.recorded` returns it."""
    match = _RECORDED.fullmatch(recorded)
    assert match is not None, recorded
    return match[1]


def without_values(text: str) -> str:
    """Return an error's text without the values in it, which are in quotes."""
    return QUOTED.sub("'…'", text)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _check_hashed(name: str, kind: pa.DataType) -> None:
    is_exact = (
        pa.types.is_string, pa.types.is_binary, pa.types.is_integer, pa.types.is_date,
        pa.types.is_decimal,
    )  # fmt: skip
    if not any(check(kind) for check in is_exact):
        raise TableError(
            f"column {name} is {sql_name(kind)}, which has no single text to hash",
            hint=f"Use the mask {DROP} or {CONSTANT}TEXT.",
        )


def _check_constant(name: str, kind: pa.DataType, mask: str) -> None:
    try:
        constant(mask, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"column {name} is {sql_name(kind)}, which cannot have the mask {mask}: {error}"
        ) from None


def constant(mask: str, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a mask ``constant:TEXT``."""
    return pa.scalar(mask.removeprefix(CONSTANT), pa.string()).cast(kind)


def apply_masks(
    columns: Mapping[str, pa.Array], masks: Mapping[str, str], key: bytes
) -> dict[str, pa.Array]:
    """Return columns with their masks, without those that are left out."""
    masked = ((name, _masked(each, masks.get(name), key)) for name, each in columns.items())
    return {name: column for name, column in masked if column is not None}


def _masked(column: pa.Array, mask: str | None, key: bytes) -> pa.Array | None:
    """Return a column with its mask; None if it is left out."""
    if mask is None:
        return column
    if mask == DROP:
        return None
    if mask != HASH:
        return pa.repeat(constant(mask, column.type), len(column))
    is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    coded = (column if is_bytes else column.cast(pa.string())).dictionary_encode()
    values = coded.dictionary.cast(pa.binary()).to_pylist()
    hashes = pa.array([hmac.digest(key, each, "sha256").hex() for each in values], pa.string())
    return hashes.take(coded.indices)

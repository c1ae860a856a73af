"""ChangeForm: numbered changes in Spark's tasks, in the types of a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pgwire_codec.changes.table_schema import cast_array
from pgwire_codec.lake.change_columns import ChangeColumns

#: Types of the metadata that a merge needs.
_METADATA: Final = {
    "_op": pa.string(),
    "_commit_lsn": pa.int64(),
    "_seq": pa.int64(),
    "_unchanged": pa.list_(pa.field("element", pa.string())),
}


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """Columns of numbered changes. Picklable.

    Attributes
    ----------
    columns : ChangeColumns
    schema : pyarrow.Schema
        The table's columns, in the types of the target.
    """

    columns: ChangeColumns
    schema: pa.Schema

    def changes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return changes in these types, with the columns that they have of all."""
        present = set(batch.schema.names)
        kinds = {f"c{number}": column.type for number, column in enumerate(self.schema)}
        wanted = {name: kind for name, kind in (kinds | _METADATA).items() if name in present}
        result = {name: cast_array(batch.column(name), kind) for name, kind in wanted.items()}
        if "_before" in present:
            before = batch.column("_before")
            # Fields of columns that were left out of the changes have other names.
            names = [member.name for member in before.type if member.name in kinds]
            members = [cast_array(before.field(name), kinds[name]) for name in names]
            if names:
                result["_before"] = pa.StructArray.from_arrays(
                    members, names=names, mask=before.is_null()
                )
        return pa.RecordBatch.from_pydict(result)

"""BatchRecord: what a commit of delta-rs records of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgwire_codec.protocol.lsn import format_lsn
from pgwire_codec.spark.sinks.delta_table import deltalake

if TYPE_CHECKING:
    from deltalake import CommitProperties


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """Record of a batch in a commit.

    Attributes
    ----------
    app_id : str
        Name of the stream of changes, under which the commit has the LSN. It has the relation
        under ``{app_id}/relation``.
    commit_lsn : int
        Commit LSN of the last transaction.
    relation : int or None
        OID of the relation, if that is known.
    """

    app_id: str
    commit_lsn: int
    relation: int | None

    @property
    def properties(self) -> CommitProperties:
        """Properties of the commit."""
        delta = deltalake()
        applied = [delta.Transaction(self.app_id, self.commit_lsn)]
        if self.relation is not None:
            applied.append(delta.Transaction(f"{self.app_id}/relation", self.relation))
        properties: CommitProperties = delta.CommitProperties(
            custom_metadata={"pgwire_codec.commit_lsn": format_lsn(self.commit_lsn)},
            app_transactions=applied,
        )
        return properties

"""Decoding of RDDs of messages, with ``rdd.mapPartitions``, to Python dicts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pgwire_codec._impl import Decoder
from pgwire_codec.changes.metadata import free_name
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.options import DecoderOptions
from pgwire_codec.parallel import summarise_pieces
from pgwire_codec.transactions.carry import Carry
from pgwire_codec.transactions.plan import PartPlan, Plan, plan

if TYPE_CHECKING:
    from pyspark import RDD

#: Number of messages decoded at a time.
_PIECE = 10_000


def plan_partitions(messages: RDD[bytes], *, on_error: str = "raise") -> Plan:
    """Summarise each partition of an RDD of messages, and fold the summaries.

    This is a job that reads the RDD once. Its partitions must be in order, and contain the stream
    from its first message on. ``plan.parts[i]`` is the argument of :func:`decode_partition` for
    partition ``i``.
    """

    def summarise(rows: Iterable[bytes]) -> Iterator[Any]:
        summariser = summarise_pieces(on_error=on_error)
        for piece in _pieces(rows):
            summariser.add(piece)
        yield summariser.summary()

    return plan(messages.mapPartitions(summarise).collect(), on_error=on_error)


def decode_partition(
    messages: Iterable[bytes],
    part: PartPlan | None = None,
    *,
    table: str | None = None,
    relation_oid: int | None = None,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Decode the messages of one partition into changes, one dict each.

    Parameters
    ----------
    messages : iterable of bytes-likes
        The partition, in order.
    part : PartPlan, optional
        From :func:`plan_partitions`. Without it the partition must be a stream of its own.
    table : str, optional
        Only changes made under this name, ``schema.table``. The relation with a name at the end of
        the RDD is not known in one partition. After a rename, or DROP TABLE and CREATE TABLE,
        choose by ``relation_oid``, or use :func:`decode_changes`.
    relation_oid : int, optional
        Only changes of the relation with this OID, under all its names. The Relations of
        ``plan.carry.scope`` have OIDs; ``plan.carry.scope.named("public.orders")`` returns the one
        that has a name at the end.
    **options
        Options of :class:`pgwire_codec.Decoder`; ``arrow_types`` is Spark's by default.

    Yields
    ------
    dict
        The table's columns and the metadata columns, as in
        :meth:`pgwire_codec.ChangeBatch.to_arrow`, with Python values; and ``_table``, which gets a
        further underscore if the table has such a column. A change is yielded at the end of its
        transaction or of the partition.

    Examples
    --------
    ::

        plan = plan_partitions(rdd)
        rdd.mapPartitionsWithIndex(lambda i, rows: decode_partition(rows, plan.parts[i]))
    """
    chosen = DecoderOptions(**{"arrow_types": ROW_TYPES} | options)
    decoder = Decoder(options=chosen).for_part(part or PartPlan(Carry(), {}))
    for piece in itertools.chain(_pieces(messages), [None]):
        last = piece is None
        for batch in decoder.decode([] if piece is None else piece, last=last):
            name = batch.version.qualified_name
            if table in (None, name) and relation_oid in (None, batch.relation.oid):
                columns = {column.name for column in batch.relation.columns}
                key = free_name("_table", columns)
                yield from ({**row, key: name} for row in batch.to_pylist())


def _pieces(rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    rows = iter(rows)
    while piece := list(itertools.islice(rows, _PIECE)):
        yield piece

"""Decoding of DataFrames of messages to DataFrames of one table's changes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from pgwire_codec._impl import Decoder
from pgwire_codec.changes.changes import Changes
from pgwire_codec.changes.identity import PossibleLeaves
from pgwire_codec.changes.table_schema import TableSchema, table_schema, to_record_batch
from pgwire_codec.errors import DecodeError, TableError
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.options import DecoderOptions
from pgwire_codec.spark.arrow_types import spark_schema
from pgwire_codec.spark.decode.survey import PART, SurveyedPart, check_ordinals, parts_of, survey
from pgwire_codec.spark.tasks import Batches, map_in_arrow
from pgwire_codec.transactions.plan import PartPlan, Plan, plan
from pgwire_codec.types import TypeRegistry, default_registry

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from typing_extensions import Unpack


class PlannedChanges:
    """Messages with a plan for decoding: :meth:`decode` returns the changes of one of their tables.

    Attributes
    ----------
    tables : list of str
        Tables of the messages, as ``schema.table``, by the names that they have at the end.
    carry : Carry
        State after the last message: ``carry.pending`` has the transactions left open.
    """

    def __init__(
        self, messages: DataFrame, parts: list[SurveyedPart], plan: Plan, options: DecoderOptions
    ) -> None:
        self._messages = messages
        self._parts = parts
        self._plan = plan
        self._options = options
        known = plan.carry.scope.relations.values()
        self.tables = sorted({version.qualified_name for _, version in known})
        self.carry = plan.carry

    def decode(
        self,
        table: str | None = None,
        *,
        relation_oid: int | None = None,
        with_relation_oid: bool = False,
    ) -> DataFrame:
        """Return the committed changes of a table; see :func:`decode_changes`.

        Raises ``TableError`` for a table that is not among :attr:`tables`.
        """
        from pgwire_codec.log.relations import select_relation  # tasks need nothing of logs

        versions = self._plan.versions
        schema = table_schema(
            select_relation(
                self.carry.scope, lambda: versions, table=table, relation_oid=relation_oid
            ),
            versions,
            self._options.type_options,
            self._options.registry or default_registry,
            before=self._options.before,
            invalid=self._options.unrepresentable != "raise",
            relation_oid=with_relation_oid,
            leaves=PossibleLeaves(versions),
        )
        planned = {
            part.first: (part_plan, part.count)
            for part, part_plan in zip(self._parts, self._plan.parts, strict=True)
        }
        in_parts, options = PART in self._messages.columns, self._options

        def run(batches: Batches) -> Batches:
            for part in parts_of(batches, in_parts=in_parts):
                yield from _decode_part(part, planned, schema, options)

        return map_in_arrow(self._messages, run, spark_schema(schema.arrow))


def decode_changes(
    messages: DataFrame,
    *,
    table: str | None = None,
    relation_oid: int | None = None,
    with_relation_oid: bool = False,
    **options: Unpack[PlanOptions],
) -> DataFrame:
    """Decode the committed changes of one table, on all executors, whatever the partitioning.

    Parameters
    ----------
    messages : DataFrame
        One row a message, of one replication slot from its first message on.
    table : str, optional
        ``schema.table``, as published: the relation that has this name at the end of the messages,
        with all its changes under earlier names. The server sends a new name with the relation's
        next change.
    relation_oid : int, optional
        OID of a relation, in place of ``table``. It is decoded under all its names.
    with_relation_oid : bool
        Whether rows have the metadata column ``_relation_oid``.
    **options
        ``ordinal``, ``data``, ``lsn`` and the decoder's options: see :func:`plan_changes`, which
        needs only one survey of the messages for several tables.

    Returns
    -------
    DataFrame
        The columns of the table's newest version, then ``_op``, ``_xid``, ``_lsn``,
        ``_commit_lsn``, ``_commit_time``, ``_seq``, ``_origin``, ``_unchanged``, ``_before`` and,
        unless ``unrepresentable="raise"``, ``_invalid``; see
        :meth:`pgwire_codec.ChangeBatch.to_arrow`. The last is ``_relation_oid``, if
        ``with_relation_oid`` is true. Rows are not ordered: ``(_commit_lsn, _seq)`` is the order.
        Columns of older versions of the table are matched by name. A column whose type changed is
        the wider of two integers, floats or decimals, and otherwise a string.

    Raises
    ------
    TableError
        When the relation is not among the messages, or ordinals are null or not unique.
    TypeError
        When a column has an unsupported type, or the DataFrame is a stream.
    DecodeError
        When the order of messages violates the protocol. A value that does not decode fails its
        task, with the ``DecodeError`` in Spark's message.
    """
    return plan_changes(messages, **options).decode(
        table, relation_oid=relation_oid, with_relation_oid=with_relation_oid
    )


class PlanOptions(TypedDict, total=False):
    """The options of :func:`plan_changes`."""

    ordinal: str
    data: str
    lsn: str | None
    types: str
    numeric: str
    before: str
    unrepresentable: str
    on_error: str
    registry: TypeRegistry | None


def plan_changes(
    messages: DataFrame,
    *,
    ordinal: str = "ordinal",
    data: str = "data",
    lsn: str | None = None,
    types: str = "native",
    numeric: str = "string",
    before: str = "key",
    unrepresentable: str = "raise",
    on_error: str = "raise",
    registry: TypeRegistry | None = None,
) -> PlannedChanges:
    """Survey the messages: a job that reads them once and summarises each partition.

    The driver folds the summaries to the Relations, the open transactions and their ends that each
    partition needs. Then every partition can be decoded by itself. Partitions that are not disjoint
    runs of ascending ordinals are first put in order by a shuffle, and surveyed again.

    Parameters
    ----------
    messages : DataFrame
        One row a message, of one replication slot from its first message on. The survey reads it,
        and so does each :meth:`PlannedChanges.decode`. Persist it if it is expensive, or does not
        have the same rows each time.
    ordinal : str
        Column that orders the messages: whole numbers, unique. LSNs do not order them.
    data : str
        Column of the messages, binary.
    lsn : str, optional
        Column of the messages' LSNs, for ``_lsn``.
    types, numeric, before, unrepresentable, on_error, registry
        As for :class:`pgwire_codec.Decoder`. Under ``on_error="skip"`` rejected messages are left
        out.
    """
    options = DecoderOptions(
        types=types,
        numeric=numeric,
        before=before,
        unrepresentable=unrepresentable,
        on_error=on_error,
        arrow_types=ROW_TYPES,
        # The driver's registry, which tasks do not have.
        registry=default_registry if registry is None else registry,
    )
    chosen, parts = _in_order(_choose(messages, ordinal, data, lsn), on_error)
    return PlannedChanges(chosen, parts, _plan(parts, on_error), options)


def _plan(parts: list[SurveyedPart], on_error: str) -> Plan:
    summaries = []
    for part in parts:
        if part.summary is None:
            raise TableError(
                f"the ordinals from {part.first} to {part.last} are not unique",
                hint="Every message needs an ordinal of its own.",
            )
        if isinstance(part.summary, DecodeError):
            index = part.summary.message_index or 0
            raise part.summary.at(
                index, f"message {index} from ordinal {part.first} on; {part.summary.context}"
            )
        summaries.append(part.summary)
    return plan(summaries, on_error=on_error)


def _choose(messages: DataFrame, ordinal: str, data: str, lsn: str | None) -> DataFrame:
    """Return the DataFrame of (ordinal, data[, lsn]); raise an error for invalid columns."""
    from pyspark.sql import DataFrame
    from pyspark.sql.types import BinaryType, IntegralType

    if not isinstance(messages, DataFrame):
        raise TypeError(f"messages must be a Spark DataFrame, not {type(messages).__name__}")
    if messages.isStreaming:
        raise TypeError(
            "messages is a streaming DataFrame, which decode_changes cannot survey: use it in "
            "foreachBatch"
        )
    wanted = {"ordinal": ordinal, "data": data} | ({} if lsn is None else {"lsn": lsn})
    for name in wanted.values():
        if name not in messages.columns:
            raise TableError(
                f"messages has no column {name!r}",
                hint=f"Its columns are {', '.join(messages.columns)}.",
            )
    columns = []
    for alias, name in wanted.items():
        column, kind = _column(name), messages.schema[name].dataType
        if alias == "data" and not isinstance(kind, BinaryType):
            raise TypeError(f"column {name!r} must be binary, not {kind.simpleString()}")
        if alias != "data":
            if not isinstance(kind, IntegralType):
                raise TypeError(
                    f"column {name!r} must be a whole number, not {kind.simpleString()}"
                )
            column = column.cast("long")
        columns.append(column.alias(alias))
    return messages.select(*columns)


def _column(name: str) -> Column:
    """Return the column with exactly this name, which Spark would parse without quotes."""
    from pyspark.sql import functions

    return functions.col("`" + name.replace("`", "``") + "`")


def _in_order(messages: DataFrame, on_error: str) -> tuple[DataFrame, list[SurveyedPart]]:
    """Return the messages in parts of ascending ordinals, and the survey of the parts."""
    from pyspark.sql import functions

    parts = survey(messages, in_parts=False, on_error=on_error)
    if _are_runs(parts):
        return messages, parts
    bounds = _bounds(parts)
    number = functions.lit(0)
    if bounds:
        above = functions.filter(
            functions.array(*map(functions.lit, bounds)),
            lambda bound: bound <= functions.col("ordinal"),
        )
        number = functions.size(above)
    ordered = (
        messages.withColumn(PART, number.cast("long"))
        .repartition(len(bounds) + 1, PART)
        .sortWithinPartitions(PART, "ordinal")
    )
    return ordered, survey(ordered, in_parts=True, on_error=on_error)


def _are_runs(parts: list[SurveyedPart]) -> bool:
    return all(part.is_sorted for part in parts) and all(
        before.last < after.first for before, after in itertools.pairwise(parts)
    )


def _bounds(parts: list[SurveyedPart]) -> list[int]:
    """Cut the ordinals into as many parts as there are now, about equally large."""
    sample = np.array([value for part in parts for value in part.sample], np.int64)
    weight = np.array([part.count / len(part.sample) for part in parts for _ in part.sample])
    order = np.argsort(sample, kind="stable")
    sample, reached = sample[order], np.cumsum(weight[order])
    wanted = np.arange(1, len(parts)) * (reached[-1] / len(parts))
    places = np.minimum(np.searchsorted(reached, wanted), len(sample) - 1)
    return sorted({int(sample[place]) for place in places})


def _decode_part(
    batches: Batches,
    planned: Mapping[int, tuple[PartPlan, int]],
    schema: TableSchema,
    options: DecoderOptions,
) -> Batches:
    """Decode a part. ``planned`` has plans and numbers of messages by the first ordinal."""
    head = next(batches)
    first = check_ordinals(head.column("ordinal"))[0].as_py()
    if first not in planned:
        raise _changed(first)
    plan_of_part, left = planned[first]
    decoder = Decoder(options=options).for_part(plan_of_part)
    for batch in itertools.chain([head], batches):
        left -= batch.num_rows
        lsn = batch.column("lsn") if "lsn" in batch.schema.names else None
        if lsn is not None and lsn.null_count:
            lsn = None
        yield from _records(decoder.decode(batch.column("data"), lsn), schema)
    if left:
        raise _changed(first)
    yield from _records(decoder.decode([], last=True), schema)


def _records(changes: Changes, schema: TableSchema) -> Batches:
    for batch in changes:
        if batch.version in schema.versions:
            yield to_record_batch(batch, schema)


def _changed(first: int) -> RuntimeError:
    return RuntimeError(
        f"the part that begins with ordinal {first} has changed since the messages were surveyed: "
        "the DataFrame has other rows or partitions each time that it is read. Persist it, or "
        "write it to files first"
    )

"""Interface of an implementation: the functions that everything else is built on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from pgwire_codec.arrow.layout import ArrowBuffers
from pgwire_codec.codec.message_array import Joins
from pgwire_codec.codec.runs import GroupedRows, Runs
from pgwire_codec.codec.tables import DecodedColumns, MessageTable, TupleTable
from pgwire_codec.codec.values import Decoded
from pgwire_codec.protocol.messages import LogicalMessage

if TYPE_CHECKING:
    import pyarrow as pa

Int64s = npt.NDArray[np.int64]


class Codec(Joins, Protocol):
    """Functions of an implementation; ``pgwire_codec.reference`` documents each."""

    decode_message: Callable[..., LogicalMessage]
    scan: Callable[..., MessageTable]
    runs: Callable[..., Runs]
    group_rows: Callable[..., GroupedRows]
    tuples: Callable[..., tuple[TupleTable, TupleTable]]
    decode_values: Callable[..., Decoded]
    decode_columns: Callable[..., DecodedColumns]
    transaction_columns: Callable[..., tuple[Int64s, Int64s, Int64s]]
    strings_at: Callable[..., ArrowBuffers]
    name_lists: Callable[..., ArrowBuffers]
    change_batch: Callable[..., pa.RecordBatch | None]
    record_batch: Callable[..., pa.RecordBatch]
    array_capsule: Callable[..., object]

    def __hash__(self) -> int: ...

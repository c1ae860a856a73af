"""Interface of an implementation: the functions that everything else is built on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pgwire_codec.codec.tables import Boundaries, DecodedColumns, MessageTable, TupleTable
from pgwire_codec.codec.values import Decoded
from pgwire_codec.protocol.messages import LogicalMessage


class Codec(Protocol):
    """Functions of an implementation; ``pgwire_codec.reference`` documents each."""

    decode_message: Callable[..., LogicalMessage]
    scan: Callable[..., MessageTable]
    boundaries: Callable[..., Boundaries]
    tuples: Callable[..., tuple[TupleTable, TupleTable]]
    decode_values: Callable[..., Decoded]
    decode_columns: Callable[..., DecodedColumns]

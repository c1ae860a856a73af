"""The functions that a decoder calls, under the names that every implementation gives them."""

from pgwire_codec._core.columns.c_data import array_capsule, record_batch
from pgwire_codec._core.columns.change_batch import change_batch
from pgwire_codec._core.columns.columns import decode_columns, tuples
from pgwire_codec._core.columns.metadata import name_lists, strings_at, transaction_columns
from pgwire_codec._core.kernels.values import decode_values
from pgwire_codec._core.messages.decode import decode_message
from pgwire_codec._core.wire.arrow_messages import arrow_messages
from pgwire_codec._core.wire.grouping import group_rows
from pgwire_codec._core.wire.join import join_messages, join_views
from pgwire_codec._core.wire.runs import runs
from pgwire_codec._core.wire.scan import scan

__all__ = [
    "array_capsule",
    "arrow_messages",
    "change_batch",
    "decode_columns",
    "decode_message",
    "decode_values",
    "group_rows",
    "join_messages",
    "join_views",
    "name_lists",
    "record_batch",
    "runs",
    "scan",
    "strings_at",
    "transaction_columns",
    "tuples",
]

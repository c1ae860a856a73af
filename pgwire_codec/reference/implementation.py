"""Functions that a decoder calls, under the names that both implementations use."""

from pgwire_codec.reference.c_data import array_capsule, record_batch
from pgwire_codec.reference.change_batch import change_batch
from pgwire_codec.reference.codec import decode_message
from pgwire_codec.reference.columns import decode_columns, tuples
from pgwire_codec.reference.grouping import group_rows
from pgwire_codec.reference.join import arrow_messages, join_messages, join_views
from pgwire_codec.reference.metadata import name_lists, strings_at, transaction_columns
from pgwire_codec.reference.runs import runs
from pgwire_codec.reference.scan import scan
from pgwire_codec.reference.values import decode_values

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

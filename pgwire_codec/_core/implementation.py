"""The functions that a decoder calls, under the names that every implementation gives them."""

from pgwire_codec._core.boundaries import boundaries
from pgwire_codec._core.columns import decode_columns
from pgwire_codec._core.messages import decode_message
from pgwire_codec._core.scan import scan
from pgwire_codec._core.tuples import tuples
from pgwire_codec._core.values import decode_values

__all__ = [
    "boundaries",
    "decode_columns",
    "decode_message",
    "decode_values",
    "scan",
    "tuples",
]

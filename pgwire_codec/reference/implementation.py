"""Functions that a decoder calls, under the names that both implementations use."""

from pgwire_codec.reference.codec import decode_message
from pgwire_codec.reference.columns import decode_columns, tuples
from pgwire_codec.reference.scan import boundaries, scan
from pgwire_codec.reference.values import decode_values

__all__ = [
    "boundaries",
    "decode_columns",
    "decode_message",
    "decode_values",
    "scan",
    "tuples",
]

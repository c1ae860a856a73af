"""Arrow types that Spark takes from a Python worker."""

from __future__ import annotations

from typing import Final

from pgwire_codec.types import NATIVE, ArrowTypes

#: Without unsigned integers, time, interval, views, and decimals of more than 38 digits: Spark's
#: ``ArrowUtils.fromArrowType`` has no type for them.
SPARK: Final = ArrowTypes(
    "Spark",
    NATIVE.formats
    | {
        "uint4": "l",
        "uint8": "l",
        "pg_lsn": "l",
        "uuid": "u",
        "time": "u",
        "interval": "u",
        "unknown": "u",
    },
    has_string_views=False,
    decimal_digits=38,
)

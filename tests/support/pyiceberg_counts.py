"""Answers queries for a number of rows, one a line, with PyIceberg.

Run by an interpreter that has it.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from functools import cache

from pyiceberg.expressions import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
    literals,
)
from pyiceberg.table import StaticTable

_OPERATORS = {
    "=": EqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}

_LITERALS = {
    "date": literals.DateLiteral,
    "timestamp": literals.TimestampLiteral,
    "binary": lambda text: literals.BinaryLiteral(bytes.fromhex(text)),
    "decimal": lambda text: literals.DecimalLiteral(Decimal(text)),
    "float": literals.FloatLiteral,  # infinity as a double would be beyond all floats
}

_table = cache(StaticTable.from_metadata)


def main() -> None:
    for line in sys.stdin:
        metadata, column, operator, kind, value = json.loads(line)
        if operator is None:
            condition = IsNull(column)
        else:
            literal = _LITERALS.get(kind, literals.literal)(value)
            condition = _OPERATORS[operator](column, literal)
        rows = _table(metadata).scan(row_filter=condition, selected_fields=(column,)).to_arrow()
        print(len(rows), flush=True)


if __name__ == "__main__":
    main()

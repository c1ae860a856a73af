"""Programs that read a Delta or Iceberg table with a filter, by which they skip files."""

from __future__ import annotations

import json
import math
import operator as operators
import subprocess
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import deltalake
import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT: Final = Path(__file__).resolve().parents[2]

#: Operators of filters.
OPERATORS: Final = {
    "=": operators.eq,
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}


#: Column, operator and value; None for rows without a value.
Filter: TypeAlias = "tuple[str, str, pa.Scalar | None]"


class _Reader:
    """Reader that answers a filter after the other."""

    def counts(self, path: Path | str, filters: Sequence[Filter]) -> list[int]:
        """Return the number of rows of each filter."""
        return [self.count(path, *each) for each in filters]

    def count(self, path: Path | str, column: str, operator: str, value: pa.Scalar | None) -> int:
        raise NotImplementedError


class Polars(_Reader):
    """``polars.scan_delta``."""

    name = "polars"

    def count(self, path: Path | str, column: str, operator: str, value: pa.Scalar | None) -> int:
        scanned, found = pl.scan_delta(str(path)), pl.col(column)
        if value is None:
            return scanned.filter(found.is_null()).collect().height
        literal = pl.lit(*polars_literal(value))
        return scanned.filter(OPERATORS[operator](found, literal)).collect().height


class DeltaRs(_Reader):
    """``deltalake.QueryBuilder``."""

    name = "delta-rs"

    def count(self, path: Path | str, column: str, operator: str, value: pa.Scalar | None) -> int:
        condition = "IS NULL" if value is None else f"{operator} {_sql(value)}"
        rows = _query(path, f"SELECT count(*) FROM t WHERE {column} {condition}")
        return int(rows.column(0)[0].as_py())


class _Process(_Reader):
    """Program in an environment of its own, which answers queries, one a line, with a number."""

    name: str

    def __init__(self) -> None:
        tool = [_ROOT / "tools/reader-environment", sys.executable, self.name]
        done = subprocess.run(tool, capture_output=True, text=True, check=True)
        python = _ROOT / done.stdout.splitlines()[-1]
        program = Path(__file__).parent / f"{self.name}_counts.py"
        self._process = subprocess.Popen(
            [python, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self, query: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(query), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"{self.name} ended with exit code {self._process.wait(60)}"
        return int(answer)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)


class DuckDb(_Process):
    """``delta_scan``, of a release with its Delta extension."""

    name = "duckdb"

    def count(self, path: Path | str, column: str, operator: str, value: pa.Scalar | None) -> int:
        condition = "IS NULL" if value is None else f"{operator} {_duckdb(value)}"
        return self.answer(f"SELECT count(*) FROM delta_scan('{path}') WHERE {column} {condition}")


class PyIceberg(_Process):
    """``StaticTable.scan``, of the newest version of a table in a folder."""

    name = "pyiceberg"

    def count(self, path: Path | str, column: str, operator: str, value: pa.Scalar | None) -> int:
        metadata = Path(path, "metadata")
        version = (metadata / "version-hint.text").read_text()
        file = str(metadata / f"v{version}.metadata.json")
        if value is None:
            return self.answer([file, column, None, None, None])
        if pa.types.is_floating(value.type) and math.isnan(value.as_py()):
            return 0  # PyIceberg refuses NaN, which PyArrow does not find
        return self.answer([file, column, operator, *_plain_value(value)])


class Spark:
    """A session's tables, by the folder of a Delta table, or by a name in a catalog."""

    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def counts(self, path: Path | str, filters: Sequence[Filter]) -> list[int]:
        delta = self._spark.read.format("delta")
        rows = delta.load(str(path)) if isinstance(path, Path) else self._spark.table(path)
        conditions = [_spark_condition(rows.schema, *each) for each in filters]
        # One query, because each costs more than to read a few rows.
        counted = [
            rows.where(condition).selectExpr(f"{number} AS number")
            for number, condition in enumerate(conditions)
        ]
        found = (
            reduce(lambda one, other: one.unionAll(other), counted)
            .groupBy("number")
            .count()
            .collect()
        )
        by_number = {row["number"]: row["count"] for row in found}
        return [by_number.get(number, 0) for number in range(len(filters))]


def _query(path: Path | str, query: str) -> pa.Table:
    table = deltalake.DeltaTable(path)
    return pa.table(deltalake.QueryBuilder().register("t", table).execute(query))


def _number(value: pa.Scalar) -> int:
    """Return the microseconds or the days of a time."""
    return int(value.cast(pa.int32() if pa.types.is_date32(value.type) else pa.int64()).as_py())


def polars_literal(value: pa.Scalar) -> tuple[Any, Any]:
    """Return a value and its type as arguments of ``polars.lit``."""
    kind = pl.from_arrow(pa.array([None], value.type)).dtype  # type: ignore[union-attr]
    return (_number(value) if pa.types.is_temporal(value.type) else value.as_py()), kind


def _sql(value: pa.Scalar) -> str:
    kind = value.type
    if pa.types.is_date32(kind):
        return f"arrow_cast(arrow_cast({_number(value)}, 'Int32'), 'Date32')"
    if pa.types.is_timestamp(kind):
        zone = f'Some("{kind.tz}")' if kind.tz else "None"
        return (
            f"arrow_cast(arrow_cast({_number(value)}, 'Int64'), 'Timestamp(Microsecond, {zone})')"
        )
    if pa.types.is_binary(kind):
        return f"X'{value.as_py().hex()}'"
    return _plain(value, {"double": "DOUBLE", "float": "REAL"})


def _duckdb(value: pa.Scalar) -> str:
    kind = value.type
    if pa.types.is_date32(kind):
        return f"DATE '1970-01-01' + {_number(value)}"
    if pa.types.is_timestamp(kind):
        return f"make_timestamp{'tz' if kind.tz else ''}({_number(value)}::BIGINT)"
    if pa.types.is_binary(kind):
        return f"from_hex('{value.as_py().hex()}')"
    return _plain(value, {"double": "DOUBLE", "float": "FLOAT"})


def _plain(value: pa.Scalar, floating: dict[str, str]) -> str:
    kind, found = value.type, value.as_py()
    if pa.types.is_decimal(kind):
        return f"CAST('{found}' AS DECIMAL({kind.precision}, {kind.scale}))"
    if pa.types.is_floating(kind):
        return f"CAST('{found!r}' AS {floating[str(kind)]})"
    if pa.types.is_string(kind):
        return "'" + found.replace("'", "''") + "'"
    return str(found)


def _plain_value(value: pa.Scalar) -> tuple[str, Any]:
    """Return the kind of a value, and the value as JSON has it."""
    kind = value.type
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return ("date" if pa.types.is_date32(kind) else "timestamp"), _number(value)
    if pa.types.is_binary(kind):
        return "binary", value.as_py().hex()
    if pa.types.is_decimal(kind):
        return "decimal", str(value.as_py())
    return str(kind), value.as_py()


def _spark_condition(schema: Any, column: str, operator: str, value: pa.Scalar | None) -> str:
    if value is None:
        return f"{column} IS NULL"
    return f"{column} {operator} {_spark_literal(value, schema[column].dataType.simpleString())}"


def _spark_literal(value: pa.Scalar, kind: str) -> str:
    """Return a value as a constant of Spark's SQL, of a type."""
    if pa.types.is_date32(value.type):
        return f"date_from_unix_date({_number(value)})"
    if pa.types.is_timestamp(value.type):
        return f"CAST(timestamp_micros({_number(value)}) AS {kind})"
    if pa.types.is_binary(value.type):
        return f"X'{value.as_py().hex()}'"
    return f"CAST('{value.as_py()}' AS {kind})"

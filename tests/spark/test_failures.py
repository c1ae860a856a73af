"""Errors in the text of Spark's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

STACK = "[STREAM_FAILED] Query [id = 1] terminated with exception: {}\n\tat org.apache.Spark(x:1)\n"


@pytest.mark.parametrize(
    ("text", "primary", "is_transient"),
    [
        (
            "An exception was raised\n pgwire_codec.errors.TableError: no t — hint: Do it.",
            "no t",
            False,
        ),
        (
            "pgwire_codec.errors.PgwireError: cannot write a.t: No space left on device — hint: x",
            "cannot write a.t: No space left on device",
            True,
        ),
        (
            "java.io.IOException: No space left on device",
            "cannot write a file: No space left on device",
            True,
        ),
        ("Disk quota exceeded (os error 122)", "cannot write a file: Disk quota exceeded", True),
        (
            "Python worker failed to connect back. SQLSTATE: XXKST",
            "a Python process of Spark did not start within 10 seconds",
            True,
        ),
        ("other", "[STREAM_FAILED] Query [id = 1] terminated with exception: other", False),
    ],
)
def test_failures(text: str, primary: str, is_transient: bool) -> None:
    from pgwire_codec.spark.failures import failure_of

    found = failure_of(STACK.format(text))
    assert (found.primary, found.is_transient) == (primary, is_transient)
    assert (found.hint is None) == (text == "other")


def test_the_cause_of_an_error_of_java() -> None:
    from pgwire_codec.spark.failures import cause_of

    text = "An error occurred while calling o1.getResult.\n: org.apache.X: failed\n\tat x.Y(x:1)\n"
    caused = f"{text}Caused by: a.B: first\n\tat x.Z(z:2)\nCaused by: a.C: too large\n\tat x.V(v:3)"
    assert cause_of(caused) == "a.C: too large"
    assert cause_of(f"{text}Caused by: a.P: Traceback (most recent call last):\n") != "a.P"
    assert cause_of(text) == "org.apache.X: failed"
    assert cause_of("no value\nCaused by: a.B: it") == "no value"
    assert cause_of(" \n") == "no reason given"


@pytest.mark.slow
def test_the_causes_of_errors_of_spark(spark: SparkSession) -> None:
    """They are in a later line of the texts."""
    from pgwire_codec.spark.failures import cause_of

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            try:
                raise KeyError("first")
            except KeyError:
                raise OverflowError("date value out of range") from None
            yield batch

    def cause(run: Callable[[], object]) -> str | None:
        try:
            run()
        except Exception as error:  # noqa: BLE001  (of whatever kind)
            return cause_of(str(error))
        return None

    rows = spark.range(1)
    mapped: Any = fail
    found = cause(lambda: rows.mapInArrow(mapped, rows.schema).collect())
    assert found == "OverflowError: date value out of range"
    found = cause(lambda: spark.sql("CREATE TABLE t ("))
    assert found is not None
    assert found.startswith("[PARSE_SYNTAX_ERROR] Syntax error at or near")
    found = cause(lambda: spark.sql("SELECT 1 / 0, raise_error('it failed')").collect())
    assert found is not None
    assert "it failed" in found or "Division by zero" in found

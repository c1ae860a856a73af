"""Errors in the text of Spark's."""

from __future__ import annotations

import pytest

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
    for other in (text, "no value\nCaused by: a.B: it", ""):
        assert cause_of(other) == other

"""Typical mistakes in calls of the public functions: each error names the accepted input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pgwire_codec as pgc

CASES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: pgc.Decoder(atomic="yes"), pgc.OptionError, "atomic must be True or False"),
    (
        lambda: pgc.Decoder(registry={}),
        pgc.OptionError,
        "must be a TypeRegistry, not dict",
    ),
    (lambda: pgc.Decoder(on_error=True), pgc.OptionError, "on_error must be"),
    (lambda: pgc.Decoder(before="all"), pgc.OptionError, "before must be one of"),
    (lambda: pgc.Decoder().decode(None), TypeError, "messages must be a sequence of bytes-likes"),
    (lambda: pgc.Decoder().decode_part([], None), TypeError, "part must be a PartPlan"),
    (lambda: pgc.plan([1]), TypeError, "summaries must be Summary objects, not int"),
    (lambda: pgc.fold(pgc.Carry(), None), TypeError, "not NoneType"),
    (lambda: pgc.summarise("x"), TypeError, "messages must be a sequence of bytes-likes"),
    (lambda: pgc.summarise([], on_error="no"), pgc.OptionError, "on_error must be"),
    (lambda: pgc.format_lsn("0/0"), TypeError, "integer"),
    (lambda: pgc.parse_lsn(5), TypeError, "LSN must be a str like 16/B374D848, not int"),
    (lambda: pgc.register_type("1", "mood", like="text"), pgc.OptionError, "an OID, an int"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[2])
def test_the_answer_says_what_was_wanted(
    case: tuple[Callable[[], Any], type[Exception], str],
) -> None:
    call, kind, text = case
    with pytest.raises(kind, match=text):
        call()


def test_numpy_integers_are_lsns() -> None:
    assert pgc.format_lsn(np.uint64(0x16B374D848)) == "16/B374D848"

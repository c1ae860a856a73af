"""Both implementations of encode_batch, and what tests ask of them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec.reference.encode import encode_batch as reference
from tests.support.build import begin, commit, decode, only

Encode = Callable[..., Any]

IS_COMPILED = importlib.util.find_spec("pgwire_codec._core.encode.batch") is not None
compiled: Encode = reference
if IS_COMPILED:
    compiled = importlib.import_module("pgwire_codec._core.encode.batch").encode_batch

needs_core = pytest.mark.skipif(not IS_COMPILED, reason="no compiled core is built")
each = pytest.mark.parametrize(
    "encode",
    [pytest.param(reference, id="reference"), pytest.param(compiled, id="core", marks=needs_core)],
)
each_form = pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])


def decoded(table: pgc.Relation, messages: Any, **options: Any) -> pgc.ChangeBatch:
    """What a decoder makes of messages that change a table."""
    return only(decode([begin(), table, *messages.to_pylist(), commit()], **options))


def same(table: pgc.Relation, columns: Any, **options: Any) -> list[bytes]:
    """The messages, or the error, that both implementations give."""
    found = []
    for encode in (reference, compiled):
        try:
            found.append(encode(table, columns, **options).to_pylist())
        except pgc.EncodeError as error:
            found.append(str(error))
    assert found[0] == found[1]
    return found[0]

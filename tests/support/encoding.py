"""encode_batch as tests call it."""

from __future__ import annotations

from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import reference
from tests.support.build import begin, column, commit, decode, only, relation
from tests.support.differential import outcome

each_form = pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])


def decoded(table: pgc.Relation, messages: Any, **options: Any) -> pgc.ChangeBatch:
    """Decode messages that change a table, between Begin and Commit."""
    return only(decode([begin(), table, *messages.to_pylist(), commit()], **options))


def written(kind: str, array: Any, **options: Any) -> tuple[bytes, bytes | None]:
    """Write an array of one value; return its kind in the message, and its form."""
    messages = reference.encode_batch(relation(1, column("c", kind)), [array], **options)
    (data,) = messages.to_pylist()
    new = pgc.decode_message(data).new
    return new.kinds, new.values[0]


def encoded(table: pgc.Relation, columns: Any, **options: Any) -> Any:
    """Messages that encode_batch returns, or the text of the error that it raises."""
    return outcome(reference.encode_batch, table, columns, **options)[1]

"""The shapes of input decode to what their names say."""

from __future__ import annotations

import shutil
from functools import cache
from itertools import islice

import pytest

import pgwire_codec as pgc
from benchmarks import shapes as bench_shapes
from benchmarks.limit import skip_columns
from benchmarks.shapes import Shape, shapes
from pgwire_codec.codec.message_array import to_message_arrays
from tests.support.implementations import Implementation

# Making the shapes takes a second, for which one process is enough.
pytestmark = pytest.mark.xdist_group("shapes")

CHANGES = 500
#: Names of the shapes that have a number of changes.
OF_CHANGES = [
    *(
        f"lineitem {form}, transactions of {rows}, 10,000 rows a call"
        for form in ("text", "binary")
        for rows in ("10,000", "8", "1")
    ),
    *(f"pgbench, {size} messages a call" for size in ("60,000", "6,000", "600")),
    "updates, one unchanged TOAST value",
    "updates, the same, NULL instead",
    "streamed, 20 transactions open, blocks of 50",
    *(f"{number} tables in one call" for number in ("100", "1,000", "10,000")),
]


@cache
def made() -> dict[str, Shape]:
    """Return every shape by its name."""
    return {each.name: each for each in shapes(CHANGES)}


def decoded(codec: Implementation, shape: Shape) -> tuple[int, int, int]:
    """Return the committed changes, the tables, and what is pending at the end."""
    decoder = codec.Decoder()
    for messages in shape.known:
        decoder.decode(messages)
    batches = [batch for messages in shape.calls for batch in decoder.decode(messages)]
    assert not any(batch.errors() for batch in batches[:4])
    return (
        sum(map(len, batches)),
        len({batch.relation.oid for batch in batches}),
        len(decoder.pending),
    )


def test_shapes_of_changes() -> None:
    assert [each.name for each in made().values() if each.unit == "change"] == OF_CHANGES


@pytest.mark.parametrize("name", OF_CHANGES)
def test_all_changes_of_a_shape_are_decoded(codec: Implementation, name: str) -> None:
    shape = made()[name]
    tables = next((number for number in (100, 1_000, 10_000) if f"{number:,} tables" in name), None)
    expected = 4 if name.startswith("pgbench") else min(tables or 1, CHANGES)
    assert decoded(codec, shape) == (CHANGES, expected, 0)
    assert shape.changes is not None
    assert len(shape.changes) == CHANGES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("known", "pending"),
    [
        ("nothing", 0),
        ("20,000 relations", 0),
        ("4,000 open streams", 4_000),
        ("4,000 prepared transactions", 4_000),
    ],
)
def test_a_tiny_call_finds_what_is_known(codec: Implementation, known: str, pending: int) -> None:
    shape = made()[f"one message a call, {known} known"]
    assert decoded(codec, shape) == (shape.count // 3, 1, pending)


def test_lists_are_the_same_messages(codec: Implementation) -> None:
    arrays, lists = (
        made()[f"messages as {each}"] for each in ("an Arrow array", "a list of bytes")
    )
    assert [each.to_pylist() for each in arrays.calls] == list(lists.calls)
    assert decoded(codec, lists) == decoded(codec, arrays) == (CHANGES, 1, 0)


def test_rolled_back_subtransactions_leave_nothing(codec: Implementation) -> None:
    [shape] = bench_shapes._subtransactions(2_000)
    assert shape.name == "2,000 subtransactions, rolled back"
    assert decoded(codec, shape) == (0, 0, 1)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_limit_skips_all_bytes() -> None:
    for shape in islice(made().values(), 3):
        (array,) = to_message_arrays(shape.changes, pgc.Decoder.codec)
        assert skip_columns(array.data, array.offsets) == array.offsets[-1] - array.offsets[0]

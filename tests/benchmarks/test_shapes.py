"""The shapes of input decode to what their names say, and the command measures and compares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest

import pgwire_codec as pgc
from pgwire_codec.bench import run as harness
from pgwire_codec.bench import shapes as bench_shapes
from pgwire_codec.bench.shapes import Shape, shapes
from tests.support.commands import run
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
compiled = pytest.mark.skipif(
    pgc.IMPL != "cython" or find_spec("pgwire_codec.bench._limit") is None,
    reason="compares the compiled core with the reference",
)


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


def check_command(folder: Path, *options: object) -> int:
    """Measure with these options, compare the results with themselves; return their number."""
    path = folder / "run.json"
    done = run("bench", *options, "--rounds", 2, "--json", path)
    assert done.exit_code == 0, done.output
    written = json.loads(path.read_text("utf-8"))
    assert written["machine"]["implementation"] in ("cython", "python")
    costs = {each["shape"]: each["cost"] for each in written["results"]}
    assert "lineitem text, transactions of 1, 10,000 rows a call" in costs
    assert all(cost["pgwire_codec"] > 0 for cost in costs.values())
    assert all(0 < cost["limit"] < cost["reference"] for cost in costs.values() if "limit" in cost)

    compared = run("bench", "--compare", path, path)
    assert compared.exit_code == 0
    assert compared.stdout.count("1.00") == len(costs)
    return len(costs)


@compiled
@pytest.mark.thorough
def test_command_measures_and_compares(tmp_path: Path) -> None:
    assert check_command(tmp_path, "--changes", 1_000) == len(list(shapes(1_000)))


@pytest.mark.slow
@compiled
def test_command_measures_and_compares_a_few_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shapes of both steps, of which the slow decoders get 100 changes."""

    def lineitem(count: int) -> Iterator[Shape]:
        return islice(bench_shapes._lineitem(count), 2, 3)

    monkeypatch.setattr(bench_shapes, "_MAKERS", (lineitem, bench_shapes._lists))
    monkeypatch.setattr(harness, "_FEW", 100)
    assert check_command(tmp_path, "--changes", 1_000) == 3


def test_comparison_of_another_file_is_a_wrong_usage(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}", "utf-8")
    done = run("bench", "--compare", str(path), str(path))
    assert done.exit_code == 2
    assert "is not a file that --json wrote" in done.output

"""A table of a mirror that is resumed begins with its last truncate, whatever was before it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import build
from tests.support.build import column
from tests.support.mirrors import ID, MirrorOf, Writer, relation

pytest.importorskip("deltalake")

PRICE = column("price", "numeric", typmod=(10 << 16) + 2 + 4)
OTHER = relation(2, ID)


def set_aside(made: MirrorOf, writer: Writer, *inside: Any) -> None:
    """Begin a mirror, and have its first table set aside by a transaction."""
    writer.commit(relation(1, ID, PRICE), build.insert(1, "1", "1.50"), build.insert(1, "2", "2"))
    writer.commit(OTHER, build.insert(2, "1"))
    writer.flush()
    made.run()
    writer.commit(*inside)
    writer.flush()
    made.run()
    assert made.status()["public.t1"]["state"] == "set aside"


def resumed(made: MirrorOf, **options: Any) -> dict[str, Any]:
    """Resume the first table, and return its status."""
    made.resume("public.t1")
    made.run(**options)
    status: dict[str, Any] = made.status()["public.t1"]
    return status


@pytest.mark.parametrize(
    ("inside", "copied", "rows"),
    [
        pytest.param(
            (build.insert(1, "3", "NaN"),),
            (relation(1, ID, PRICE), build.truncate(1), build.insert(1, "4", "4.00")),
            [(4, "4.00")],
            id="value that does not decode",
        ),
        pytest.param(
            (relation(1, ID, column("price")), build.insert(1, "3", "much")),
            (build.truncate(1), build.insert(1, "4", "more")),
            [(4, "more")],
            id="type that does not fit",
        ),
        pytest.param(
            (build.insert(1, "3", "NaN"),),
            (build.truncate(1),),
            [],
            id="no rows",
        ),
    ],
)
def test_what_could_not_be_applied(
    made: MirrorOf,
    writer: Writer,
    inside: tuple[Any, ...],
    copied: tuple[Any, ...],
    rows: list[tuple[int, str]],
) -> None:
    set_aside(made, writer, *inside)
    lsn = writer.commit(*copied)
    writer.commit(build.insert(2, "2"))
    writer.flush()
    status = resumed(made)
    assert (status["state"], status["error"], status["commit_lsn"]) == ("ok", None, lsn)
    assert [(row["id"], str(row["price"])) for row in made.rows("public.t1")] == rows
    assert status["evolutions"][-1] == f"replace all rows by those after 0/{lsn - 1:X}"
    assert made.rows("public.t2") == made.expected("public.t2")


def test_changes_after_the_last_of_two(made: MirrorOf, writer: Writer) -> None:
    """Also with another replica identity, and with a new column, later on."""
    set_aside(made, writer, build.insert(1, "3", "NaN"))
    writer.commit(build.truncate(1), build.insert(1, "5", "NaN"))
    writer.commit(build.truncate(1), build.insert(1, "6", "6.00"), build.insert(1, "7", "7.00"))
    writer.commit(build.update(1, build.row("6", "6.50")))
    by_price = relation(1, column("id", "int4"), column("price", "numeric", key=True,
                        typmod=(10 << 16) + 2 + 4), column("n", "int4"), identity="i")  # fmt: skip
    writer.commit(by_price, build.update(1, build.row("7", "7.00", "1")))
    writer.commit(build.delete(1, key=build.row(None, "6.50", None)))
    writer.flush()
    assert resumed(made)["state"] == "ok"
    [row] = made.rows("public.t1")
    assert (row["id"], str(row["price"]), row["n"]) == (7, "7.00", 1)


def test_frozen_columns(made: MirrorOf, writer: Writer) -> None:
    """The columns of the target stay; only rows are replaced."""
    set_aside(made, writer, build.insert(1, "3", "NaN"))
    writer.commit(
        relation(1, ID, PRICE, column("n", "int4")),
        build.truncate(1),
        build.insert(1, "4", "4.00", "5"),
    )
    writer.flush()
    assert resumed(made, on_schema_change="freeze")["state"] == "ok"
    [row] = made.rows("public.t1")
    assert {name: str(value) for name, value in row.items()} == {"id": "4", "price": "4.00"}


def test_a_truncate_before_the_error(made: MirrorOf, writer: Writer) -> None:
    """It does not help: the error comes again, and nothing of the transaction is applied."""
    set_aside(made, writer, build.truncate(1), build.insert(1, "3", "NaN"))
    assert resumed(made)["state"] == "set aside"
    assert [row["id"] for row in made.rows("public.t1")] == [1, 2]

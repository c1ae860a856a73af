"""Columns with masks: their values never reach the lake."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any

import pytest

from pgwire_codec.errors import OptionError
from tests.support import build
from tests.support.build import column
from tests.support.mirrors import ID, MirrorOf, Writer, in_order, relation

pytest.importorskip("deltalake")

KEY = b"0123456789abcdef"
MASKS = {"public.t1.email": "hash", "*.phone": "drop", "public.t?.name": "constant:-"}
TABLE = relation(1, ID, column("email"), column("phone"), column("name"), column("n", "int4"))


def hashed(value: Any) -> str | None:
    return None if value is None else hmac.new(KEY, str(value).encode(), "sha256").hexdigest()


def mirrored(made: MirrorOf, writer: Writer, *inside: Any, **options: Any) -> dict[str, Any]:
    """Mirror another transaction, and return the status of the first table."""
    if inside:
        writer.commit(*inside)
        writer.flush()
    made.run(**{"masks": MASKS, "mask_key": KEY, **options})
    status: dict[str, Any] = made.status()["public.t1"]
    return status


def masked(made: MirrorOf) -> list[dict[str, Any]]:
    """Rows of the log, with the masks."""
    rows = made.expected("public.t1")
    return in_order(
        [
            {"id": row["id"], "email": hashed(row["email"]), "name": "-", "n": row["n"]}
            for row in rows
        ]
    )


def files_with(folder: Path, text: str) -> list[Path]:
    files = (each for each in folder.rglob("*") if each.is_file())
    return [each for each in files if text.encode() in each.read_bytes()]


def test_rows_and_files(made: MirrorOf, writer: Writer) -> None:
    status = mirrored(
        made,
        writer,
        TABLE,
        build.insert(1, "1", "ada@example.org", "0123-SECRET", "Ada", "5"),
        build.insert(1, "2", "bob@example.org", "0456-SECRET", None, "6"),
        build.insert(1, "3", None, None, "Cy", "7"),
    )
    assert status["state"] == "ok"
    assert made.rows("public.t1") == masked(made)
    assert [each.partition(":")[0] for each in status["masks"]] == [
        "email=hash",
        "phone=drop",
        "name=constant",
    ]
    # The update leaves two values unsent, one of them with a mask.
    unsent = build.row("1", ..., ..., "Ada L", ...)
    status = mirrored(
        made,
        writer,
        build.update(1, unsent),
        build.update(1, build.row("9", "new@example.org", "1", "B", "8"),
                     key=build.row("2", None, None, None, None)),
        build.delete(1, key=build.row("3", None, None, None, None)),
        build.insert(1, "4", "ada@example.org", "0123-SECRET", "Eve", None),
    )  # fmt: skip
    assert status["state"] == "ok"
    assert made.rows("public.t1") == masked(made)
    assert len({row["email"] for row in made.rows("public.t1")}) == 2
    assert files_with(made.lake, hashed("ada@example.org") or "")
    assert files_with(made.lake, "ada@example.org") == files_with(made.lake, "SECRET") == []


@pytest.mark.parametrize("identity", ["d", "f"])
def test_a_key(made: MirrorOf, writer: Writer, identity: str) -> None:
    """Also of rows that are found by all their values."""
    full = {"identity": "f"} if identity == "f" else {}
    table = relation(1, ID, column("email"), **full)
    old = (lambda *values: {"old": build.row(*values)}) if full else (
        lambda *values: {"key": build.row(values[0], None)}
    )  # fmt: skip
    masks = {"public.t1.id": "hash", "public.t1.email": "drop" if full else "keep"}
    mirrored(made, writer, table, build.insert(1, "1", "a"), build.insert(1, "2", "b"), masks=masks)
    status = mirrored(
        made,
        writer,
        build.update(1, build.row("7", "c"), **old("1", "a")),
        build.delete(1, **old("2", "b")),
        build.insert(1, "2", "d"),
        masks=masks,
    )
    assert status["state"] == "ok"
    rows = made.expected("public.t1")
    assert len(rows) == 2
    assert made.rows("public.t1") == in_order(
        [{"id": hashed(row["id"])} | ({} if full else {"email": row["email"]}) for row in rows]
    )


@pytest.mark.parametrize(
    ("masks", "problem"),
    [
        ({"public.t1.id": "drop"}, "column id of public.t1 identifies rows"),
        ({"public.t1.id": "constant:1"}, "column id of public.t1 identifies rows"),
        ({"*": "drop"}, "all columns of public.t1 have the mask drop"),
        ({"public.t1.at": "hash"}, "column at is timestamp, which has no single text to hash"),
        ({"public.t1.at": "constant:now"}, "column at is timestamp, which cannot have the mask"),
    ],
)
def test_a_mask_that_a_column_cannot_have(
    made: MirrorOf, writer: Writer, masks: dict[str, str], problem: str
) -> None:
    table = relation(1, ID, column("at", "timestamptz"))
    row = build.insert(1, "1", "2024-01-01 00:00:00+00")
    status = mirrored(made, writer, table, row, masks=masks)
    assert status["state"] == "set aside"
    assert status["error"].startswith(problem)


def test_other_masks(made: MirrorOf, writer: Writer) -> None:
    """They set a table aside, before a clear value is written."""
    row = build.insert(1, "1", "ada@example.org", "1", "Ada", "5")
    mirrored(made, writer, TABLE, row)
    status = mirrored(
        made, writer, build.insert(1, "2", "bob@example.org", "2", "Bob", "6"),
        masks=MASKS | {"public.t1.email": "keep"},
    )  # fmt: skip
    assert status["state"] == "set aside"
    assert status["error"].startswith("public.t1 was written with the masks email=hash:")
    assert len(made.rows("public.t1")) == 1
    made.resume("public.t1")
    assert mirrored(made, writer, mask_key=KEY[::-1])["state"] == "set aside"
    made.resume("public.t1")
    assert mirrored(made, writer)["state"] == "ok"
    assert made.rows("public.t1") == masked(made)
    # A truncate, as of a copy, writes all rows again, with the masks of then.
    mirrored(made, writer, build.insert(1, "3", "cy@example.org", "3", "Cy", "7"), masks={})
    writer.commit(build.truncate(1), build.insert(1, "4", "dee@example.org", "4", "Dee", "8"))
    writer.flush()
    made.resume("public.t1")
    status = mirrored(made, writer, masks={})
    assert (status["state"], status["masks"]) == ("ok", [])
    assert made.rows("public.t1") == made.expected("public.t1")


def test_another_name(made: MirrorOf, writer: Writer) -> None:
    row = build.insert(1, "1", "ada@example.org", "1", "Ada", "5")
    mirrored(made, writer, TABLE, row)
    renamed = relation(1, ID, column("mail"), column("phone"), column("name"), column("n", "int4"))
    row = build.insert(1, "2", "bob@example.org", "2", "Bob", "6")
    status = mirrored(made, writer, renamed, row)
    assert status["state"] == "set aside"
    assert status["error"] == (
        "column mail of public.t1 has no mask, and may have the values of email, name, phone of "
        "public.t1"
    )
    made.resume("public.t1")
    status = mirrored(made, writer, masks=MASKS | {"*.mail": "hash"})
    assert (status["state"], status["incomplete"]) == ("incomplete", ["mail since 0/14"])
    assert {row["mail"] for row in made.rows("public.t1")} == {None, hashed("bob@example.org")}
    # Of the table itself.
    other = relation(
        1, ID, column("mail"), column("phone"), column("name"), column("n", "int4"), name="t10"
    )
    mirrored(made, writer, other, build.insert(1, "3", "c", "3", "C", "7"), masks={
        **MASKS, "*.mail": "hash"
    })  # fmt: skip
    status = made.status()["public.t10"]
    assert status["state"] == "set aside"
    assert status["error"].startswith("column email, name of public.t10 has no mask")
    made.resume("public.t10")
    names = {"public.t10.email": "drop", "public.t10.name": "keep"}
    mirrored(made, writer, masks={**MASKS, "*.mail": "hash", **names})
    status = made.status()["public.t10"]
    assert status["state"] == "incomplete"
    rows = made.rows("public.t10")
    assert [(row["id"], row["name"], row["mail"]) for row in rows] == [
        (1, "Ada", None),
        (2, "Bob", hashed("bob@example.org")),
        (3, "C", hashed("c")),
    ]


def test_an_error_has_no_values(made: MirrorOf, writer: Writer) -> None:
    price = column("price", "numeric", typmod=(10 << 16) + 2 + 4)
    status = mirrored(
        made, writer, relation(1, ID, price), build.insert(1, "31415", "NaN"),
        masks={"public.t1.id": "hash"},
    )  # fmt: skip
    assert "31415" not in status["error"]
    assert "value '…', row id='…'" in status["error"]


def test_a_name_that_no_column_has(made: MirrorOf, writer: Writer) -> None:
    writer.commit(TABLE, build.insert(1, "1", "a", "b", "c", "5"))
    writer.flush()
    with pytest.raises(OptionError, match=r"the mask public\.t1\.emial matches no column of"):
        made.run(masks={"public.t1.emial": "drop"})
    assert not made.lake.exists()


def test_a_new_column_with_a_constant(made: MirrorOf, writer: Writer) -> None:
    """Rows from before the column have it, too."""
    writer.commit(relation(1, ID, column("v")), build.insert(1, "1", "a"))
    writer.flush()
    made.run()
    wide = relation(1, ID, column("v"), column("more"), column("less", "int4"))
    writer.commit(wide, build.insert(1, "2", "b", "secret", None))
    writer.flush()
    made.run(masks={"*.more": "constant:-", "*.less": "constant:0"})
    assert [(row["v"], row["more"], row["less"]) for row in made.rows("public.t1")] == [
        ("a", "-", 0),
        ("b", "-", 0),
    ]

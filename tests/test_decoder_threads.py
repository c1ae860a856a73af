"""Decoder(threads=N): the same columns, decoded by several threads."""

from __future__ import annotations

from typing import Any

import pytest

import pgwire_codec as pgc
from tests.support import build

COLUMNS = (
    build.column("id", "int4", key=True),
    build.column("flag", "bool"),
    build.column("price", "numeric", typmod=(15 << 16 | 2) + 4),
    build.column("day", "date"),
    build.column("name"),
    build.column("tags", "_int4"),
    build.column("odd", 99_999),  # nobody knows this type
    build.column("words", "_text"),
    build.column("raw", "bytea"),
)
TABLE = build.relation(1, *COLUMNS)


def row(number: int) -> pgc.TupleData:
    return build.row(
        str(number),
        None if number % 7 == 0 else "tf"[number % 2],
        f"{number}.{number % 100:02}",
        f"20{number % 100:02}-02-28",
        ... if number % 11 == 0 else "é" * (number % 5),
        f"{{{number},NULL}}" if number % 3 else "{}",
        b"\x01" if number == 9_000 else str(number),
        f'{{NULL,"a\\\\{number}",{"x" * (number % 9)}b}}' if number % 5 else None,
        f"\\x{number:08x}" if number % 13 else f"\\{number % 100:03o}",
    )


@pytest.fixture(scope="module")
def messages() -> list[bytes]:
    changes: list[Any] = [pgc.Insert(None, 1, row(number)) for number in range(10_000)]
    changes[5_000] = pgc.Delete(None, 1, None, row(5_000))
    changes[6_000] = build.truncate(1)
    return build.wire(build.transaction(TABLE, *changes))


def decoded(messages: list[bytes], **options: Any) -> list[dict[str, Any]]:
    return build.only(pgc.Decoder(**options).decode(messages)).to_pylist()


@pytest.mark.parametrize("strings", ["copy", "view"])
def test_any_number_of_threads(messages: list[bytes], strings: str) -> None:
    one = decoded(messages, strings=strings)
    assert len(one) == 10_000
    for threads in (2, 3, 16):
        assert decoded(messages, strings=strings, threads=threads) == one


def test_what_cannot_be_represented_stands_in_its_own_row(messages: list[bytes]) -> None:
    odd = [*messages]
    for place in (3, 4_999, 8_001, 9_999):
        odd[place + 2] = odd[place + 2].replace(f"20{place % 100:02}-02-28".encode(), b"infinity")
        odd[place + 2] = odd[place + 2].replace(b"\x00\x00\x00\x0ainf", b"\x00\x00\x00\x08inf")
    for unrepresentable in ("null", "clamp"):
        one = decoded(odd, unrepresentable=unrepresentable)
        assert [at for at, row in enumerate(one) if row["_invalid"]] == [3, 4_999, 8_001, 9_999]
        assert decoded(odd, unrepresentable=unrepresentable, threads=2) == one


def test_the_error_is_that_of_one_thread(messages: list[bytes]) -> None:
    broken = [*messages]
    for place, text in ((8_000, b"20x0-02-28"), (9_500, b"not a date")):
        broken[place + 2] = broken[place + 2].replace(f"20{place % 100:02}-02-28".encode(), text)
    errors = []
    for threads in (1, 2):
        with pytest.raises(pgc.DecodeError) as failure:
            decoded(broken, threads=threads)
        errors.append(failure.value)
    assert errors[0] == errors[1]
    assert errors[0].message_index == 8_002


def test_few_rows_are_not_worth_a_thread() -> None:
    few = build.wire(build.transaction(TABLE, pgc.Insert(None, 1, row(1))))
    assert len(decoded(few, threads=8)) == 1


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_what_is_no_number_of_threads(threads: Any) -> None:
    with pytest.raises(pgc.OptionError, match="threads must be an integer of at least 1"):
        pgc.Decoder(threads=threads)

"""Histories of timelines, as servers send them."""

from __future__ import annotations

from typing import Any

import pytest

from pgwire_codec.capture.timelines import parse_history, read_ancestors

HISTORY = "1\t0/3001698\tno recovery target specified\n\n2\t16/B374D848\tbefore 2026-11-23\n"
ANCESTORS = {1: 0x3001698, 2: 0x16_B374D848}


class _Cursor:
    """A cursor whose server has one history file."""

    def __init__(self, content: Any) -> None:
        self.content = content
        self.commands: list[str] = []

    def execute(self, command: str) -> None:
        self.commands.append(command)
        if self.content is None:
            from psycopg2.errors import UndefinedFile

            raise UndefinedFile("no such file")

    def fetchone(self) -> tuple[str, Any]:
        return "00000003.history", self.content


def test_of_a_server() -> None:
    assert parse_history(HISTORY) == ANCESTORS
    assert parse_history("# 1\t0/1\n1\t0/A  # left\n") == {1: 10}
    assert parse_history("") == {}


@pytest.mark.parametrize("content", [HISTORY, memoryview(HISTORY.encode())])
def test_as_text_and_as_bytes(content: Any) -> None:
    cursor = _Cursor(content)
    assert read_ancestors(cursor, 3) == ANCESTORS
    assert cursor.commands == ["TIMELINE_HISTORY 3"]


def test_without_a_file() -> None:
    assert read_ancestors(_Cursor(None), 3) == {}
    first = _Cursor(None)
    assert read_ancestors(first, 1) == {}
    assert first.commands == []

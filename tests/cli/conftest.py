"""Fixtures of the tests of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pgwire_codec.protocol import messages as m
from pgwire_codec.reference import encode_message
from tests.support.commands import write_lines


@pytest.fixture
def stored(tmp_path: Path) -> Any:
    """Return a function that writes messages to a file for inspect."""

    def write(*messages: m.LogicalMessage | bytes) -> Path:
        encoded = [x if isinstance(x, bytes) else encode_message(x) for x in messages]
        return write_lines(tmp_path / "messages.jsonl", encoded)

    return write

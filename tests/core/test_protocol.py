"""The constants of the wire in the compiled core."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import pgwire_codec

HEADER = Path(pgwire_codec.__file__).parent / "_core" / "protocol.pxd"

pytestmark = pytest.mark.skipif(
    not HEADER.exists(), reason="an installed package has no Cython sources"
)


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "update_protocol.py"
    spec = importlib.util.spec_from_file_location("update_protocol", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_they_are_those_of_the_specification(tool: ModuleType) -> None:
    assert HEADER.read_text() == tool.protocol(), "run tools/update_protocol.py, and compile"


def test_a_change_of_the_specification_would_be_seen(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool.tags, "POSITIONS", b"C")
    assert HEADER.read_text() != tool.protocol()


def test_sizes_are_those_of_encoded_messages(tool: ModuleType) -> None:
    lines = tool.protocol().splitlines()
    messages = {
        "BEGIN": pgwire_codec.Begin(1, 2, 3),
        "COMMIT": pgwire_codec.Commit(0, 1, 2, 3),
        "STREAM_START": pgwire_codec.StreamStart(1, True),
        "STREAM_STOP": pgwire_codec.StreamStop(),
        "STREAM_COMMIT": pgwire_codec.StreamCommit(1, 0, 1, 2, 3),
        "STREAM_ABORT": pgwire_codec.StreamAbort(1, 2, None, None),
        "XLOG_DATA": pgwire_codec.XLogData(1, 2, 3, b""),
    }
    for name, message in messages.items():
        assert f"    {name}_SIZE = {len(pgwire_codec.encode_message(message))}" in lines
    longest = pgwire_codec.encode_message(pgwire_codec.StreamAbort(1, 2, 3, 4))
    assert f"    STREAM_ABORT_LONG_SIZE = {len(longest)}" in lines

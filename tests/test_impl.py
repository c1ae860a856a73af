"""Choice of the implementation, and errors of explicit requests that cannot be met."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pgwire_codec as pgc
from pgwire_codec import _impl

SHOW = "import pgwire_codec as pgc; print(pgc.IMPL, pgc.Decoder.__module__)"


def run(request: str | None, code: str = SHOW) -> subprocess.CompletedProcess[str]:
    environment = {name: v for name, v in os.environ.items() if name != "PGWIRE_CODEC_IMPL"}
    if request is not None:
        environment["PGWIRE_CODEC_IMPL"] = request
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_an_installation_has_its_compiled_core() -> None:
    """A build that lost its extensions would be slow, and nobody would know why."""
    assert run(None).stdout.split() == ["cython", "pgwire_codec._core"]


@pytest.mark.parametrize("request_", ["auto", "", "cython"])
def test_the_compiled_one_is_taken(request_: str) -> None:
    assert run(request_).stdout.split()[0] == "cython"


def test_the_plain_one_can_be_asked_for() -> None:
    assert run("python").stdout.split() == ["python", "pgwire_codec.reference"]


def test_another_word_is_refused() -> None:
    done = run("fast")
    assert done.returncode == 1
    assert "PGWIRE_CODEC_IMPL must be auto, cython or python, not 'fast'" in done.stderr


def test_a_request_that_cannot_be_met_raises(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_impl, "__file__", str(tmp_path / "_impl.py"))
    assert _impl.choose("auto")[0] == "python"
    with pytest.raises(ImportError, match="has no compiled core"):
        _impl.choose("cython")


def test_both_have_the_same_names() -> None:
    from pgwire_codec import _core, reference

    assert set(reference.__all__) == {*_core.__all__, "encode_batch"}
    assert pgc.reference.Decoder is not _core.Decoder


def test_their_functions_have_the_same_parameters() -> None:
    """Compiled modules have no stubs: callers are checked against the reference's signatures."""
    from pgwire_codec import _core, reference

    def parameters(module: ModuleType, name: str) -> list[tuple[str, Any, Any]]:
        signature = inspect.signature(getattr(module, name))
        return [(each.name, each.kind, each.default) for each in signature.parameters.values()]

    for ours, theirs in ((_core, reference), (_core.implementation, reference.implementation)):
        for name in set(theirs.__all__) - {"Decoder", "encode_batch"}:
            assert parameters(ours, name) == parameters(theirs, name), name

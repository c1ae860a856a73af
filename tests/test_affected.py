"""The tests of a change: each sees its own layer and those below, and those that it imports."""

from __future__ import annotations

import re
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "affected"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the gate is not with the tests")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The gate's script as a module."""
    spec = spec_from_loader("affected", SourceFileLoader("affected", str(SCRIPT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Nothing is compiled beside the gate.
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
    return module


@pytest.mark.parametrize(
    ("path", "reached", "not_reached"),
    [
        ("pgwire_codec/capture/lag.py", {"capture", "cli", "metrics"}, {"spark", "log", "core"}),
        ("pgwire_codec/spark/tables.py", {"spark", "cli", "demo"}, {"capture", "log", "codec"}),
        ("pgwire_codec/log/writer.py", {"log", "spark", "capture", "report"}, {"codec", "core"}),
        ("pgwire_codec/_core/wire/scan.pyx", {"core", "codec", "families", "log", "spark"}, set()),
        ("pgwire_codec/protocol/spec.py", {"protocol", "core", "capture", "spark"}, set()),
        ("pgwire_codec/report/style.css", {"report", "cli"}, {"spark", "capture", "core"}),
        ("tests/cli/test_log.py", {"cli/test_log.py"}, {"cli", "log"}),
        ("docs/howto/mirror.md", {"test_docs.py", "test_prose.py"}, {"spark", "cli"}),
        ("changelog.d/+a.md", {"test_docs.py::test_the_changelog_has_what_comes"}, {"cli"}),
        (".github/workflows/ci.yml", {"test_workflows.py"}, {"cli"}),
        ("tests/log/test_gone.py", {"test_prose.py"}, {"log", "log/test_gone.py"}),
    ],
)
def test_a_change_reaches(script: Any, path: str, reached: set[str], not_reached: set[str]) -> None:
    found = {each.removeprefix("tests/") for each in script.affected([path])}
    assert reached <= found
    assert not not_reached & found


@pytest.mark.parametrize(
    "path",
    [
        ".ci/affected",
        "Makefile",
        "pyproject.toml",
        "setup.py",
        "tests/conftest.py",
        "tests/spark/conftest.py",
        "tests/support/servers.py",
        "tests/corpus/README.md",
        "tools/test-spark",
        "pgwire_codec/lake/row_types.py",
        "pgwire_codec/__init__.py",
    ],
)
def test_everything_runs_for(script: Any, path: str) -> None:
    assert script.affected([path, "docs/index.md"]) is None


def test_each_test_that_reads_pages_sees_them(script: Any) -> None:
    found = script.affected(["docs/index.md"])
    reads = re.compile(r"\bPAGES\b|\bdocs\.Page\b|\"docs/")
    readers = {
        str(path.relative_to(ROOT))
        for path in ROOT.glob("tests/**/test_*.py")
        if path != Path(__file__) and reads.search(path.read_text(encoding="utf-8"))
    }
    assert len(readers) > 2
    assert readers <= found


def test_each_test_sees_what_it_imports(script: Any) -> None:
    order = script.layers()
    known = {layer for names in order for layer in names}
    missed = []
    for path in ROOT.glob("tests/**/test_*.py"):
        file = str(path.relative_to(ROOT))
        folder = "/".join(file.split("/")[:2])
        text = path.read_text(encoding="utf-8").replace("pgwire_codec.lake.row_types", "")
        for layer in known.intersection(re.findall(r"(?:from|import) pgwire_codec\.(\w+)", text)):
            own = [file] if file.removeprefix("tests/") in script.SEEN else []
            if not any(script.sees(each, layer, order) for each in (folder, *own)):
                missed.append((file, layer))
    assert missed == []

"""The counts of tools/ratchet.py, and what it accepts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def ratchet() -> ModuleType:
    path = Path(__file__).parents[1] / "tools" / "ratchet.py"
    spec = importlib.util.spec_from_file_location("ratchet", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PYTHON = '''"""A docstring
of two lines."""

from x import (
    y,
)
import z


# A comment.
def call(a):
    """A docstring."""
    text = """of
    two lines"""
    return y(  # three lines

        a, text,
    )
'''

CYTHON = """from libc.stdint cimport uint8_t

cdef inline int first(const uint8_t* p) noexcept nogil:
    return <int> p[0] if p is not NULL else c"x"
"""


@pytest.mark.parametrize(("text", "lines"), [(PYTHON, 6), (CYTHON, 2), ("", 0), ("# x\n", 0)])
def test_lines_of_code(ratchet: ModuleType, text: str, lines: int) -> None:
    assert ratchet.lines_of_code(text) == lines


def test_modules_that_are_imported(ratchet: ModuleType) -> None:
    text = "import p.a.b\nfrom p.a import c, d\nfrom p.a.e import f\nfrom q import p\n"
    modules = {"p.a", "p.a.b", "p.a.c", "p.a.e", "p.a.g"}
    found = set(ratchet.imported_modules(text, modules))
    assert found == {"p.a", "p.a.b", "p.a.c", "p.a.e"}


def test_numbers_only_fall(ratchet: ModuleType) -> None:
    recorded = {"files": 3, "lines of code": 1000}
    assert ratchet.problems(recorded, recorded) == []
    [problem] = ratchet.problems(recorded, {"files": 4, "lines of code": 1000})
    assert problem == "files: 4, 1 more than before: remove as much"
    [problem] = ratchet.problems(recorded, {"files": 3, "lines of code": 900})
    assert problem == "lines of code: 900, 100 fewer than before: run tools/ratchet.py --write"


def test_a_checkout(ratchet: ModuleType, tmp_path: Path) -> None:
    """Modules of which a page documents a name are public."""
    page = Path("docs", "a.md")
    for path, text in {
        "pgwire_codec/__init__.py": "",
        "pgwire_codec/a/__init__.py": "",
        "pgwire_codec/a/inner.py": "x = 1\n",
        "pgwire_codec/a/public.py": "y = 1\n",
        "pgwire_codec/a/kernel.pxd": "cdef int z\n",
        page: "::: pgwire_codec.a.public.y\n",
        "tests/test_a.py": "from pgwire_codec.a import inner, public\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    assert list(ratchet.count(tmp_path).values()) == [5, 3, 1]

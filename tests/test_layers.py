"""Imports of Cython files, which import-linter does not read: the layers are in pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pgwire_codec"
IMPORT = re.compile(r"^\s*(?:from|cimport|import) pgwire_codec\.(\w+)", re.MULTILINE)

#: Packages below the compiled core, and the reference, which decodes deferred rows for it.
BELOW_THE_CORE = {"_core", "arrow", "codec", "errors", "options", "protocol", "reference", "types"}
ALLOWED = {"_core": BELOW_THE_CORE, "capture": BELOW_THE_CORE | {"capture"}}

FILES = [path for path in PACKAGE.rglob("*") if path.suffix in (".pyx", ".pxd", ".pxi")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_of_cython_files(path: Path) -> None:
    layer = path.relative_to(PACKAGE).parts[0]
    imported = set(IMPORT.findall(path.read_text(encoding="utf-8")))
    assert imported <= ALLOWED[layer]


@pytest.mark.skipif(not PACKAGE.exists(), reason="the sources are not with the tests")
def test_files_are_found() -> None:
    assert {path.relative_to(PACKAGE).parts[0] for path in FILES} == set(ALLOWED)

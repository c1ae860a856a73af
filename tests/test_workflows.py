"""The workflows do what a developer can do with make, by actions that nobody can change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="the workflows are not with the tests")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_make_targets_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    named = re.findall(r"\bmake (?:-C \S+ )?([\w-]+)", path.read_text(encoding="utf-8"))
    assert set(named) <= targets


def test_targets_are_named() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    for target in ("sanitize", "fuzz", "docs", "crash", "test-spark", "test-postgresql"):
        assert f"make {target}" in text


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_hash(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text(encoding="utf-8"))
    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r"  # v\d+\.\d+\.\d+", comment), action

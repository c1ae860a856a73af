"""How the project writes: docstrings, comments, errors, help texts and documentation."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.support.prose import Prose, of_cython, of_markdown, of_python, problems

ROOT = Path(__file__).parents[1]

CODE = ("pgwire_codec", "pyspark_pgwire", "benchmarks", "tools", "fuzz", "tests", "setup.py")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "changelog.d", "docs", "fuzz", "tests")


def files(suffixes: tuple[str, ...], names: tuple[str, ...]) -> list[Path]:
    """Return the files of these names, and those with a suffix in the folders of these names."""
    found: list[Path] = []
    for path in (ROOT / name for name in names):
        inside = (each for each in path.rglob("*") if each.suffix in suffixes)
        found += [path] if path.is_file() else inside
    return sorted(found)


def check(texts: list[Prose]) -> None:
    wrong = [
        f"{prose.place.removeprefix(f'{ROOT}/')}: {problem}"
        for prose in texts
        for problem in problems(prose)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.slow
def test_python() -> None:
    here = (Path(__file__), ROOT / "tests/support/prose.py")
    paths = [path for path in files((".py", ".pyi"), CODE) if path not in here]
    check(list(itertools.chain.from_iterable(of_python(path) for path in paths)))


def test_cython() -> None:
    paths = files((".pyx", ".pxd", ".pxi"), CODE)
    check(list(itertools.chain.from_iterable(of_cython(path) for path in paths)))


def test_pages() -> None:
    paths = files((".md",), PAGES)
    check(list(itertools.chain.from_iterable(of_markdown(path) for path in paths)))


@pytest.mark.parametrize(
    "text",
    [
        "Who reads PostgreSQL's changes has a choice.",
        "A message takes part in the whole stream, so begin with the first, and keep those that "
        "you have.",
        "Killed at any moment, cut off, or left without its server, it goes on where the log says.",
        "{text} is no place for a log",
        "it begins with other words than its sidecar",
        "pg_logical_emit_message; else where it can be.",
        "Which files of a log are what.",
        "Give the end of the column at p, whatever its kind; NULL where it is not whole.",
        "What becomes of a value that the Arrow type cannot hold.",
        "- [Whether a null is NULL](states.md) depends on the server.",
        "For the files see [What is in a log](log-files.md).",
        "Null where there is no old tuple.",
        "Version 4: two fields: the LSN and the time.",
        " ".join(["Short"] + ["words"] * 40) + ".",
    ],
)
def test_sentences_that_are_not_to_be_written(text: str) -> None:
    assert problems(Prose("here", text, is_of_a_function=True, is_of_a_page=True))


@pytest.mark.parametrize(
    "text",
    [
        "Several tools decode PostgreSQL's change stream. This page compares them.",
        "Decoding is stateful: start at the first message and keep every message.",
        "After a crash, a disconnect or a server restart, capture resumes at the log's last "
        "durable position.",
        "unsupported log URI {text!r}",
        "segment header does not match its sidecar",
        "Include pg_logical_emit_message() output (PostgreSQL 14+). Default: on if the server "
        "supports it.",
        "Classification of the files in a log directory.",
        "Return the end of the column at `p`, or NULL if it is truncated.",
        "How to handle values that the Arrow type cannot represent.",
        "Learn [why a null is not always NULL](states.md).",
        "- **Which message?** The error has its index.",
        "LSN\n:   Log sequence number: a position in the write-ahead log.",
    ],
)
def test_sentences_that_are(text: str) -> None:
    assert not problems(Prose("here", text, is_of_a_function=True, is_of_a_page=True))

"""Check that the package does not grow, and that tests import no more of its inner modules.

Called by ``make lint``. The numbers in ``ratchet.json`` may only fall: a larger one fails, and so
does a smaller one until ``tools/ratchet.py --write`` has written it. A module is an inner one if it
is in a package of this one, and the reference pages have none of its names.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUMBERS = Path(__file__).with_suffix(".json")
PACKAGE = "pgwire_codec"
SOURCES = (".py", ".pyx", ".pxd")

_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
_DOCUMENTED = re.compile(rf"^::: ({PACKAGE}(?:\.\w+)*)\.\w+$", re.MULTILINE)


def lines_of_code(text: str) -> int:
    """Return the lines of Python or Cython without blank ones, comments, docstrings and imports."""
    code: set[int] = set()
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type in _LAYOUT:
            continue
        if token.type != tokenize.NEWLINE:
            statement.append(token)
            continue
        words = {each.string for each in statement[:1]}
        is_text = all(each.type == tokenize.STRING for each in statement)
        if not is_text and not words & {"import", "cimport", "from"}:
            for each in statement:
                code.update(range(each.start[0], each.end[0] + 1))
        statement.clear()
    return len(code)


def imported_modules(text: str, modules: set[str]) -> Iterator[str]:
    """Yield the modules, of those that are given, that a file imports or imports from."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{each.name}" for each in node.names]
        for name in names:
            yield from {name, name.rpartition(".")[0]} & modules


def count(root: Path) -> dict[str, int]:
    """Return the numbers of a checkout."""
    sources = [path for path in (root / PACKAGE).rglob("*") if path.suffix in SOURCES]
    modules = {".".join(path.relative_to(root).with_suffix("").parts) for path in sources}
    pages = (path.read_text("utf-8") for path in (root / "docs").rglob("*.md"))
    public = {name for page in pages for name in _DOCUMENTED.findall(page)}
    inner = {name for name in modules - public if name.count(".") > 1 and "__init__" not in name}
    tests = (path.read_text("utf-8") for path in (root / "tests").rglob("*.py"))
    return {
        "files": len(sources),
        "lines of code": sum(lines_of_code(path.read_text("utf-8")) for path in sources),
        "inner modules in tests": len({n for text in tests for n in imported_modules(text, inner)}),
    }


def problems(recorded: dict[str, int], counted: dict[str, int]) -> list[str]:
    """Return a line for each number that is not the recorded one."""
    found = []
    for name, number in counted.items():
        most = recorded.get(name, -1)
        if number > most:
            found.append(f"{name}: {number:,}, {number - most:,} more than before: remove as much")
        elif number < most:
            found.append(f"{name}: {number:,}, {most - number:,} fewer than before: run {_WRITE}")
    return found


_WRITE = "tools/ratchet.py --write"


def main(*arguments: str) -> int:
    """Check the numbers, or write them; return the exit status."""
    counted = count(ROOT)
    if arguments == ("--write",):
        NUMBERS.write_text(json.dumps(counted, indent=2) + "\n", "utf-8")
        return 0
    found = problems(json.loads(NUMBERS.read_text("utf-8")), counted)
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

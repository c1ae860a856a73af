"""The code of the documentation's pages, and how it is run."""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"
#: Commands in pages that benchmarks write are tested elsewhere.
_WRITTEN = "benchmarks"

_FRONT_MATTER = re.compile(r"\A---\n(.*?)^---\n", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r'^( *)```(\w*)(?: title="([^"]+)")?\n(.*?)^ *```$', re.MULTILINE | re.DOTALL)
LANGUAGES = ("python", "sql", "sh", "text", "yaml", "ini", "toml")


@dataclass(frozen=True)
class Block:
    """A fenced block: its line, its text, and the output that the page shows.

    One with a title is a file of that name.
    """

    line: int
    language: str
    code: str
    title: str | None = None
    output: str | None = None


@dataclass(frozen=True)
class Page:
    """A page of the documentation. Its blocks are run in order, as one session."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(PAGES).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def needs(self) -> set[str]:
        """Entries of the front matter under ``needs``: services, and modules to import."""
        front = _FRONT_MATTER.match(self.text)
        found = re.search(r"^needs: (.+)$", front[1], re.MULTILINE) if front else None
        return set(found[1].split()) if found else set()

    @property
    def blocks(self) -> list[Block]:
        """The blocks to run: a ``text`` block right after another one is its output."""
        text = self.text
        found: list[Block] = []
        end = 0
        for match in _FENCED.finditer(text):
            indent, language, title, code = match.groups()
            code = re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
            line = text.count("\n", 0, match.start(4)) + 1
            follows = found and not text[end : match.start()].strip()
            end = match.end()
            if language == "text" and follows and found[-1].language != "text":
                found.append(replace(found.pop(), output=code))
            else:
                found.append(Block(line, language, code, title))
        return found


def pages() -> list[Page]:
    """All pages that are written by hand."""
    paths = sorted(PAGES.rglob("*.md"))
    return [Page(path) for path in paths if not path.name.startswith(_WRITTEN)]


class Session:
    """Runs the blocks of a page, in a folder that the page calls ``/data``."""

    def __init__(self, page: Page, folder: Path, **names: Any) -> None:
        self._page = page
        self._folder = folder.as_posix()
        self._names: dict[str, Any] = {"__name__": "__main__", **names}
        self._connection: Any = None

    def run(self, block: Block) -> None:
        """Run a block, and compare what it prints with the page.

        A command may print what the page does not show.
        """
        code = block.code.replace("/data", self._folder)
        if block.title is not None:
            path = Path(self._folder, block.title.replace("/data", self._folder))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code, "utf-8")
            return
        if block.language == "python":
            printed = self._python(code, block.line)
        elif block.language == "sql":
            printed = self._sql(code)
        elif block.language == "sh":
            printed = self._shell(code)
        else:
            return
        if block.language == "sh" and block.output is None:
            return
        printed = printed.replace(self._folder, "/data")
        where = f"{self._page.name}, line {block.line}"
        wanted = _without_trailing_blanks(block.output or "")
        printed = _without_trailing_blanks(printed)
        assert doctest.OutputChecker().check_output(wanted, printed, doctest.ELLIPSIS), (
            f"{where}: the page shows\n{wanted}\nand it prints\n{printed}"
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _python(self, code: str, line: int) -> str:
        tree = ast.parse(code)
        ast.increment_lineno(tree, line - 1)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, str(self._page.path), "exec"), self._names)
        return printed.getvalue()

    def _sql(self, code: str) -> str:
        if self._connection is None:
            import psycopg2

            self._connection = psycopg2.connect(os.environ["DSN"])
            self._connection.autocommit = True
        cursor = self._connection.cursor()
        for statement in re.split(r";$", code, flags=re.MULTILINE):
            if statement.strip():
                cursor.execute(statement)
        return ""

    def _shell(self, code: str) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            env=os.environ | {"PATH": path},
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def run(page: Page, folder: Path, **names: Any) -> None:
    """Run the blocks of a page in order, in a folder."""
    session = Session(page, folder, **names)
    try:
        for block in page.blocks:
            session.run(block)
    finally:
        session.close()


def _without_trailing_blanks(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


def main() -> None:
    """Run the pages that are named, as a reader would who has nothing but their text."""
    for name in sys.argv[1:]:
        run(Page(PAGES / name), Path.cwd())
        print(f"{name}: all as it is")


if __name__ == "__main__":
    main()

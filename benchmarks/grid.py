"""Figures as a grid of text, written as Markdown or as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Grid:
    """Rows of text below a head."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    @classmethod
    def read(cls, path: Path) -> Grid:
        """Read a file that has the text of :meth:`csv`."""
        head, *rows = csv.reader(path.read_text("utf-8").splitlines())
        return cls(head, rows)

    def markdown(self) -> str:
        """Return a Markdown table with aligned columns."""
        lines = [self.head, *self.rows]
        columns = range(len(self.head))
        widths = [max(len(line[column]) for line in lines) for column in columns]
        is_number = [
            all(row[column][:1] in "+-0123456789" for row in self.rows if row[column])
            for column in columns
        ]
        rule = [
            "-" * (widths[column] - 1) + (":" if is_number[column] else "-") for column in columns
        ]
        text = [
            [
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, is_number, strict=True)
            ]
            for line in lines
        ]
        return "\n".join(f"| {' | '.join(line)} |" for line in [text[0], rule, *text[1:]])

    def csv(self) -> str:
        """Return CSV with a head."""
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows([self.head, *self.rows])
        return written.getvalue()


def number(value: float | None, form: str) -> str:
    """Return a formatted number, or "" for None."""
    return "" if value is None else format(value, form)

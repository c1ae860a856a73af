"""What mkdocstrings has to be told of this package's docstrings. An extension of griffe.

They name other objects as Sphinx does, ``:class:`~package.Name```: on the site these become links.
The options of a data source are a section of their own.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`(~?)([\w.]+)`")


_OPTIONS = re.compile(r"^Options\n-------$", re.MULTILINE)


class Roles(griffe.Extension):
    """Rewrites the roles of every docstring, and sections that numpydoc has under another name."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        # A statement there gives it this docstring, which reading the source does not show.
        pkg["reference.Decoder"].docstring = pkg["decoder.BaseDecoder"].docstring

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _OPTIONS.sub("Other Parameters\n----------------", obj.docstring.value)
            obj.docstring.value = _ROLE.sub(lambda match: _link(match, obj), text)


def _link(match: re.Match[str], obj: griffe.Object) -> str:
    shortened, target = match.groups()
    shown = target.rpartition(".")[2] if shortened else target
    # The targets that are not on the site stay words: `optional`.
    return f'<autoref identifier="{_full(target, obj)}" optional><code>{shown}</code></autoref>'


def _full(target: str, obj: griffe.Object) -> str:
    """Give a target's full name: docstrings name what is near them without its module."""
    if target.startswith("pgwire_codec"):
        return target
    scope: griffe.Object | None = obj
    while scope is not None:
        if target.partition(".")[0] in scope.members:
            return f"{scope.path}.{target}"
        scope = scope.parent
    return target

"""Extension of griffe that adapts this package's docstrings for mkdocstrings.

Docstrings refer to other objects as in Sphinx, ``:class:`~package.Name```. The site has links in
their place. The options of a data source have a section of their own.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`(~?)([\w.]+)`")


_OPTIONS = re.compile(r"^Options\n-------$", re.MULTILINE)


class Roles(griffe.Extension):
    """Rewrite the roles of every docstring, and the headings that numpydoc names otherwise."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        # The module assigns this docstring in a statement, which griffe does not execute.
        pkg["reference.Decoder"].docstring = pkg["decoder.BaseDecoder"].docstring

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _OPTIONS.sub("Other Parameters\n----------------", obj.docstring.value)
            obj.docstring.value = _ROLE.sub(lambda match: _link(match, obj), text)


def _link(match: re.Match[str], obj: griffe.Object) -> str:
    shortened, target = match.groups()
    shown = target.rpartition(".")[2] if shortened else target
    # `optional`: a target that is not on the site stays plain text.
    return f'<autoref identifier="{_full(target, obj)}" optional><code>{shown}</code></autoref>'


def _full(target: str, obj: griffe.Object) -> str:
    """Return the full name of a target: near objects are named without their module."""
    if target.startswith("pgwire_codec"):
        return target
    scope: griffe.Object | None = obj
    while scope is not None:
        if target.partition(".")[0] in scope.members:
            return f"{scope.path}.{target}"
        scope = scope.parent
    return target

"""Advice of the package: arguments, options and commands that its texts name, and who shows them.

All string literals of the code that runs count, not only those of ``hint=``: advice is also in
tables, notes and remedies. A text belongs to the function, class or constant that contains it. An
entry point can show the texts of all that it uses, directly or not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import pgwire_codec

ROOT = Path(pgwire_codec.__file__).parent

#: `create_slot=True`: a Python argument, which a command replaces by its option.
ARGUMENT = re.compile(r"(?<!`)`([a-z]\w*)(?:=[^`]+)?`(?!`)")
#: The same without backquotes, which no command replaces.
BARE_ARGUMENT = re.compile(r"""(?<![\w.`-])([a-z]\w+)=(?:True|False|None|"\w+"|'\w+')""")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]+)")
COMMAND = re.compile(r"pgwire-codec ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")


@dataclass
class Part:
    """A function, class or constant at the top of a module."""

    module: str
    name: str
    texts: list[str] = field(default_factory=list)
    uses: set[tuple[str, str]] = field(default_factory=set)  # module and name
    node: ast.AST | None = None

    @cached_property
    def arguments(self) -> list[tuple[str, str]]:
        """Arguments in backquotes, each with its text."""
        return [(name, text) for text in self.texts for name in ARGUMENT.findall(text)]


@cache
def parts() -> Mapping[tuple[str, str], Part]:
    """Return the parts of all modules of the package."""
    found: dict[tuple[str, str], Part] = {}
    for path in sorted(ROOT.rglob("*.py")):
        names = path.relative_to(ROOT.parent).with_suffix("").parts
        module = ".".join(names[:-1] if names[-1] == "__init__" else names)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found.update(_of_module(module, tree, is_package=names[-1] == "__init__"))
    return found


def reachable(module: str, name: str) -> Iterator[Part]:
    """Yield the parts that a part uses, directly or not, and itself."""
    known = parts()
    left, seen = [(module, name)], set()
    while left:
        place = left.pop()
        if place in seen or place not in known:
            continue
        seen.add(place)
        yield known[place]
        left += known[place].uses


def _of_module(
    module: str, tree: ast.Module, *, is_package: bool
) -> Iterator[tuple[tuple[str, str], Part]]:
    own = {name for node in tree.body for name in _names(node)}
    # A package may import its names when they are used, and declares them for types.
    imports = _imports(ast.walk(tree) if is_package else tree.body)
    for node in tree.body:
        for name in _names(node):
            part = Part(module, name, list(_texts(node)), node=node)
            nodes = list(ast.walk(node))
            inner = _imports(nodes)  # of the function itself come first
            known = {**imports, **{each: (module, each) for each in own}, **inner}
            for used in nodes:
                if isinstance(used, ast.Name) and used.id in known:
                    part.uses.add(known[used.id])
                elif isinstance(used, ast.Attribute) and isinstance(used.value, ast.Name):
                    imported = known.get(used.value.id)
                    if imported is not None:
                        part.uses.add((".".join(filter(None, imported)), used.attr))
            yield (module, name), part
    for name, place in imports.items():  # of an __init__, for others to import
        if name not in own:
            yield (module, name), Part(module, name, [], {place})


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [each.id for each in targets if isinstance(each, ast.Name)]


def _imports(nodes: Iterable[ast.AST]) -> dict[str, tuple[str, str]]:
    """Return the package's names that are imported; not those for types alone."""
    found: dict[str, tuple[str, str]] = {}
    for node in nodes:
        # query = spark_module("mirroring.query", …)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            call, target = node.value, node.targets[0]
            if isinstance(call.func, ast.Name) and call.func.id == "spark_module":
                found[target.id] = ("pgwire_codec.spark", call.args[0].value)  # type: ignore[attr-defined]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pgwire_codec"):
            for each in node.names:
                found[each.asname or each.name] = (str(node.module), each.name)
    return found


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the string literals, with ``{}`` for what an f-string formats, and no docstrings."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values
        )
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def parameters(place: tuple[str, str]) -> set[str]:
    """Return the parameters of a function or class, with those of its ``**keywords``."""
    node: ast.AST | None = None
    for part in reachable(*place):  # the first that is not an import of an __init__
        node = part.node
        if node is not None:
            break
    assert node is not None
    if isinstance(node, ast.ClassDef):
        methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        if "__init__" not in methods:  # a dataclass
            return {
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            }
        node = methods["__init__"]
    found = {each.arg for each in [*node.args.args, *node.args.kwonlyargs]} - {"self"}
    if node.args.kwarg is not None:
        for used in ast.walk(node.args.kwarg):
            if isinstance(used, ast.Name) and used.id in KEYWORDS:
                found |= parameters(KEYWORDS[used.id])
    return found


#: Typed dictionaries of keyword arguments.
KEYWORDS = {"PluginKeywords": ("pgwire_codec.capture.options", "PluginKeywords")}


def public(package: str) -> list[tuple[str, str]]:
    """Return the functions and classes of a package's ``__all__``."""
    (names,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(
            (ROOT.parent / Path(*package.split(".")) / "__init__.py").read_text()
        ).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    return [(package, name) for name in names]

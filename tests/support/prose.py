"""Sentences of the code and of the documentation, and checks of how they are written."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Verbs that are imperative and still are not what a function does.
_NOT_A_VERB_OF_FUNCTIONS = ("Give", "Gives", "Hear", "Know", "Let", "Say", "Says", "Tell", "Tells")

#: A clause in the place of a subject. A question may begin so.
_CLAUSE = re.compile(r"(What|Whatever|Who|Whoever|Where|Which|Whichever|Whether|Whose)\b")

#: Words in the longest sentence of a page. Aim at 25.
_LONGEST = 35

#: Marks around a sentence: emphasis, links, quotes.
_MARKS = '*_[]("“” '

_DATA = (
    "bytes|carry|catalog|column|file|head|key|log|manifest|message|option|page|part|plan|publication"
    "|record|relation|report|row|schema|segment|sidecar|slot|snapshot|spec|stream|summary|table"
    "|text|transaction|tuple|type|value|watermark"
)

#: Phrases with the words to use in their place.
PHRASES = {
    rf"\b({_DATA})s? (tell|tells|told|say|says|said|know|knows|want|wants|hear|hears)\b": (
        "contains, declares, reports, records"
    ),
    r"\b(tell|tells|telling|told|untold)\b": "declare, report, deliver",
    r"\b(is|are|was|were) none\b(?! of them)": "is not",
    r"\b(is|are|was|were) no (?!longer|more|less|fewer|later|earlier|such|other|way|need|longer)": (
        "is not a, is missing"
    ),
    r"\bbecomes? of\b": "how … is handled",
    r"\banew\b": "again, new",
    r"\bbehind\b": "after",
    r"\bstand(s|ing)?\b(?! for)|\bstood\b": "is in, starts at",
    r"\bin (a )?hurry\b|\bhurr(y|ies|ied)\b|\bpatience\b": "fast path, backoff",
    r"\bstretch(es)?\b": "run of plain transactions",
    r"\btwins?\b": "counterpart",
    r"\b(lend|lends|lent)\b": "borrow, alias",
    r"\bhop(s|ped|ping)?\b": "skip",
    r"\bwalk(s|ed|er|ing)?\b": "iterate, read",
    r"\bhouse rules?\b|\bthe design\b": "nothing: how the project is made is not a subject",
    r"\btakes? part in\b": "is part of",
    r"\bother words than\b": "does not match",
    r"; else where\b": "default",
    r"\bwhere (there|none|nothing|nobody) (is|are|was|were)\b": "if, when",
    r"\[(what|who|where|which|whether)\b[^\]?]*\]": "a noun phrase or an imperative as link text",
    r"\bwhat it is worth\b|\bto be had\b|\bto and fro\b": "plain words",
}
_PHRASES = [(re.compile(pattern, re.IGNORECASE), use) for pattern, use in PHRASES.items()]


@dataclass(frozen=True)
class Prose:
    """A text, with its place: ``file:line``."""

    place: str
    text: str
    is_of_a_function: bool = False
    is_of_a_page: bool = False


def problems(prose: Prose) -> list[str]:
    """Return what is wrong with a text, each with the words to use."""
    found = []
    first = prose.text.split(maxsplit=1)[0].strip(",.:") if prose.text.strip() else ""
    if prose.is_of_a_function and first in _NOT_A_VERB_OF_FUNCTIONS:
        found.append(f"begins with {first!r}: use Return, Yield, Raise, Check, Build, …")
    for sentence in sentences(prose.text):
        if _CLAUSE.match(sentence) and not sentence.endswith("?"):
            found.append(f"begins with a clause: {sentence[:60]!r}")
        if prose.is_of_a_page and sentence.endswith("."):
            found += _complexity(sentence)
    plain = without_code(prose.text).replace("None", "CODE")
    for pattern, use in _PHRASES:
        for match in pattern.finditer(plain):
            found.append(f"{match[0]!r}: use {use}")
    return found


def _complexity(sentence: str) -> list[str]:
    found = []
    if len(sentence.split()) > _LONGEST:
        found.append(f"has more than {_LONGEST} words: {sentence[:60]!r}")
    if sentence.count(": ") > 1:
        found.append(f"has several colons: {sentence[:60]!r}")
    return found


def sentences(text: str) -> list[str]:
    """Split a text into its sentences, headings, list items and table cells."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*#|>:]|\d+\.) )", without_code(text))
    found = []
    for block in blocks:
        block = re.sub(r"^[\s#>*\-|:]+(\d+\. )?", "", " ".join(block.split()))
        found += re.split(r"(?<=[.!?])[*_)”\]]*\s+(?=\W?[A-Z])|\s*\|\s*", block)
    plain = (each.strip(_MARKS) for each in found)
    return [each for each in plain if each]


def without_code(text: str) -> str:
    """Replace what is code by a placeholder: blocks, spans, roles, option values."""
    text = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^---\n.*?\n---$", "", text, count=1, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ *>>>.*$|^ *\.\.\. .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"``.+?``|:\w+:`[^`]+`|`[^`]+`", "CODE", text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", text)


def of_python(path: Path) -> Iterator[Prose]:
    """Yield the docstrings, comments and texts of a Python file."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                docstrings.add(node.body[0].value)  # type: ignore[attr-defined]
                line = getattr(node, "lineno", 1)
                is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                yield Prose(f"{path}:{line}", text, is_function)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if node not in docstrings and node.value.count(" ") > 2:
            yield Prose(f"{path}:{node.lineno}", node.value)
    yield from _comments(path, source)


def of_cython(path: Path) -> Iterator[Prose]:
    """Yield the docstrings and comments of a Cython file."""
    source = path.read_text(encoding="utf-8")
    for match in re.finditer(r'(?P<head>[^\n]*)\n\s*r?"""(?P<text>.*?)"""', source, re.DOTALL):
        line = source[: match.start("text")].count("\n") + 1
        is_function = match["head"].rstrip().endswith(":") and "class " not in match["head"]
        yield Prose(f"{path}:{line}", match["text"], is_function)
    yield from _comments(path, source)


def _comments(path: Path, source: str) -> Iterator[Prose]:
    block: list[str] = []
    first = last = 0
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        tokens = []
    for token in tokens:
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if block and line != last + 1:
            yield Prose(f"{path}:{first}", " ".join(block))
            block = []
        if not block:
            first = line
        block.append(token.string.lstrip("#: "))
        last = line
    if block:
        yield Prose(f"{path}:{first}", " ".join(block))


def of_markdown(path: Path) -> Iterator[Prose]:
    """Yield the text of a page."""
    yield Prose(f"{path}:1", path.read_text(encoding="utf-8"), is_of_a_page=True)

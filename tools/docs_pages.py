"""Hook of mkdocs that generates parts of the documentation from the code.

It replaces each line ``<!-- from the code: NAME ARGUMENT -->`` of a page by the output of the
function of that name. It also adds CHANGELOG.md and CONTRIBUTING.md as pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from inspect import cleandoc, getsource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pgwire_codec as pgc
from pgwire_codec.cli.app import app
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.metrics.instruments import INSTRUMENTS
from pgwire_codec.protocol import spec
from pgwire_codec.types import TypeOptions, column_type
from pgwire_codec.types.builtin import BUILTIN

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parent.parent
_PLACE = re.compile(r"^<!-- from the code: (\w+)(?: ([\w ./@-]+))? -->$", re.MULTILINE)
_UNRELEASED = re.compile(r"^The entries of the next release[^<]*<!-- .* -->$", re.MULTILINE)
_FRAGMENTS = re.compile(r"\+[\w-]+\.(added|changed|fixed|removed)\.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages that benchmarks have written to the last section, after the first of them."""
    assert config.nav is not None
    [pages] = config.nav[-1].values()
    place = pages.index({"Benchmarks": "benchmarks.md"}) + 1
    pages[place:place] = sorted(path.name for path in ROOT.glob("docs/benchmarks-*.md"))
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are files of the repository outside of ``docs``."""
    from mkdocs.structure.files import File

    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "contributing.md", content=contributing))
    files.append(File.generated(config, "changelog.md", content=changelog()))
    return files


def changelog() -> str:
    """Return CHANGELOG.md with the entries of the next release, which are in ``changelog.d``.

    Raises ``ValueError`` for a file whose name towncrier does not support. towncrier builds a
    release's section from these files.
    """
    released = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    notes = []
    for path in sorted((ROOT / "changelog.d").glob("*.md")):
        if _FRAGMENTS.fullmatch(path.name) is None:
            raise ValueError(f"{path.name}: name it +WORD.added.md, or changed, fixed, removed")
        notes.append(f"- {path.read_text(encoding='utf-8')}")
    if not notes:
        return released
    before, after = _UNRELEASED.split(released)
    return f"{before}## Unreleased\n\n{''.join(notes)}{after}"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the generated parts of a page."""
    return fill_in(markdown)


def fill_in(markdown: str) -> str:
    """Replace the marked lines. Raises ``KeyError`` for a name without a generator."""
    return _PLACE.sub(lambda match: "\n".join(_MAKERS[match[1]](match[2])), markdown)


def _versions(_: str | None) -> Iterator[str]:
    """Yield a table of the messages, with the protocol versions of each."""
    yield "| tag | message | " + " | ".join(f"v{v}" for v in spec.PROTOCOL_VERSIONS) + " | |"
    yield "|---|---|" + "---|" * (len(spec.PROTOCOL_VERSIONS) + 1)
    for message in spec.MESSAGES:
        marks = " | ".join("●" if v >= message.since else "" for v in spec.PROTOCOL_VERSIONS)
        link = f"[{message.name}](version-{message.since}.md#{message.name.lower()})"
        yield f"| `{message.tag.decode()}` | {link} | {marks} | {_first_sentence(message.name)} |"


def _messages(version: str | None) -> Iterator[str]:
    """Yield the messages that a protocol version introduced, or the frames."""
    messages: tuple[spec.MessageSpec, ...] = spec.FRAMES
    if version is not None:
        messages = tuple(each for each in spec.MESSAGES if each.since == int(version))
    for message in messages:
        yield f"\n## {message.name} {{ #{message.name.lower()} }}\n"
        yield f"{_doc(message.name)}\n"
        yield "| field | on the wire | present | since | |"
        yield "|---|---|---|---|---|"
        yield f"| *tag* | Byte1: `{message.tag.decode()}` | always | v{message.since} | |"
        for field in message.fields:
            yield _row(field, message.since)


def _added_fields(version: str | None) -> Iterator[str]:
    """Yield the fields that a protocol version added to messages of older versions."""
    assert version is not None, "the version is missing"
    yield "| message | field | on the wire | present | |"
    yield "|---|---|---|---|---|"
    for message in spec.MESSAGES:
        for field in message.fields:
            if field.since == int(version) and message.since < field.since:
                link = f"[{message.name}](version-{message.since}.md#{message.name.lower()})"
                yield (
                    f"| {link} | `{field.name}` | {field.wire.value} | {_when(field)} | "
                    f"{field.doc} |"
                )


def _relation_columns(_: str | None) -> Iterator[str]:
    yield "| field | on the wire | |"
    yield "|---|---|---|"
    for field in spec.RELATION_COLUMN:
        yield f"| `{field.name}` | {field.wire.value} | {field.doc} |"


def _tuple_kinds(_: str | None) -> Iterator[str]:
    yield "| byte | the column is | then |"
    yield "|---|---|---|"
    for kind, doc in spec.TUPLE_KINDS.items():
        then = "Int32 length, and as many bytes" if kind in b"tb" else "nothing"
        yield f"| `{kind.decode()}` | {doc} | {then} |"


def _row(field: spec.Field, message_since: int) -> str:
    since = max(field.since, message_since)
    wire = field.wire.value
    if field.choices:
        wire += ": " + ", ".join(f"`{chr(letter)}`" for letter in field.choices)
    if field.marker:
        wire = f"Byte1 `{field.marker.decode()}`, then {wire}"
    return f"| `{field.name}` | {wire} | {_when(field)} | v{since} | {field.doc} |"


def _when(field: spec.Field) -> str:
    when = field.presence.value
    if field.alternative_to:
        when = f"instead of `{field.alternative_to}`"
    if field.together_with:
        when += f", with `{field.together_with}`"
    return when


def _types(_: str | None) -> Iterator[str]:
    """Yield a table of the built-in types, with their Arrow types and their types on Spark."""
    yield "| PostgreSQL | OID | Arrow | on Spark |"
    yield "|---|---|---|---|"
    for oid, name, *_rest in BUILTIN:
        yield f"| `{name}` | {oid} | {_arrow(oid)} | {_spark(oid)} |"


def _arrow(oid: int) -> str:
    kind = column_type(oid, -1, TypeOptions())
    if kind.pg.family == "numeric":
        return "decimal128(p, s); string if without precision or over 38 digits"
    return "arrow.uuid" if kind.extension else _ARROW[kind.format]


def _spark(oid: int) -> str:
    kind = column_type(oid, -1, TypeOptions(arrow_types=ROW_TYPES))
    if kind.pg.family == "numeric":
        return "decimal(p, s); string if without precision or over 38 digits"
    return _SPARK[kind.format]


_ARROW = {
    "b": "bool", "s": "int16", "i": "int32", "l": "int64", "I": "uint32", "L": "uint64",
    "f": "float", "g": "double", "u": "string", "z": "binary", "tdD": "date32",
    "ttu": "time64[us]", "tsu:": "timestamp[us]", "tsu:UTC": "timestamp[us, UTC]",
    "tin": "month_day_nano_interval",
}  # fmt: skip
_SPARK = {
    "b": "boolean", "s": "short", "i": "integer", "l": "long", "f": "float", "g": "double",
    "u": "string", "z": "binary", "tdD": "date", "tsu:": "timestamp_ntz", "tsu:UTC": "timestamp",
}  # fmt: skip


def _error_codes(_: str | None) -> Iterator[str]:
    """Yield the codes of ``DecodeError``, with their comments in the source."""
    comments = dict(re.findall(r'= "(\w+)"  #: (.+)', getsource(pgc.ErrorCode)))
    yield "| `code` | meaning |"
    yield "|---|---|"
    for code in pgc.ErrorCode:
        yield f"| `{code}` | {comments[code]} |"


def _metrics(kind: str | None) -> Iterator[str]:
    """Yield a table of the metrics of a capture or a mirror."""
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for each in INSTRUMENTS:
        if each.name.startswith(f"pgwire_codec.{kind}."):
            labels = ", ".join(f"`{name}`" for name in each.attributes)
            yield f"| `{each.prometheus_name}` | {each.kind} | {labels} | {each.description} |"


def _command(name: str | None) -> Iterator[str]:
    """Yield the help of a command, as ``--help`` prints it."""
    width: dict[str, Any] = {"terminal_width": 80, "max_content_width": 80}
    context = click.Context(app, info_name="pgwire-codec", **width, **app.context_settings)
    for part in (name or "").split():
        assert isinstance(context.command, click.Group), name
        command = context.command.get_command(context, part)
        assert command is not None, name
        context = click.Context(command, context, info_name=part, **width)
    yield "```text"
    yield context.get_help()
    yield "```"


def _doc(name: str) -> str:
    """Return the docstring of a message's class."""
    text = cleandoc(getattr(pgc, name).__doc__ or "")
    return re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)


def _first_sentence(name: str) -> str:
    return re.split(r"[.;](?:\s|$)", " ".join(_doc(name).split()))[0] + "."


_LANGUAGES = {"": "dockerfile", ".service": "ini", ".toml": "toml", ".yaml": "yaml"}


def _deployment(name: str | None) -> Iterator[str]:
    """Yield a file of deploy/."""
    assert name is not None
    path = ROOT / "deploy" / name
    yield f'```{_LANGUAGES[path.suffix]} title="deploy/{name}"'
    yield from path.read_text(encoding="utf-8").splitlines()
    yield "```"


_MAKERS: dict[str, Callable[[str | None], Iterator[str]]] = {
    "added_fields": _added_fields,
    "command": _command,
    "deployment": _deployment,
    "error_codes": _error_codes,
    "messages": _messages,
    "metrics": _metrics,
    "relation_columns": _relation_columns,
    "tuple_kinds": _tuple_kinds,
    "types": _types,
    "versions": _versions,
}

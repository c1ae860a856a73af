"""The documentation is true: its code runs and prints what it says, and the site builds."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

import pgwire_codec as pgc
from pgwire_codec.cli.app import app
from pgwire_codec.protocol import spec
from tests.spark import test_auto_cdc
from tests.support import docs
from tests.support.docs import LANGUAGES, ROOT, Page, pages
from tests.support.object_store import s3
from tests.support.servers import database
from tests.support.tls import tls_server

ALL = pages()

#: Services that are started; anything else that a page needs is a module.
SERVICES = {"server", "tls", "spark", "kafka", "s3"}
#: Has what it needs, and is run, in tests/spark/test_auto_cdc.py.
ELSEWHERE = test_auto_cdc.PAGE

#: Pages that take a minute. The commands and options of a mirror are tested in tests/spark and
#: tests/cli, on smaller tables.
THOROUGH = {"howto/mirror.md"}


def _with_code() -> list[object]:
    return [
        pytest.param(page, id=page.name, marks=_marks(page))
        for page in ALL
        if page != ELSEWHERE and any(block.language != "text" for block in page.blocks)
    ]


def _marks(page: Page) -> list[pytest.MarkDecorator]:
    slow = [pytest.mark.slow] if page.needs & SERVICES else []
    if "spark" not in page.needs:
        return slow
    if page.name in THOROUGH:
        slow.append(pytest.mark.thorough)
    # Commands of a page with a server start Spark themselves, for minutes.
    return [*slow, pytest.mark.xdist_group("spark-0")]


@pytest.fixture
def names(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, object]]:
    """Names that a page may use, by the ``needs`` of its front matter."""
    needs: set[str] = request.node.callspec.params["page"].needs
    for module in needs - SERVICES:
        pytest.importorskip(module)
    known: dict[str, object] = {}
    if "spark" in needs:
        # Before the folder is another one: Spark's workers import from that of its start.
        known["spark"] = request.getfixturevalue("spark")
        request.getfixturevalue("warm")
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as running:
        if "server" in needs:
            made = running.enter_context(database(request.getfixturevalue("pg18")))
            monkeypatch.setenv("DSN", made.dsn)
        if "tls" in needs:
            served = running.enter_context(tls_server(tmp_path))
            monkeypatch.setenv("DSN", served.server.dsn_for("postgres"))
            monkeypatch.setenv("PGPORT", str(served.port))
        if "kafka" in needs:
            monkeypatch.setenv("KAFKA", running.enter_context(_kafka()))
        settings = running.enter_context(s3("lake")) if "s3" in needs else {}
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield known


@contextlib.contextmanager
def _kafka() -> Iterator[str]:
    """The broker that librdkafka, Kafka's client, has for tests; its address."""
    producer = pytest.importorskip("confluent_kafka").Producer
    # The broker lives as long as the client that asks for it.
    client = producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    [broker] = client.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"


@pytest.mark.parametrize("page", _with_code())
def test_page(page: Page, names: dict[str, object], tmp_path: Path) -> None:
    docs.run(page, tmp_path, **names)


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Page) -> None:
    """A block without code to run is ``text``; nothing else may be a block."""
    for block in page.blocks:
        assert block.language in LANGUAGES, f"{page.name}, line {block.line}"
        assert block.language not in ("yaml", "ini") or block.title, (
            f"{page.name}, line {block.line}"
        )
    blocks = len(page.blocks) + sum(block.output is not None for block in page.blocks)
    assert len(re.findall(r"^ *```", page.text, re.MULTILINE)) == 2 * blocks


def test_there_are_pages() -> None:
    assert len(ALL) > 30
    assert sum(block.output is not None for page in ALL for block in page.blocks) > 20


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    for module in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(module, reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.xdist_group("site")  # so that it is built once
class TestSite:
    def test_has_every_page(self, site: Path) -> None:
        for page in ALL:
            name = page.name.removesuffix(".md").removesuffix("index")
            assert (site / name / "index.html").exists(), page.name

    def test_fetches_nothing_from_elsewhere(self, site: Path) -> None:
        for path in site.rglob("*.html"):
            for line in path.read_text(encoding="utf-8").splitlines():
                if "<script" in line or "stylesheet" in line:
                    assert 'src="http' not in line, path
                    assert 'href="http' not in line, path

    def test_has_every_message_and_field(self, site: Path) -> None:
        for message in (*spec.MESSAGES, *spec.FRAMES):
            place = "frames" if message in spec.FRAMES else f"version-{message.since}"
            html = (site / "protocol" / place / "index.html").read_text(encoding="utf-8")
            _, _, section = html.partition(f'<h2 id="{message.name.lower()}">')
            section = section.partition("<h2 ")[0]
            assert section, message.name
            for field in message.fields:
                assert f"<code>{field.name}</code>" in section, (message.name, field.name)

    def test_has_every_public_name(self, site: Path) -> None:
        pytest.importorskip("pyspark")
        html = "".join(
            path.read_text(encoding="utf-8") for path in (site / "reference").rglob("*.html")
        )
        for name in pgc.__all__:
            if name not in ("IMPL", "reference"):
                assert f'id="pgwire_codec.{name}"' in html, name
        for package in ("capture", "log", "metrics", "spark"):
            for name in importlib.import_module(f"pgwire_codec.{package}").__all__:
                assert re.search(rf'id="pgwire_codec\.[\w.]*\b{name}"', html), (package, name)


@pytest.fixture(scope="module")
def docs_pages() -> Iterator[ModuleType]:
    """The hook that makes pages of the code; without what mkdocs itself brings."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        yield importlib.import_module("docs_pages")
    finally:
        sys.path.pop(0)


def test_nothing_of_the_code_is_left_out(docs_pages: ModuleType) -> None:
    """The pages that are filled in ask for every table that there is."""
    asked = [match.groups() for page in ALL for match in docs_pages._PLACE.finditer(page.text)]
    assert {name for name, _ in asked} == set(docs_pages._MAKERS)
    messages = {version for name, version in asked if name == "messages"}
    assert messages == {"1", "2", "3", None}  # version 4 brings none, frames have no version
    commands = {command for name, command in asked if name == "command"}
    assert commands == {None, *_commands(app)}


def test_every_error_code_has_a_meaning(docs_pages: ModuleType) -> None:
    table = docs_pages.fill_in("<!-- from the code: error_codes -->")
    for code in pgc.ErrorCode:
        assert re.search(rf"^\| `{code}` \| \w.* \|$", table, re.MULTILINE), code


def _commands(group: click.Group, before: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield before + name
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before}{name} ")


def test_the_changelog_has_what_comes(docs_pages: ModuleType) -> None:
    text = docs_pages.changelog()
    assert text.startswith("# Changelog\n")
    for path in (ROOT / "changelog.d").glob("*.md"):
        assert f"- {path.read_text(encoding='utf-8')}" in text

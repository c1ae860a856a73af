"""The image and the Compose file: their commands run outside of a container, as written."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pgwire_codec.demo.server import EmbeddedServer
from tests.cli.test_metrics import answers, free_port
from tests.support.deployment import (
    DEPLOY,
    ROOT,
    instruction,
    libpq_variables,
    prepare,
    service,
    started,
    stopped,
)
from tests.support.lakehouse import delta_rows
from tests.support.servers import Database, database
from tests.support.slot_captures import wait_until

pytest.importorskip("psycopg2")
pytest.importorskip("prometheus_client")
pytest.importorskip("yaml", reason="Compose files are YAML")

METRICS = "0.0.0.0:9187"  # within a container


def command(name: str, folder: Path, port: int) -> list[str]:
    """The words of a container's process, without the program, with paths and port of a test."""
    assert instruction("ENTRYPOINT") == ["pgwire-codec"]
    words = service(name)["command"]
    assert f"--metrics={METRICS}" in words
    replaced = {
        "/data": str(folder / "data"),
        "/run/secrets": str(folder / "secrets"),
        METRICS: f"127.0.0.1:{port}",
    }
    for before, after in replaced.items():
        words = [word.replace(before, after) for word in words]
    return list(words)


def healthy(port: int) -> bool:
    """Run the image's health check."""
    words = [each.replace(":9187", f":{port}") for each in instruction("HEALTHCHECK")]
    assert words[0] == "python"
    return subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode == 0


@pytest.fixture
def shop(pg18: EmbeddedServer) -> Iterator[Database]:
    """A database of the file's major version."""
    assert service("postgres")["image"] == f"postgres:{pg18.postgres_version}"
    with database(pg18) as made:
        yield made


@pytest.mark.slow
def test_capture_and_mirror(shop: Database, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    prepare(shop, tmp_path)
    ports = {name: free_port() for name in ("capture", "mirror")}
    assert not healthy(ports["capture"])
    with ExitStack() as running:

        def start(name: str) -> subprocess.Popen[str]:
            # The server is another one, and the user is that of the file.
            environment = service(name).get("environment", {"PGUSER": "reader"})
            variables = libpq_variables(shop) | {"PGUSER": environment["PGUSER"]}
            arguments = command(name, tmp_path, ports[name])
            return running.enter_context(started(arguments, variables, tmp_path / "data"))

        capture = start("capture")
        assert wait_until(lambda: answers(ports["capture"], "/readyz", 200), 60)
        assert healthy(ports["capture"])
        mirror = start("mirror")
        assert wait_until(lambda: answers(ports["mirror"], "/readyz", 200), 60)
        assert healthy(ports["mirror"])
        shop.execute("INSERT INTO orders VALUES (2, 'Grace')")

        def mirrored() -> bool:
            place = tmp_path / "data" / "lake" / "public" / "orders"
            if not (place / "_delta_log").exists():
                return False
            return len(delta_rows(place)) == 2

        assert wait_until(mirrored, 120)
        assert stopped(mirror)[0] == 0
        assert stopped(capture) == (0, "")
    shop.query("SELECT pg_drop_replication_slot('reader')")


def test_the_root_is_read_only_and_the_user_not_root() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for stage in text.split("\nFROM base AS ")[1:]:
        assert stage.splitlines()[-1] == "USER 10001:10001"
    for name in ("capture", "mirror"):
        settings = service(name)
        assert settings["read_only"]
        assert settings["cap_drop"] == ["ALL"]
        build, image = settings["build"], settings["image"]
        assert f"\nFROM base AS {build['target']}\n" in text
        assert image == f"pgwire-codec:{build['target']}"


@pytest.mark.skipif(
    not (ROOT / "pgwire_codec").exists(), reason="the sources are not with the tests"
)
def test_the_build_gets_files_that_exist() -> None:
    """The files that the image's build gets are there."""
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    given = [line[1:] for line in lines if line.startswith("!")]
    for name in given:
        assert (ROOT / name).exists(), name

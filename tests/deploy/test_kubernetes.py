"""The Kubernetes manifest: its command runs outside of a container, and its parts fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pgwire_codec.demo.server import EmbeddedServer
from tests.cli.test_metrics import answers, free_port
from tests.support.deployment import DEPLOY, prepare, started, stopped
from tests.support.lakehouse import delta_rows
from tests.support.servers import Database, database
from tests.support.slot_captures import wait_until

yaml = pytest.importorskip("yaml", reason="manifests are YAML")

#: Parts of the file that a test replaces.
METRICS = "0.0.0.0:9187"
DSN = "host=postgres dbname=shop user=reader"
#: Folders of the file, and of the Secret.
OPTIONS = "/etc/pgwire-codec"
SECRETS = "/run/secrets/pgwire-codec"


def manifest() -> dict[str, Any]:
    """Return the objects of the manifest by their kind."""
    text = (DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def pod() -> dict[str, Any]:
    """Return the pod of the StatefulSet."""
    found: dict[str, Any] = manifest()["StatefulSet"]["spec"]["template"]["spec"]
    return found


def container() -> dict[str, Any]:
    """Return the pod's container."""
    [found] = pod()["containers"]
    assert isinstance(found, dict)
    return found


def arguments() -> tuple[str, float, Path]:
    """Return the container's command, its time to stop, and its file."""
    command, stop, file = container()["args"]
    option, _, seconds = stop.partition("=")
    assert option == "--stop-seconds"
    return command, float(seconds), Path(file)


def configure(made: Database, folder: Path) -> int:
    """Write the ConfigMap's file for a database; return the port of its metrics."""
    from psycopg2.extensions import make_dsn

    port = free_port()
    name = arguments()[2].name
    text = manifest()["ConfigMap"]["data"][name]
    changes = {
        f'"{METRICS}"': f'"127.0.0.1:{port}"',
        SECRETS: str(folder / "secrets"),
        "/data": str(folder / "data"),
        DSN: make_dsn(made.dsn, user="reader"),  # the last one: its folder can have such a name
    }
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    (folder / name).write_text(text, encoding="utf-8")
    return port


@pytest.mark.slow
def test_capture_and_mirror(pg18: EmbeddedServer, tmp_path: Path) -> None:
    for module in ("psycopg2", "prometheus_client", "deltalake"):
        pytest.importorskip(module)
    alive, ready = (container()[f"{each}Probe"]["httpGet"] for each in ("liveness", "readiness"))
    command, seconds, file = arguments()
    words = [command, f"--stop-seconds={seconds}", str(tmp_path / file.name)]
    place = tmp_path / "data" / "lake" / "public" / "orders"
    with database(pg18) as made:
        prepare(made, tmp_path)
        port = configure(made, tmp_path)
        with started(words, {}, tmp_path / "data") as process:
            assert wait_until(lambda: answers(port, ready["path"], 200), 60)
            made.execute("INSERT INTO orders VALUES (2, 'Grace')")

            def mirrored() -> bool:
                return (place / "_delta_log").exists() and len(delta_rows(place)) == 2

            assert wait_until(mirrored, 60)
            assert answers(port, alive["path"], 200)
            status, errors = stopped(process)
            assert status == 0, errors
        made.query("SELECT pg_drop_replication_slot('reader')")


def test_ports() -> None:
    """Probes and the Service reach the port of the metrics."""
    [port] = container()["ports"]
    assert f"0.0.0.0:{port['containerPort']}" == METRICS
    for probe in ("livenessProbe", "readinessProbe"):
        assert container()[probe]["httpGet"]["port"] == port["name"]
    [served] = manifest()["Service"]["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (port["containerPort"], port["name"])


def test_the_root_is_read_only_and_the_user_not_root() -> None:
    confined = container()["securityContext"]
    assert confined["readOnlyRootFilesystem"]
    assert not confined["allowPrivilegeEscalation"]
    assert confined["capabilities"] == {"drop": ["ALL"]}
    user = pod()["securityContext"]
    assert user["runAsNonRoot"]
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}\n" in text
    _, _, target = container()["image"].partition(":")
    assert f"\nFROM base AS {target}\n" in text


def test_volumes() -> None:
    """Each mount has its volume, and what the command writes is on the one that is kept."""
    claims = manifest()["StatefulSet"]["spec"]["volumeClaimTemplates"]
    [kept] = [each["metadata"]["name"] for each in claims]
    volumes = {each["name"]: each for each in pod()["volumes"]}
    mounts = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    assert set(mounts) == {*volumes, kept}
    assert mounts == {kept: "/data", "tmp": "/tmp", "options": OPTIONS, "password": SECRETS}
    config = manifest()["ConfigMap"]
    assert volumes["options"]["configMap"]["name"] == config["metadata"]["name"]
    assert [str(arguments()[2])] == [f"{OPTIONS}/{name}" for name in config["data"]]


def test_one_capture_that_ends_in_time() -> None:
    stateful = manifest()["StatefulSet"]["spec"]
    assert stateful["replicas"] == 1
    assert stateful["serviceName"] == manifest()["Service"]["metadata"]["name"]
    labels = stateful["template"]["metadata"]["labels"]
    assert (
        labels == stateful["selector"]["matchLabels"] == manifest()["Service"]["spec"]["selector"]
    )
    assert pod()["terminationGracePeriodSeconds"] > arguments()[1]

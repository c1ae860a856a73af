"""Debezium's engine as a program that prints each row when its consumer gets it."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import parse_qs, urlparse

from benchmarks.peers.programs import BUILT, SOURCES, NotMeasuredError, build

POLL_MS = 10


def classes() -> Path:
    """Return the folder with the engine's classes, fetched by Maven at the first call.

    Raises ``NotMeasuredError`` without Maven or a JDK.
    """
    if shutil.which("javac") is None:
        raise NotMeasuredError("javac is not installed")
    folder = BUILT / "debezium"
    if not folder.exists():
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        build("mvn", "-q", "-B", *goal, f"-DoutputDirectory={folder}", at="debezium")
    return folder


def command(libraries: Path, dsn: str, slot: str, publication: str, offsets: Path) -> list[str]:
    """Return the command that receives from a slot of a server on a Unix socket."""
    [folder] = parse_qs(urlparse(dsn).query)["host"]
    [socket] = (each for each in Path(folder).glob(".s.PGSQL.*") if each.suffix != ".lock")
    properties = {
        "name": slot,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "topic.prefix": slot,
        "database.hostname": "localhost",
        "database.user": "postgres",
        "database.dbname": "postgres",
        "driver.socketFactory": "org.newsclub.net.unix.AFUNIXSocketFactory$FactoryArg",
        "driver.socketFactoryArg": str(socket),
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": publication,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        "poll.interval.ms": str(POLL_MS),
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(offsets),
    }
    source = SOURCES / "debezium" / "Latency.java"
    pairs = [f"{name}={value}" for name, value in properties.items()]
    return ["java", "-cp", f"{libraries}/*", str(source), *pairs]

"""The archive of Spark's classes: who writes it, who reads it, and who does without."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs PySpark, which needs Python 3.11")

from pgwire_codec.spark import java_archive
from pgwire_codec.spark.java_archive import archive_options

WRITES, READS = "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile="


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Home of a Java that has an archive of its own classes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in java_archive._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    (home / "release").touch()
    return home


def written(options: str) -> Path:
    return Path(options.partition(WRITES)[2].partition('"')[0])


def test_the_second_spark_writes_and_later_ones_read(home: Path) -> None:
    assert archive_options(home, {}) == ""
    options = archive_options(home, {})
    assert WRITES in options
    assert READS not in options
    unfinished = written(options)
    unfinished.write_bytes(bytes(4096))  # Java was killed as it wrote: the first bytes come last
    assert WRITES in archive_options(home, {})
    unfinished.write_bytes(b"archive" * 100)
    options = archive_options(home, {})
    assert f"{READS}{unfinished.with_suffix('.jsa')}" in options
    assert WRITES not in options
    assert not unfinished.exists()


def test_old_archives_are_removed(home: Path) -> None:
    archive_options(home, {})
    folder = written(archive_options(home, {})).parent
    for number in range(9):
        (folder / f"{number}.jsa").touch()
    archive_options(home, {})
    assert len(list(folder.glob("*.jsa"))) == java_archive._KEPT


def test_other_classes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        assert archive_options(home, {"spark.driver.extraClassPath": "/x.jar"}) == ""
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert archive_options(home, {}) == ""


def test_a_cache_that_cannot_be_written(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark starts all the same, as on a file system that is read-only."""
    (tmp_path / "cache").write_text("not a folder")
    with caplog.at_level(logging.INFO):
        assert archive_options(home, {}) == ""
    assert "without an archive of Spark's classes" in caplog.text


def test_a_java_that_writes_no_base(home: Path) -> None:
    (home / "lib" / "server" / "classes.jsa").unlink()
    for _ in range(2):
        assert archive_options(home, {}) == ""

"""Archive of the classes that Spark loads, with which Java starts in half the CPU time.

Java writes it at the end of the second local Spark, which takes some seconds, and reads it at later
starts. In a container whose files do not remain, each Spark is the first one. See "Class Data
Sharing" in Java's documentation.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pgwire_codec.lake.cache_folder import cache_folder

_LOGGER: Final = logging.getLogger(__name__)

#: Archives that are kept, of 150 MB each: releases of Java and of Spark alternate.
_KEPT: Final = 4

#: Settings that add folders or files to those where Spark finds classes. Java archives no folder.
_SETTING: Final = "spark.driver.extraClassPath"
_VARIABLES: Final = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR")

#: Without words about an archive that does not fit, or cannot be written.
_QUIET: Final = "-Xlog:cds*=off -Xlog:class+path=off"


def archive_options(home: Path, settings: Mapping[str, str]) -> str:
    """Return the options with which the Java in ``home`` reads or writes the archive, if any.

    It has none, for example, if the folder of caches cannot be written, or the user has no home.
    ``settings`` are those of the Spark session.
    """
    try:
        return _options(home, settings)
    except (OSError, subprocess.CalledProcessError) as error:
        _LOGGER.info("Java starts without an archive of Spark's classes: %s", error)
        return ""


def _options(home: Path, settings: Mapping[str, str]) -> str:
    pyspark = find_spec("pyspark")
    assert pyspark is not None, "it is imported"
    assert pyspark.origin is not None, "it has files"
    jars = sorted(Path(pyspark.origin).with_name("jars").glob("*.jar"))
    has_conf = Path(pyspark.origin).with_name("conf").exists()
    if has_conf or _SETTING in settings or any(map(os.environ.get, _VARIABLES)):
        return ""
    archive = _place(home, jars)
    unfinished = archive.with_suffix(".new")
    if not archive.exists() and _is_complete(unfinished):
        unfinished.replace(archive)
    archives = [archive] if archive.exists() else []
    first = archive.with_suffix(".first")
    if not archives and not first.exists():
        first.touch()
        return ""
    written = "" if archives else f' "-XX:ArchiveClassesAtExit={unfinished}"'
    if not (home / "lib" / "server" / "classes.jsa").exists():
        archives.insert(0, _base(home, archive))
    read = f' "-XX:SharedArchiveFile={os.pathsep.join(map(str, archives))}"' if archives else ""
    # As Spark names them, one is there twice, and then Java does not take the archive.
    classes = os.pathsep.join(map(str, jars))
    return f'{_QUIET} "-Djava.class.path={classes}"{read}{written}'


def _is_complete(archive: Path) -> bool:
    """Return whether Java has written an archive, whose first bytes come last; have it on disk."""
    try:
        with archive.open("rb") as file:
            os.fsync(file.fileno())
            return any(file.read(8))
    except FileNotFoundError:
        return False


def _place(home: Path, jars: list[Path]) -> Path:
    """Return where the archive of a Java and of Spark's jars is, or is to be."""
    # Java compares time and size of each file with those that it has archived.
    files = [home / "release", *jars]
    facts = repr([(str(path), path.stat().st_mtime_ns) for path in files])
    digest = hashlib.sha256(facts.encode()).hexdigest()[:16]
    folder = cache_folder("java")
    made = sorted(folder.glob("*.jsa"), key=lambda path: -path.stat().st_mtime)
    for old in made[_KEPT:]:
        old.unlink(missing_ok=True)
    return folder / f"{digest}.jsa"


def _base(home: Path, archive: Path) -> Path:
    """Return the archive of Java's own classes, which small runtimes come without."""
    base = archive.with_suffix(".base")
    if not base.exists():
        made = base.with_suffix(f".{os.getpid()}")
        command = [str(home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={made}"]
        subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=True)
        made.replace(base)
    return base

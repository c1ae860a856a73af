"""An archive of the classes that Spark loads (AppCDS): with it, Java starts in half the CPU time.

`python -m tests.support.java_archive` makes it, once for a release of Java and of Spark.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.support.warm_python import warm_python

#: Java of the tests has little memory and a short life, except for that of the session, whose
#: generated code can fill the 48 MB that one compiler has for code, which ends it.
OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

#: Archives that are kept: releases of Spark alternate.
KEPT = 4


def java_options() -> str:
    """Return the options of the tests' Java processes."""
    archive = _archive()
    if archive is None or not archive.exists():
        return OPTIONS
    # Java of another release says that it cannot use the archive, and goes on.
    return f"{OPTIONS} -XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr"


def _archive() -> Path | None:
    """Return where this Java's and Spark's archive is, or is to be. None without one of them."""
    found = find_spec("pyspark")
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java" if home is None else str(Path(home, "bin", "java")))
    if found is None or found.origin is None or java is None:
        return None
    # Java compares time and size of each file with those that it has archived.
    files = [Path(java).resolve(), *sorted(Path(found.origin).with_name("jars").glob("*.jar"))]
    facts = repr([(str(path), path.stat().st_mtime_ns) for path in files])
    digest = hashlib.sha256(facts.encode()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "pgwire_codec", "java", f"{digest}.jsa")


def main() -> None:
    archive = _archive()
    if archive is None or archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(f".{os.getpid()}")
    os.environ["JDK_JAVA_OPTIONS"] = OPTIONS
    with warm_python() as python, tempfile.TemporaryDirectory() as folder:
        os.environ["PYSPARK_PYTHON"] = python
        _use_spark(Path(folder), f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:cds=off")
    if not unfinished.exists():
        print("Java has written no archive of its classes: the tests run without", file=sys.stderr)
        return
    unfinished.replace(archive)
    newest = sorted(archive.parent.glob("*.jsa"), key=lambda path: -path.stat().st_mtime)
    for old in newest[KEPT:]:
        old.unlink(missing_ok=True)


def _use_spark(folder: Path, options: str) -> None:
    """Mirror a table in a Spark of its own, and wait for the end of its Java."""
    from pyspark import SparkContext

    from pgwire_codec.spark.file_rows import file_rows
    from pgwire_codec.spark.local import local_spark
    from tests.support import build
    from tests.support.mirrors import ID, MirrorOf, Writer, relation

    table = relation(1, ID, build.column("v"))
    writer = Writer(folder)
    writer.commit(table, build.insert(1, "1", "a"), build.insert(1, "2", "b"))
    writer.commit(build.update(1, build.row("1", "c")))
    writer.flush()
    settings = {"spark.driver.extraJavaOptions": options, "spark.sql.shuffle.partitions": "2"}
    with local_spark(settings) as spark:
        made = MirrorOf(spark, folder, "delta")
        made.run()
        target = made.opened.open(table)
        assert target.schema is not None, "the mirror has made the table"
        if file_rows(spark, target.files, target.schema).count() != 2:
            sys.exit("the mirror that the archive is made of does not have its rows")
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main()

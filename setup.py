"""Build of the compiled core. Everything else is in pyproject.toml.

``PGWIRE_CODEC_DEBUG=1`` builds it with debug symbols and with checks of every array index;
``PGWIRE_CODEC_SANITIZE=address,undefined`` builds it so with these sanitizers, too.
``PGWIRE_CODEC_BUILDS`` names a folder that keeps compiled modules for the next build.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

#: Each Cython source in these folders is an extension, which the ``.pxd`` that it uses are part of.
CORE = "pgwire_codec/_core"
#: For POSIX systems only: psycopg2's wheels for Windows keep their libpq to themselves.
CAPTURE = "pgwire_codec/capture"

SANITIZE = os.environ.get("PGWIRE_CODEC_SANITIZE", "")
DEBUG = bool(SANITIZE or os.environ.get("PGWIRE_CODEC_DEBUG"))
BUILDS = os.environ.get("PGWIRE_CODEC_BUILDS", "")

#: The only place for directives. The sources rely on these values of `wraparound` and `cdivision`.
DIRECTIVES = {
    "language_level": 3,
    "freethreading_compatible": True,
    "wraparound": False,
    "cdivision": True,
    "boundscheck": DEBUG,
    "initializedcheck": DEBUG,
}

#: Modules whose loops run for each message or value. ``-O3`` takes gcc twice the time of ``-O1``,
#: and earns it there only.
HOT = {
    "pgwire_codec._core.columns.change_batch",
    "pgwire_codec._core.columns.columns",
    "pgwire_codec._core.columns.metadata",
    "pgwire_codec._core.kernels.values",
    "pgwire_codec._core.wire.grouping",
    "pgwire_codec._core.wire.join",
    "pgwire_codec._core.wire.runs",
    "pgwire_codec._core.wire.scan",
    "pgwire_codec.capture.connection._frames",
    "pgwire_codec.capture.snapshot._copy_reader",
}

#: Builds of a module that are kept: branches and interpreters alternate.
KEPT = 8


def compiler_arguments(name: str) -> tuple[list[str], list[str]]:
    """Return a module's arguments of the compiler and of the linker, beside their defaults."""
    sanitizers = [f"-fsanitize={SANITIZE}"] if SANITIZE else []
    if SANITIZE:
        sanitizers += ["-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    if sys.platform == "win32":
        return ["/Od", "/Zi"] if DEBUG else ["/O2"], []
    level = "-O1" if DEBUG else "-O3" if name in HOT else "-O2"
    return [*sanitizers, level, "-g" if DEBUG else "-g0"], sanitizers


def extension(source: Path) -> Extension:
    """Return the extension of a Cython source."""
    name = ".".join(source.with_suffix("").parts)
    compile_args, link_args = compiler_arguments(name)
    return Extension(
        name,
        [source.as_posix()],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )


def extensions() -> list[Extension]:
    """Return the extensions, one for each Cython source, the largest first."""
    folders = [CORE] if sys.platform == "win32" else [CORE, CAPTURE]
    sources = [source for folder in folders for source in Path(folder).rglob("*.pyx")]
    return [
        extension(source) for source in sorted(sources, key=lambda s: (-s.stat().st_size, s.name))
    ]


class BuildExt(build_ext):
    """Compile modules side by side, and take those that an earlier build has kept."""

    _cython = threading.Lock()  # Cython's compiler has state of its process
    _lines = threading.Lock()
    _built = 0

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            self.parallel = (
                len(os.sched_getaffinity(0))
                if hasattr(os, "sched_getaffinity")
                else os.cpu_count() or 1
            )

    def build_extensions(self) -> None:
        if sys.platform == "win32":
            # Microsoft's compiler has no integers of 128 bits.
            self.compiler.initialize()
            self.compiler.cc = "clang-cl"
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        began = time.monotonic()
        origin = self._build(ext)
        with self._lines:
            self._built += 1
            place = f"{self._built} of {len(self.extensions)}"
            print(f"{origin} {ext.name}: {place}, {time.monotonic() - began:.0f} s", flush=True)

    def _build(self, ext: Extension) -> str:
        """Build a module, or take a kept one; return what was done."""
        if not BUILDS:
            self._compile(ext)
            return "compiled"
        built = Path(self.get_ext_fullpath(ext.name))
        kept = Path(BUILDS) / ext.name / f"{self._digest(ext)}.so"
        if kept.exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(kept, built)
            kept.touch()
            return "kept"
        self._compile(ext)
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(f".{os.getpid()}")
        shutil.copyfile(built, unfinished)
        unfinished.replace(kept)
        for old in sorted(kept.parent.glob("*.so"), key=lambda path: -path.stat().st_mtime)[KEPT:]:
            old.unlink(missing_ok=True)
        return "compiled"

    def _compile(self, ext: Extension) -> None:
        with self._cython:
            (translated,) = cythonize([ext], compiler_directives=DIRECTIVES, force=self.force)
        ext.sources = translated.sources
        super().build_extension(ext)

    def _digest(self, ext: Extension) -> str:
        """Hash all that a module is made of: sources, compilers, interpreter, arguments."""
        compiler = self.compiler.compiler_so
        version = subprocess.run([compiler[0], "--version"], capture_output=True, check=True).stdout
        said = [Cython.__version__, sys.version, sysconfig.get_platform(), DIRECTIVES, compiler]
        said += [ext.extra_compile_args, ext.extra_link_args, os.environ.get("CFLAGS")]
        digest = hashlib.sha256(repr(said).encode() + version)
        for path in sorted([*ext.sources, *(str(p) for p in Path("pgwire_codec").rglob("*.pxd"))]):
            digest.update(path.encode() + b"\0" + Path(path).read_bytes())
        return digest.hexdigest()


setup(cmdclass={"build_ext": BuildExt}, ext_modules=extensions())

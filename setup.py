"""Build of the compiled core. Everything else is in pyproject.toml.

``PGWIRE_CODEC_DEBUG=1`` builds it with debug symbols and with checks of every array index;
``PGWIRE_CODEC_SANITIZE=address,undefined`` builds it so with these sanitizers, too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

#: Each Cython source in these folders is an extension, which the ``.pxd`` that it uses are part of.
CORE = "pgwire_codec/_core"
#: For POSIX systems only: psycopg2's wheels for Windows keep their libpq to themselves.
CAPTURE = "pgwire_codec/capture"
BENCH = "pgwire_codec/bench"

SANITIZE = os.environ.get("PGWIRE_CODEC_SANITIZE", "")
DEBUG = bool(SANITIZE or os.environ.get("PGWIRE_CODEC_DEBUG"))

#: The only place for directives. The sources rely on these values of `wraparound` and `cdivision`.
DIRECTIVES = {
    "language_level": 3,
    "freethreading_compatible": True,
    "wraparound": False,
    "cdivision": True,
    "boundscheck": DEBUG,
    "initializedcheck": DEBUG,
}


def compiler_arguments() -> tuple[list[str], list[str]]:
    """Return the arguments of the compiler and of the linker, beside their defaults."""
    sanitizers = [f"-fsanitize={SANITIZE}"] if SANITIZE else []
    if SANITIZE:
        sanitizers += ["-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    if sys.platform == "win32":
        return ["/Od", "/Zi"] if DEBUG else ["/O2"], []
    return [*sanitizers, *(["-O1", "-g"] if DEBUG else ["-O3", "-g0"])], sanitizers


def extensions() -> list[Extension]:
    """Return the extensions, one for each Cython source."""
    folders = [CORE, BENCH] if sys.platform == "win32" else [CORE, BENCH, CAPTURE]
    compile_args, link_args = compiler_arguments()
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [source.as_posix()],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
        )
        for folder in folders
        for source in sorted(Path(folder).rglob("*.pyx"))
    ]


class BuildExt(build_ext):
    """Compile on Windows with clang-cl: Microsoft's compiler has no integers of 128 bits."""

    def build_extensions(self) -> None:
        if sys.platform == "win32":
            self.compiler.initialize()
            self.compiler.cc = "clang-cl"
        super().build_extensions()


EXTENSIONS = cythonize(extensions(), compiler_directives=DIRECTIVES)
setup(cmdclass={"build_ext": BuildExt}, ext_modules=EXTENSIONS)

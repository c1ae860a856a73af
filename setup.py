"""Builds the compiled core. Everything else stands in pyproject.toml.

``PGWIRE_CODEC_SANITIZE=address,undefined`` builds it with these sanitizers, for debugging.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = ("pgwire_codec/_core", "pgwire_codec/capture")


def compiler_arguments() -> tuple[list[str], list[str]]:
    """Give what the compiler and the linker are told beside their defaults."""
    sanitize = os.environ.get("PGWIRE_CODEC_SANITIZE")
    if sanitize:
        flags = [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
        return [*flags, "-O1", "-g"], flags
    if sys.platform == "win32":
        return ["/O2"], []
    return ["-O3", "-g0"], []


def extensions() -> list[Extension]:
    """Give one extension a Cython source.

    What captures is for systems with POSIX's calls: psycopg2's wheels for Windows keep their libpq
    to themselves.
    """
    sources = SOURCES[:1] if sys.platform == "win32" else SOURCES
    compile_args, link_args = compiler_arguments()
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [source.as_posix()],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
        )
        for folder in sources
        for source in sorted(Path(folder).glob("*.pyx"))
    ]


class BuildExt(build_ext):
    """On Windows with clang-cl: Microsoft's compiler has no integers of 128 bits."""

    def build_extensions(self) -> None:
        if sys.platform == "win32":
            self.compiler.initialize()
            self.compiler.cc = "clang-cl"
        super().build_extensions()


setup(cmdclass={"build_ext": BuildExt}, ext_modules=cythonize(extensions(), language_level=3))

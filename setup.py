"""Builds the compiled core. Everything else stands in pyproject.toml.

``PGWIRE_CODEC_SANITIZE=address,undefined`` builds it with these sanitizers, for debugging.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

CORE = Path("pgwire_codec/_core")


def compiler_arguments() -> tuple[list[str], list[str]]:
    """Give what the compiler and the linker are told beside their defaults."""
    sanitize = os.environ.get("PGWIRE_CODEC_SANITIZE")
    if sanitize:
        flags = [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
        return [*flags, "-O1", "-g"], flags
    if sys.platform == "win32":
        return ["/O2"], []
    return ["-O3"], []


def extensions() -> list[Extension]:
    """Give one extension a Cython source."""
    compile_args, link_args = compiler_arguments()
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [source.as_posix()],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
        )
        for source in sorted(CORE.glob("*.pyx"))
    ]


setup(ext_modules=cythonize(extensions(), language_level=3))

"""Builds the limit's loop into the build folder, where it is older than its source."""

from __future__ import annotations

import importlib.util
import sysconfig
from collections.abc import Callable
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Distribution, Extension

from benchmarks.streams import KEPT

SOURCE = Path(__file__).with_name("limit.pyx")


def load_hop() -> Callable[..., int]:
    """Give the loop, built as the core is."""
    built = KEPT / f"limit{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not built.exists() or built.stat().st_mtime < SOURCE.stat().st_mtime:
        _build()
    spec = importlib.util.spec_from_file_location("limit", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hop: Callable[..., int] = module.hop
    return hop


def _build() -> None:
    extension = Extension("limit", [str(SOURCE)], extra_compile_args=["-O3"])
    extensions = cythonize([extension], build_dir=str(KEPT / "c"), quiet=True, force=True)
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = str(KEPT)
    command.build_temp = str(KEPT / "temp")
    command.ensure_finalized()
    command.run()

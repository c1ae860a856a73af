"""Build of the limit's loop in the build folder, repeated when its source changes."""

from __future__ import annotations

import importlib.util
import sysconfig
from collections.abc import Callable
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Distribution, Extension

from benchmarks.change_sets import CACHE

SOURCE = Path(__file__).with_name("limit.pyx")


def load_limit() -> Callable[..., int]:
    """Return the loop, built as the core is."""
    built = CACHE / f"limit{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not built.exists() or built.stat().st_mtime < SOURCE.stat().st_mtime:
        _build()
    spec = importlib.util.spec_from_file_location("limit", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    skip_columns: Callable[..., int] = module.skip_columns
    return skip_columns


def _build() -> None:
    extension = Extension("limit", [str(SOURCE)], extra_compile_args=["-O3"])
    extensions = cythonize([extension], build_dir=str(CACHE / "c"), quiet=True, force=True)
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = str(CACHE)
    command.build_temp = str(CACHE / "temp")
    command.ensure_finalized()
    command.run()

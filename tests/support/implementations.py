"""The two implementations, each as one object with all that tests call."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from pgwire_codec._impl import choose


@dataclass(frozen=True)
class Implementation:
    """An implementation.

    Attributes
    ----------
    name : str
        As ``PGWIRE_CODEC_IMPL`` has it.
    package : module
        What a program calls: Decoder, decode_message and their like.
    functions : module
        What a decoder calls: scan, tuples, decode_columns, decode_values and their like.
    """

    name: str
    package: Any
    functions: Any

    def __getattr__(self, name: str) -> Any:
        """Return a name of either module: ``codec.decode_values``, ``codec.Decoder``."""
        return getattr(self.functions if hasattr(self.functions, name) else self.package, name)


@cache
def implementation(name: str) -> Implementation:
    """Return the implementation ``python`` or ``cython``; skip the test if it is not built."""
    try:
        _, package = choose(name)
    except ImportError as error:
        pytest.skip(str(error))
    functions = importlib.import_module(f"{package.__name__}.implementation")
    return Implementation(name, package, functions)

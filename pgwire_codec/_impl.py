"""Choice of the implementation, by the environment variable ``PGWIRE_CODEC_IMPL``.

Its values are ``python``, ``cython`` and ``auto`` (the default), which takes the compiled one if it
is installed. An explicit request that cannot be met raises.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import OptionError

_MODULES: Final = {"cython": "pgwire_codec._core", "python": "pgwire_codec.reference"}


def choose(request: str) -> tuple[str, Any]:
    """Return the name and the module of the requested implementation.

    Raises
    ------
    OptionError
        If the request is not auto, cython or python.
    ImportError
        If the compiled implementation is requested and is not installed, or does not load.
    """
    if request == "auto":
        request = "cython" if _is_compiled() else "python"
    if request not in _MODULES:
        raise OptionError(f"PGWIRE_CODEC_IMPL must be auto, cython or python, not {request!r}")
    if request == "cython" and not _is_compiled():
        raise ImportError("PGWIRE_CODEC_IMPL=cython, but this installation has no compiled core")
    return request, importlib.import_module(_MODULES[request])


def _is_compiled() -> bool:
    """Return whether the compiled core is installed, even if it does not load."""
    core = Path(__file__).with_name("_core")
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    return any(path.name.endswith(suffixes) for path in (core / "wire").glob("scan.*"))


__all__ = [
    "IMPL",
    "Decoder",
    "decode_frame",
    "decode_message",
    "encode_message",
]

IMPL, _module = choose(os.environ.get("PGWIRE_CODEC_IMPL") or "auto")

if TYPE_CHECKING:
    from pgwire_codec.reference import (
        Decoder,
        decode_frame,
        decode_message,
        encode_message,
    )
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(_module, name)

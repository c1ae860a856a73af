"""The one place that chooses the implementation.

``PGWIRE_CODEC_IMPL`` says which: ``python``, ``cython``, or ``auto`` (the default), which takes the
compiled one where it is installed. An explicit request that cannot be met raises.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import OptionError

_MODULES: Final = {"cython": "pgwire_codec._core.codec", "python": "pgwire_codec.reference"}


def choose(request: str) -> tuple[str, Any]:
    """Give the name and the module of the implementation that was asked for.

    Raises
    ------
    OptionError
        For a word that is none of auto, cython and python.
    ImportError
        When the compiled implementation was asked for and is not installed, or does not load.
    """
    if request == "auto":
        request = "cython" if _is_compiled() else "python"
    if request not in _MODULES:
        raise OptionError(f"PGWIRE_CODEC_IMPL must be auto, cython or python, not {request!r}")
    if request == "cython" and not _is_compiled():
        raise ImportError("PGWIRE_CODEC_IMPL=cython, but this installation has no compiled core")
    return request, importlib.import_module(_MODULES[request])


def _is_compiled() -> bool:
    """Whether the compiled core is there at all; one that does not load is another matter."""
    core = Path(__file__).with_name("_core")
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    return (core / "codec.py").exists() and any(
        path.name.endswith(suffixes) for path in core.glob("scan.*")
    )


__all__ = [
    "IMPL",
    "Decoder",
    "decode_frame",
    "decode_message",
    "encode_batch",
    "encode_message",
]

IMPL, _module = choose(os.environ.get("PGWIRE_CODEC_IMPL") or "auto")

if TYPE_CHECKING:
    from pgwire_codec.reference import (
        Decoder,
        decode_frame,
        decode_message,
        encode_batch,
        encode_message,
    )
else:
    Decoder = _module.Decoder
    decode_frame = _module.decode_frame
    decode_message = _module.decode_message
    encode_batch = _module.encode_batch
    encode_message = _module.encode_message

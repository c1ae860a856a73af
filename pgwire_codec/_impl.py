"""The one place that chooses the implementation.

``PGWIRE_CODEC_IMPL`` says which: ``python``, ``cython``, or ``auto`` (the default), which takes the
compiled one where it is installed. An explicit request that cannot be met raises.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import TYPE_CHECKING, Any, Final

from pgwire_codec.errors import OptionError

_MODULES: Final = {"cython": "pgwire_codec._core", "python": "pgwire_codec.reference"}


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
        compiled = importlib.util.find_spec(_MODULES["cython"]) is not None
        request = "cython" if compiled else "python"
    if request not in _MODULES:
        raise OptionError(f"PGWIRE_CODEC_IMPL must be auto, cython or python, not {request!r}")
    try:
        return request, importlib.import_module(_MODULES[request])
    except ModuleNotFoundError as error:
        if error.name != _MODULES[request]:
            raise
        raise ImportError(
            "PGWIRE_CODEC_IMPL=cython, but this installation has no compiled core"
        ) from None


__all__ = ["IMPL", "Decoder", "decode_frame", "decode_message", "encode_message"]

IMPL, _module = choose(os.environ.get("PGWIRE_CODEC_IMPL") or "auto")

if TYPE_CHECKING:
    from pgwire_codec.reference import Decoder, decode_frame, decode_message, encode_message
else:
    Decoder = _module.Decoder
    decode_frame = _module.decode_frame
    decode_message = _module.decode_message
    encode_message = _module.encode_message

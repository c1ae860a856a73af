"""The codec in Cython, under the names of :mod:`pgwire_codec.reference`."""

from typing import TYPE_CHECKING, Any, ClassVar

from pgwire_codec._core import implementation
from pgwire_codec._core.messages.decode import decode_frame, decode_message
from pgwire_codec._core.messages.encode import encode_message
from pgwire_codec.codec.interface import Codec
from pgwire_codec.decoder import BaseDecoder

if TYPE_CHECKING:
    from pgwire_codec._core.columns.encode_batch import encode_batch

__all__ = ["Decoder", "decode_frame", "decode_message", "encode_batch", "encode_message"]


class Decoder(BaseDecoder):
    __doc__ = BaseDecoder.__doc__
    codec: ClassVar[Codec] = implementation


def __getattr__(name: str) -> Any:
    # Imported at first use: encode_batch needs the reference, and decoding seldom does.
    if name != "encode_batch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pgwire_codec._core.columns.encode_batch import encode_batch

    return encode_batch

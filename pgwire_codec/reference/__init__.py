"""The codec in Python: plain, complete, the oracle that the compiled one is tested against."""

from typing import ClassVar

from pgwire_codec.codec.interface import Codec
from pgwire_codec.decoder import BaseDecoder
from pgwire_codec.reference import implementation
from pgwire_codec.reference.codec import decode_frame, decode_message, encode_message
from pgwire_codec.reference.encode import encode_batch

__all__ = ["Decoder", "decode_frame", "decode_message", "encode_batch", "encode_message"]


def __dir__() -> list[str]:
    return __all__


class Decoder(BaseDecoder):
    __doc__ = BaseDecoder.__doc__
    codec: ClassVar[Codec] = implementation

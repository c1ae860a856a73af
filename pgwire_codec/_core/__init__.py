"""The codec in Cython, under the names of :mod:`pgwire_codec.reference`."""

from typing import ClassVar

from pgwire_codec._core import implementation
from pgwire_codec._core.messages.decode import decode_frame, decode_message
from pgwire_codec._core.messages.encode import encode_message
from pgwire_codec.codec.interface import Codec
from pgwire_codec.decoder import BaseDecoder

__all__ = ["Decoder", "decode_frame", "decode_message", "encode_message"]


class Decoder(BaseDecoder):
    __doc__ = BaseDecoder.__doc__
    codec: ClassVar[Codec] = implementation

"""The pure-Python codec: plain, complete, the oracle that the compiled one is tested against."""

from pgwire_codec.reference.codec import decode_frame, decode_message, encode_message

__all__ = ["decode_frame", "decode_message", "encode_message"]

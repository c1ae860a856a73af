"""Summaries by the implementation that is chosen: the front of :mod:`pgwire_codec.summary`."""

from __future__ import annotations

from pgwire_codec._impl import Decoder
from pgwire_codec.summary import Summary, check_on_error, summarise_with


def summarise(messages: object, *, on_error: str = "raise") -> Summary:
    """Say what a part of a stream does to the state of a decoder, whatever came before it.

    Parameters
    ----------
    messages : sequence of bytes-likes, or Arrow array of binary, large_binary or binary_view
        As for ``Decoder.decode``: any run of messages, cut anywhere.
    on_error : {"raise", "skip"}
        As for ``Decoder``.

    Returns
    -------
    Summary
        Picklable. It grows with relations, with streamed and prepared transactions and their
        subtransactions, never with messages or plain transactions.

    Raises
    ------
    DecodeError
        For the first message that does not decode. Where nothing in the part tells whether it
        begins inside a stream block, the error waits for the fold, which knows.
    """
    return summarise_with(
        messages,
        Decoder.codec.scan,
        Decoder.codec.decode_message,
        skip=check_on_error(on_error),
    )

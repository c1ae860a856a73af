"""Summaries of parts of a stream, by the implementation that is chosen."""

from __future__ import annotations

from pgwire_codec._impl import Decoder
from pgwire_codec.transactions.summary import Summariser, Summary


def summarise(messages: object, *, on_error: str = "raise", new_session: bool = False) -> Summary:
    """Summarise the effect of a part of a stream on a decoder's state, whatever came before it.

    Parameters
    ----------
    messages : sequence of bytes-likes, or Arrow array of binary, large_binary or binary_view
        As for ``Decoder.decode``: any run of messages, cut anywhere.
    on_error : {"raise", "skip"}
        As for ``Decoder``.
    new_session : bool
        Whether the part is the first of a new connection; see ``Decoder.new_session``.

    Returns
    -------
    Summary
        Picklable. It grows with relations, with streamed and prepared transactions and their
        subtransactions, never with messages or plain transactions.

    Raises
    ------
    DecodeError
        For the first message that does not decode. If no message of the part shows whether it
        begins inside a stream block, the fold raises the error.
    """
    summariser = summarise_pieces(on_error=on_error, new_session=new_session)
    summariser.add(messages)
    return summariser.summary()


def summarise_pieces(
    *,
    on_error: str = "raise",
    new_session: bool = False,
    in_block: bool | None = None,
    delivered_lsn: int = 0,
    heads: bool = False,
) -> Summariser:
    """Begin the summary of a part that comes in pieces: ``add`` each, then ask for ``summary``.

    ``in_block`` says whether the part begins inside a stream block, if that is known, and
    ``delivered_lsn`` is the commit LSN of the last transaction delivered before it. With ``heads``
    changes may be cut off after the relation's OID: what they contain is not checked.
    """
    return Summariser(
        Decoder.codec,
        on_error=on_error,
        new_session=new_session,
        in_block=in_block,
        delivered_lsn=delivered_lsn,
        heads=heads,
    )

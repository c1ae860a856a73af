"""Relation messages in the batches of a capture."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pgwire_codec._impl import decode_message
from pgwire_codec.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgwire_codec.capture.batch import MessageBatch
    from pgwire_codec.protocol.messages import Relation

_RELATION: Final = ord("R")


def sent_relations(batch: MessageBatch) -> Iterator[Relation]:
    """Yield the Relations of a batch that decode; the log stores the others unchanged."""
    tags = batch.buffer[batch.offsets[:-1]]
    if _RELATION not in tags.tobytes():
        return
    for place in np.flatnonzero(tags == _RELATION).tolist():
        start, end = batch.offsets[place : place + 2].tolist()
        data = batch.buffer[start:end].tobytes()
        for streaming in (False, True):  # then it has a transaction ID more
            with suppress(DecodeError):
                message: Any = decode_message(data, streaming=streaming)
                yield message
                break

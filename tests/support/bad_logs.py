"""Captures in which some messages do not decode, and the dead letters that a log has of them."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Any

import pgwire_codec as pgc
from tests.support.corpus import Capture

#: One of so many messages is damaged.
EVERY = 7


class Damaged(Capture):
    """A capture of which some messages are cut short, or have a value or a tag of other bytes."""

    @cached_property
    def messages(self) -> list[bytes]:
        return with_damage(super().messages)


def with_damage(messages: list[bytes]) -> list[bytes]:
    """Return messages of which some are damaged."""
    found = list(messages)
    for place in range(EVERY, len(found), EVERY):
        data = found[place]
        if data[:1] in (b"I", b"U", b"D"):
            found[place] = data[:-1] if place % 2 else data[:-1] + b"\xff"
        elif data[:1] in (b"B", b"C", b"M") and place % 5 == 0:
            found[place] = b"?" + data[1:]
    return found


def damaged(capture: Capture) -> Damaged:
    """Return a capture with damage."""
    return Damaged(*(getattr(capture, field.name) for field in fields(capture)))


def serial(capture: Capture, **options: Any) -> tuple[pgc.Changes, dict[int, pgc.Rejected]]:
    """Return the changes from one decoder, and the dead letters of a log of them, by ordinal.

    A log has no letters of transactions that came before, nor of those after the last commit.
    """
    decoder = pgc.Decoder(on_error="skip", **options)
    changes = decoder.decode(capture.messages, capture.lsns)
    end = decoder.carry.delivered_lsn
    return changes, {
        each.message_index: each
        for each in changes.rejected
        if each.after_lsn < end and (each.commit_lsn is None or each.commit_lsn > each.after_lsn)
    }

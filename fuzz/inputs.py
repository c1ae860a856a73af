"""Meaning of a fuzzer's input, and the initial inputs.

An input is a byte for the action, a byte of options, and parts, each after its length in two bytes.
The rest after the last whole part is a part, too, so every input has a meaning.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from functools import cache

from pgwire_codec.types.builtin import BUILTIN
from tests.families.golden import GOLDEN
from tests.support.build import walk
from tests.support.corpus import captures
from tests.support.golden import FRAMES, MESSAGES

#: Actions: decode single messages, a stream, or values of one type.
SINGLE, STREAM, VALUES = range(3)
ACTIONS = 3
MAX_SIZE = 4000

Mutate = Callable[[bytes, int], bytes]


def pack(action: int, options: int, parts: list[bytes]) -> bytes:
    framed = b"".join(struct.pack(">H", len(part)) + part for part in parts)
    return bytes([action, options]) + framed


def unpack(data: bytes) -> tuple[int, int, list[bytes]]:
    action, options = (data[:2] + b"\0\0")[:2]
    parts, place = [], 2
    while len(data) - place >= 2:
        (size,) = struct.unpack_from(">H", data, place)
        parts.append(data[place + 2 : place + 2 + size])
        place += 2 + size
    if data[place:]:
        parts.append(data[place:])
    return action % ACTIONS, options, parts


def seeds() -> Iterator[bytes]:
    """Build the initial inputs: each kind of message, transaction and value of the corpus, once."""
    for streaming in (False, True):
        for each in MESSAGES:
            yield pack(SINGLE, streaming, [each.data])
    for frame in FRAMES:
        yield pack(SINGLE, 0, [frame.data])
    yield from (pack(STREAM, number, parts) for number, parts in enumerate_short(transactions()))
    for number, (_, kind, _, array, _, _) in enumerate(BUILTIN):
        forms = [(text.encode(), bytes.fromhex(raw)) for name, text, raw in GOLDEN if name == kind]
        for text, raw in forms or [(b"1", b"\0\0\0\1")]:
            yield pack(VALUES, 0, [bytes([number, 0]), b"t" + text, b"n", b"b" + raw])
            if array:
                yield pack(VALUES, 1, [bytes([number, 1]), b't{"' + text + b'",NULL}', b"t{}"])


def enumerate_short(several: Iterator[list[bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    for number, parts in enumerate(several):
        if sum(map(len, parts)) < MAX_SIZE // 2:
            yield number % 256, parts


def transactions() -> Iterator[list[bytes]]:
    """Beginnings of transactions of the corpus, with the Relations before them; alike ones once."""
    seen = set()
    for capture in captures():
        told: dict[bytes, bytes] = {}
        messages = capture.messages
        for place, (data, streaming) in enumerate(walk(capture)):
            if data[:1] == b"R":
                told[data[5:9] if streaming else data[1:5]] = data if not streaming else b""
            if data[:1] not in b"BSbKr":
                continue
            window = messages[place : place + 6]
            before = [told.get(each[1:5], b"") for each in window if each[:1] in b"IUD"]
            parts = [*dict.fromkeys(filter(None, before)), *window]
            shape = tuple((each[:1], len(each) // 40) for each in parts)
            if shape not in seen:
                seen.add(shape)
                yield parts


@cache
def some_parts() -> tuple[bytes, ...]:
    """Parts to put into inputs: messages and values that servers sent."""
    return tuple(dict.fromkeys(part for seed in seeds() for part in unpack(seed)[2]))


def mutated(data: bytes, size: int, chosen: random.Random, mutate: Mutate) -> bytes:
    """Change an input part by part, so that what was a message stays one, but for a few bytes."""
    action, options, parts = unpack(data)
    what = chosen.randrange(12)
    place = chosen.randrange(len(parts)) if parts else 0
    if what == 0 or not parts:
        parts.insert(place, chosen.choice(some_parts()))
    elif what == 1:
        del parts[place]
    elif what == 2:
        parts.insert(chosen.randrange(len(parts)), parts[place])
    elif what == 3:
        parts[place] = parts[place][: chosen.randrange(len(parts[place]) + 1)]
    elif what == 4:
        options = chosen.randrange(256)
    elif what == 5:
        return mutate(data, size)
    else:
        parts[place] = mutate(parts[place], len(parts[place]) + 16)
    return pack(action, options, [part[:0xFFFF] for part in parts])[:size]


def mutate_plainly(data: bytes, size: int) -> bytes:
    """Change a few bytes at random, for runs without a fuzzing engine."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        place = random.randrange(len(changed) + 1)
        changed[place : place + random.randrange(3)] = random.randbytes(random.randrange(3))
    return bytes(changed[:size])

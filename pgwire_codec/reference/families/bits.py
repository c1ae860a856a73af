"""bit and varbit."""

from __future__ import annotations

from typing import Final

from pgwire_codec.codec.values import ValueProblem
from pgwire_codec.errors import ErrorCode
from pgwire_codec.reference.families.family import Family
from pgwire_codec.reference.families.forms import ValueReader


def _render(raw: bytes) -> bytes:
    reader = ValueReader(raw)
    length = reader.number("i", "bit count")
    if length < 0:
        raise ValueProblem(ErrorCode.BAD_LENGTH, 0, "a bit count of 0 or more")
    packed = reader.take((length + 7) // 8, "bits")
    reader.finish()
    return "".join(f"{byte:08b}" for byte in packed)[:length].encode()


FAMILIES: Final = {"bit": Family(render=_render)}

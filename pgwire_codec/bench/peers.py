"""Other Python decoders of pgoutput, measured where they are installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from pgwire_codec.bench.shapes import Shape


def _pypgoutput(shape: Shape) -> Callable[[], None] | None:
    """Return one object a message, its values as str; pypgoutput reads inserts in text form."""
    if find_spec("pypgoutput") is None or not shape.name.startswith("lineitem text"):
        return None
    insert = import_module("pypgoutput.decoders").Insert
    messages = [] if shape.changes is None else shape.changes.to_pylist()

    def step() -> None:
        for message in messages:
            insert(message)

    return step


#: By name, a function that returns the step for a shape, or None if the peer cannot take it.
PEERS: Final[dict[str, Callable[[Shape], Callable[[], None] | None]]] = {
    "pypgoutput": _pypgoutput,
}

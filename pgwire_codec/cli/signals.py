"""Signals that end a command in order: SIGTERM and SIGINT."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def recorded_signals() -> Iterator[list[int]]:
    """Record SIGTERM and SIGINT in a list; a repeated one has its usual effect."""
    received: list[int] = []
    usual: dict[int, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }

    def note(number: int, _: Any) -> None:
        received.append(number)
        signal.signal(number, usual[number])

    before = {number: signal.signal(number, note) for number in usual}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""File descriptors for readers of a scripted libpq."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def silent() -> Iterator[int]:
    """File descriptor that is never readable."""
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


@pytest.fixture(scope="module")
def readable() -> Iterator[int]:
    """File descriptor that is always readable."""
    reading, writing = os.pipe()
    os.write(writing, b"x")
    yield reading
    os.close(reading)
    os.close(writing)

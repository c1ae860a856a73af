"""The machine of a measurement."""

from __future__ import annotations

import os

from cpuinfo import get_cpu_info


def machine() -> str:
    """Return the number of cores and the name of the processor."""
    model = get_cpu_info().get("brand_raw", "an unknown processor")
    return f"{os.cpu_count()} cores of {model}"

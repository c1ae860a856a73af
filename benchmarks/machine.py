"""What the measurements were made on."""

from __future__ import annotations

import os

from cpuinfo import get_cpu_info


def machine() -> str:
    """Name the processor, and say how many cores of it there are."""
    model = get_cpu_info().get("brand_raw", "an unknown processor")
    return f"{os.cpu_count()} cores of {model}"

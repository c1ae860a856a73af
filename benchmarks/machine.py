"""The machine of a measurement."""

from __future__ import annotations

import os
from typing import Final

from cpuinfo import get_cpu_info


def machine() -> str:
    """Return the number of cores and the name of the processor."""
    model = get_cpu_info().get("brand_raw", "an unknown processor")
    return f"{os.cpu_count()} cores of {model}"


#: Settings of a Spark in which Java has rows: with both of its compilers, as usual. Commands start
#: one with the first compiler only.
BOTH_COMPILERS: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}

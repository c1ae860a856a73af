"""A log on one HTML page.

>>> from pgwire_codec import log, report
>>> page = report.render(report.gather(log.Log("shop.log")))

The page is one file: it loads nothing, runs nothing, and follows the reader's choice of light or
dark. Needs the extras ``log`` and ``cli``: ``pip install 'pgwire-codec[log,cli]'``. The tables of a
mirror need ``lake``, too.
"""

from pgwire_codec.errors import missing_extra

try:  # asked for here, so that the message is a clear one
    import jinja2  # noqa: F401
except ImportError as error:
    raise missing_extra("pgwire_codec.report needs jinja2", "cli") from error

from pgwire_codec.report.findings import (
    Findings,
    Lags,
    LakeFindings,
    LakeTable,
    LargeTransaction,
    LetterCount,
    Problem,
    Problems,
    SchemaChange,
    SchemaChanges,
    TimeLine,
)
from pgwire_codec.report.gather import gather
from pgwire_codec.report.page import render

__all__ = [
    "Findings",
    "Lags",
    "LakeFindings",
    "LakeTable",
    "LargeTransaction",
    "LetterCount",
    "Problem",
    "Problems",
    "SchemaChange",
    "SchemaChanges",
    "TimeLine",
    "gather",
    "render",
]

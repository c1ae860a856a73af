"""A log on one page, for people who would rather look than read.

>>> from pgwire_codec import log, report
>>> page = report.render(report.gather(log.Log("shop.log")))

The page stands by itself: it fetches nothing, runs nothing, and follows the reader's choice of
light or dark. Needs the extra ``arrow``.
"""

from pgwire_codec.report.findings import (
    Findings,
    Lags,
    LargeTransaction,
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
    "LargeTransaction",
    "Problem",
    "Problems",
    "SchemaChange",
    "SchemaChanges",
    "TimeLine",
    "gather",
    "render",
]

"""Sessions with settings for one statement, while other threads run others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pgwire_codec.spark.sinks.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def session_with(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a copy of a session that has other settings, for this thread only.

    Copies are used again: each has catalogs of its own, which Spark never closes. Of temporary
    views, a copy has only the global ones.
    """
    found: Any = spark
    idle = _idle_copies(found._jsparkSession.sessionUUID())
    try:
        copy = idle.pop()
    except IndexError:
        copy = type(found)(found.sparkContext, found._jsparkSession.cloneSession())
    held = _settings(copy)
    held.clear()
    held.putAll(_settings(found))
    for name, value in settings.items():
        copy.conf.set(name, value)
    try:
        yield copy
    finally:
        idle.append(copy)


@contextmanager
def global_view(spark: Any, rows: DataFrame) -> Iterator[str]:
    """Yield the name, in SQL, of a view of rows that all sessions have."""
    view = f"pgwire_codec_{uuid4().hex}"
    rows.createGlobalTempView(view)
    try:
        yield f"{quoted(spark.conf.get('spark.sql.globalTempDatabase'))}.{view}"
    finally:
        spark.catalog.dropGlobalTempView(view)


def _settings(session: Any) -> Any:
    """Return the settings of a session, a map of Java."""
    return session._jsparkSession.sessionState().conf().settings()


@lru_cache(maxsize=8)
def _idle_copies(session: str) -> deque[Any]:
    """Return the copies of a session that no thread uses."""
    return deque()

"""compare: whether the tables of a lake have the rows that the server's tables have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pgwire_codec.comparing.comparison_run import (
    JOBS,
    MAX_ROWS,
    WAIT,
    ComparisonOptions,
    ComparisonRun,
)
from pgwire_codec.comparing.result import Comparison
from pgwire_codec.lake.lakehouse import Lake
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.lake.runners.threads import Threads
from pgwire_codec.log import Log
from pgwire_codec.options import DecoderOptions

__all__ = ["compare"]


def __dir__() -> list[str]:
    return __all__


def compare(
    log: str | os.PathLike[str] | Log,
    target: str,
    dsn: str,
    tables: str | Sequence[str] = "*",
    *,
    publication: str | Sequence[str] = (),
    wait: float = WAIT,
    jobs: int = JOBS,
    max_rows: int = MAX_ROWS,
    storage_options: Mapping[str, str] | None = None,
    types: str = "native",
    numeric: str = "string",
    unrepresentable: str = "raise",
) -> Comparison:
    """Compare Delta tables that a mirror keeps with those of the server, in this process.

    It is for databases that fit one machine: threads run what :func:`pgwire_codec.spark.compare`
    has Spark's executors do. Its description is that of the arguments, and of the states of a
    table. The mirror may be one with Spark or without it.

    Parameters
    ----------
    log : str, path or Log
        Location of the log that is mirrored, or the log.
    target : str
        ``delta:LOCATION``, a path or URI of the folder of the tables.
    dsn : str
        libpq connection string or URI of the server, which must not be a standby.
    tables : str or sequence of str
        Names of tables, and patterns such as ``public.*``; by default all tables of the log.
    publication, wait, jobs, max_rows, storage_options
        As for :func:`pgwire_codec.spark.compare`.
    types, numeric, unrepresentable
        As for :class:`pgwire_codec.Decoder`, and as of the mirror.

    Returns
    -------
    Comparison
        Its ``tables`` have the state of each, and ``is_equal`` is true if all are ``equal``.

    Raises
    ------
    CaptureError
        When the server cannot be read.
    LogError
        When the log does not exist, or is damaged.
    OptionError
        For an invalid option.
    TableError
        For a name that no relation has.

    Examples
    --------
    >>> compare("shop.log", "delta:/lake/shop", "dbname=shop").is_equal  # doctest: +SKIP
    """
    decoder = DecoderOptions(
        types=types, numeric=numeric, unrepresentable=unrepresentable, arrow_types=ROW_TYPES
    )
    options = ComparisonOptions(tables, publication, wait, jobs, max_rows, decoder)
    lake = Lake.parse(target, storage_options)
    return ComparisonRun(Threads(), log, lake, dsn, options).run()

"""Options of the commands that read a log and the tables of a lakehouse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pgwire_codec.errors import missing_extra

if TYPE_CHECKING:
    from pgwire_codec.lake.lakehouse import Lake
    from pgwire_codec.lake.runners.runner import Runner

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _settings(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE")
        found[name] = value
    return found


log_option: Final = click.option(
    "--log", required=True, metavar="DIR", help="Directory or URI of the log."
)

tables_option: Final = click.option(
    "--tables",
    default="*",
    show_default=True,
    help="Names of tables and patterns, separated by commas.",
)

conf_option: Final = click.option(
    "--conf",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_settings,
    help="Setting of Spark (repeatable), as spark.driver.memory=4g.",
)

runner_option: Final = click.option(
    "--runner",
    type=click.Choice(["spark", "local"]),
    default="spark",
    show_default=True,
    help="Program that does the work: Spark on this machine, or this process, for databases that "
    "fit one machine.",
)

json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON lines. Default: only without a terminal."
)


def to_option(text: str) -> Callable[[_Command], _Command]:
    """Return the option ``--to``, with its help."""
    return click.option("--to", "target", required=True, metavar="TARGET", help=text)


@contextmanager
def opened_lake(target: str, conf: Mapping[str, str]) -> Iterator[Lake]:
    """Open the lake of a target, for which Spark is started if it is in a catalog of Spark's."""
    from pgwire_codec.lake.lakehouse import ICEBERG, Lake, parse_target

    with ExitStack() as entered:
        spark = None
        if parse_target(target)[0] == ICEBERG:
            local = spark_module("local", "an Iceberg table")
            spark = entered.enter_context(local.local_spark(conf, ICEBERG))
        yield Lake.parse(target, None, spark)


@contextmanager
def opened_runner(
    runner: str,
    target: str,
    conf: Mapping[str, str],
    user: str,
    **lake: Any,
) -> Iterator[tuple[Lake, Runner]]:
    """Open the lake of a target, and what runs its tasks: a Spark that is started, or threads.

    Only a catalog needs a session of Spark; see :func:`spark_module` about ``user``.
    """
    from pgwire_codec.lake.lakehouse import ICEBERG, Lake, parse_target
    from pgwire_codec.lake.runners.threads import Threads

    with ExitStack() as entered:
        spark = None
        tasks: Runner = Threads()
        kind, _ = parse_target(target)
        if runner == "spark":
            local = spark_module("local", user)
            if kind == ICEBERG:
                spark = entered.enter_context(local.local_spark(conf, kind))
                started = spark.sparkContext
            else:
                started = entered.enter_context(local.local_context(conf))
            tasks = spark_module("runner", user).SparkRunner(started)
        yield Lake.parse(target, None, spark, **lake), tasks


def spark_module(name: str, user: str) -> Any:
    """Return a module of the package's part for Spark; ``user`` needs it.

    Raises ``MissingExtraError`` if Spark, or what comes with it, is not installed.
    """
    try:
        return import_module(f"pgwire_codec.spark.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "pgwire_codec").partition(".")[0] == "pgwire_codec":
            raise
        raise missing_extra(f"{user} needs {error.name}", "spark") from error

"""``pgwire-codec log add-table``: copy all rows of tables into a log again."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from pgwire_codec.cli import RETRY
from pgwire_codec.cli.arguments import PASSWORD_COMMAND, DsnCommand, name_options
from pgwire_codec.cli.failure import Failure, exit_code_of
from pgwire_codec.errors import CaptureError
from pgwire_codec.format import printable

if TYPE_CHECKING:
    from pgwire_codec.log import TableRequest, TableRequests

_POLL_SECONDS: Final = 0.2
_QUIET_SECONDS: Final = 1.0  # before the first line
_RETRY_SECONDS: Final = 5.0  # after a copy that failed for a reason that can pass

_EPILOG = """\b
Examples:
  pgwire-codec log add-table --table public.orders --dsn "host=db dbname=shop" shop.log
  pgwire-codec log add-table --table public.orders --timeout 600 shop.log
  pgwire-codec log add-table --table public.orders --no-wait shop.log
"""


@click.command("add-table", cls=DsnCommand, epilog=_EPILOG)
@click.argument("directory", metavar="DIR")
@click.option(
    "--table",
    "tables",
    multiple=True,
    required=True,
    metavar="SCHEMA.TABLE",
    help="Name of a published table (repeatable).",
)
@click.option(
    "--dsn",
    default="",
    help="libpq connection string or URI, for a log that no capture writes. Default: PGHOST etc.",
)
@PASSWORD_COMMAND
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Wait until the rows are in the log."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End after this time, and leave the request to the log's capture. Default: any time.",
)
def add_table(
    directory: str,
    tables: tuple[str, ...],
    dsn: str,
    password_command: str | None,
    wait: bool,
    timeout: float | None,
) -> None:
    """Copy all rows of tables into a log again.

    For a table that joined the publication after the capture began, and to repair one. The rows
    are a transaction that truncates the tables first. A running capture of the log copies them, and
    this command waits for it. If no capture writes the log, this command continues the log up to
    the copy itself. Only for a log in an object store, it cannot know that.
    """
    from pgwire_codec.capture import with_password_command
    from pgwire_codec.log import Log, TableRequests

    Log(directory)  # an error if it does not exist
    requests = TableRequests(directory)
    name = requests.add(tables)
    names = printable(", ".join(tables))
    if not wait:
        click.echo(f"requested {names}")
        return
    dsn = with_password_command(dsn, password_command)
    try:
        request = _Fulfilment(directory, requests, name, names, dsn, timeout).run()
    except KeyboardInterrupt:
        raise Failure(_remains(names)) from None
    if request is not None:
        requests.remove(name)
        raise Failure(f"not copied: {names}: {request.error}", hint=request.hint)
    click.echo(f"copied {names}")


def _remains(names: str) -> str:
    return f"the request of {names} remains, and a capture will fulfil it"


class _Fulfilment:
    """A request until it is fulfilled: by the capture of the log, or by this process."""

    def __init__(
        self,
        directory: str,
        requests: TableRequests,
        name: str,
        names: str,
        dsn: str,
        timeout: float | None,
    ) -> None:
        self._directory = directory
        self._requests = requests
        self._name = name
        self._names = names
        self._dsn = dsn
        self._began = time.monotonic()
        self._timeout = float("inf") if timeout is None else timeout
        self._reported: str | None = None

    def run(self) -> TableRequest | None:
        """Return None once the rows are in the log, or the request that cannot be fulfilled."""
        next_look = 0.0
        waits_for = "for the capture of the log, which has to be running"
        while (request := self._requests.get(self._name)) is not None and request.error is None:
            now = time.monotonic()
            if self._requests.is_local and now >= next_look:
                writer = self._requests.writer()
                if writer is None:
                    self._copy()
                    next_look = time.monotonic() + _RETRY_SECONDS
                    continue
                waits_for = f"for {writer}, which writes the log"
                next_look = now + _QUIET_SECONDS
            self._report(f"waiting {waits_for}, to copy {self._names}", request.problem)
            time.sleep(_POLL_SECONDS)
        return request

    def _report(self, text: str, problem: str | None) -> None:
        """Print what is waited for, if it has changed; end after the timeout."""
        text += "" if problem is None else f"; the last attempt failed: {printable(problem)}"
        waited = time.monotonic() - self._began
        if waited >= self._timeout:
            raise Failure(
                f"not copied within {self._timeout:g} s, {text}",
                RETRY,
                hint=f"{_remains(self._names).capitalize()}.",
            )
        if waited >= _QUIET_SECONDS and text != self._reported:
            click.echo(text, err=True)
            self._reported = text

    def _copy(self) -> None:
        """Continue the log up to the copy, unless a capture begins meanwhile."""
        from concurrent.futures import ThreadPoolExecutor

        from pgwire_codec.capture import LogCapture, PluginOptions, SegmentOptions
        from pgwire_codec.cli.capture import capture
        from pgwire_codec.log import Log
        from pgwire_codec.log.store_errors import LogInUseError

        source = Log(self._directory).source
        running = LogCapture(
            self._dsn,
            self._directory,
            slot=source.slot,
            options=PluginOptions.from_plugin(source.plugin_options),
            segments=SegmentOptions(file_mode=self._requests.file_mode()),
            max_retries=0,
        )
        # An LSN that is reached at once: the log ends with the copy.
        with ThreadPoolExecutor(1) as thread:
            copied = thread.submit(running.run, until_lsn=1)
            try:
                while not copied.done():
                    self._report(f"copying {self._names}, since no capture writes the log", None)
                    time.sleep(_POLL_SECONDS)
            finally:
                running.stop()
        try:
            with suppress(LogInUseError):
                copied.result()
        except CaptureError as error:
            advice = name_options(error.hint or "", capture, "pgwire-codec capture")
            raise Failure(
                f"no capture writes the log, and it cannot be continued: {error.primary}",
                exit_code_of(error),
                hint=f"{advice} {_remains(self._names).capitalize()}.".strip(),
            ) from error

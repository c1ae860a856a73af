"""Health of a capture or a mirror, as the endpoint reports it."""

from __future__ import annotations

from typing import Final, Protocol

#: Seconds without progress after which a process is not healthy.
STALLED_AFTER: Final = 60.0


class Health(Protocol):
    """Health of a process, which may be asked for by any thread."""

    @property
    def failure(self) -> str | None:
        """Reason for which the process is not healthy, if there is one."""

    @property
    def unreadiness(self) -> str | None:
        """Reason for which it does not do its work now, if there is one."""

"""A kernel of Jupyter, and what the cells show that it runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SECONDS = 60  # after which a cell has failed


@dataclass
class Cell:
    """Output of a cell: the forms of its results by MIME type, its error."""

    shown: dict[str, str] = field(default_factory=dict)
    printed: str = ""
    error: str | None = None

    @property
    def text(self) -> str:
        assert self.error is None, self.error
        return self.shown["text/plain"]

    @property
    def html(self) -> str:
        assert self.error is None, self.error
        return self.shown["text/html"]


class Notebook:
    """Runs cells in a kernel."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, code: str) -> Cell:
        cell = Cell()

        def take(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] in ("execute_result", "display_data"):
                cell.shown |= content["data"]
            elif message["msg_type"] == "stream":
                cell.printed += content["text"]
            elif message["msg_type"] == "error":
                cell.error = f"{content['ename']}: {content['evalue']}"

        self._client.execute_interactive(code, output_hook=take, timeout=_SECONDS)
        return cell

    def complete(self, code: str) -> list[str]:
        """Return what the kernel proposes after the code."""
        reply = self._client.complete(code, reply=True, timeout=_SECONDS)
        start = reply["content"]["cursor_start"]
        return [code[:start] + match for match in reply["content"]["matches"]]


@contextlib.contextmanager
def notebook(folder: Path) -> Iterator[Notebook]:
    """Start a kernel of this Python in a folder, where it also has its own files."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager(transport="ipc", ip=str(folder / "kernel"))
    assert manager.kernel_spec.argv[0] in ("python", sys.executable)
    manager.start_kernel(cwd=str(folder))
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=_SECONDS)
        yield Notebook(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.context.term()

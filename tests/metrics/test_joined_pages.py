"""The pages of several processes on one port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pgwire_codec.metrics.http_server import HttpServer, Start, plain_text
from pgwire_codec.metrics.joined_pages import JoinedPages
from tests.support.metric_pages import Served


class Process:
    """Endpoint of a process: a metric of its name, and problems that a test sets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: dict[str, str] = {}
        self.server = HttpServer("127.0.0.1:0")
        self.server.serve(self._answer)

    def _answer(self, environ: dict[str, Any], start: Start) -> list[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return plain_text(start, "200 OK", f"# TYPE {self.name} gauge\n{self.name} 1.0")
        problem = self.problems.get(path)
        status = "200 OK" if problem is None else "503 Service Unavailable"
        return plain_text(start, status, problem or "ok")


@pytest.fixture
def processes() -> Iterator[dict[str, Process]]:
    made = {name: Process(name) for name in ("capture", "mirror")}
    with ExitStack() as entered:
        for each in made.values():
            entered.enter_context(each.server)
        yield made


@pytest.fixture
def ports(processes: dict[str, Process]) -> dict[str, int | None]:
    return {name: each.server.port for name, each in processes.items()}


@pytest.fixture
def served(ports: dict[str, int | None]) -> Iterator[Served]:
    with HttpServer("127.0.0.1:0") as server:
        server.serve(JoinedPages(lambda: ports))
        yield Served(server.port)


def test_the_page_has_the_metrics_of_all(served: Served, ports: dict[str, int | None]) -> None:
    text = "# TYPE capture gauge\ncapture 1.0\n# TYPE mirror gauge\nmirror 1.0\n"
    assert served.get("/metrics") == (200, text)
    ports["mirror"] = None
    assert served.get("/metrics") == (200, text[: text.index("# TYPE mirror")])
    assert served.get("/other")[0] == 404


def test_a_problem_of_one_is_that_of_all(served: Served, processes: dict[str, Process]) -> None:
    assert served.get("/healthz") == served.get("/readyz") == (200, "ok\n")
    processes["capture"].problems = {"/readyz": "waiting"}
    processes["mirror"].problems = {"/healthz": "no progress"}
    assert served.get("/readyz") == (503, "capture: waiting\n")
    assert served.get("/healthz") == (503, "mirror: no progress\n")


def test_a_process_that_does_not_run_is_not_ready(
    served: Served, ports: dict[str, int | None], processes: dict[str, Process]
) -> None:
    ports["mirror"] = None
    assert served.get("/healthz") == (200, "ok\n")  # it is started again
    assert served.get("/readyz") == (503, "mirror does not run\n")
    processes["capture"].server.__exit__()
    status, text = served.get("/healthz")
    assert (status, text.partition(":")[0]) == (503, "capture")

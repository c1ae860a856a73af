"""A read-only S3 server of a folder, in a process of its own, that adds a delay to each request."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bench"
_PAGE = 1000  # objects in a response, as S3 has
_TIME = "2026-01-01T00:00:00.000Z"


class ObjectServer:
    """A running server.

    Attributes
    ----------
    uri : str
        URI of the bucket for ``pyarrow.fs``, without options.
    options : str
        Options of a URI.
    """

    def __init__(self, port: int, requests: Any, sent: Any) -> None:
        self.uri = f"s3://{BUCKET}"
        self.options = f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        self._requests = requests
        self._sent = sent

    @property
    def requests(self) -> int:
        """Number of requests so far."""
        found: int = self._requests.value
        return found

    @property
    def bytes_sent(self) -> int:
        """Number of bytes in the bodies of all responses so far."""
        found: int = self._sent.value
        return found


@contextmanager
def serve(folder: Path, delay: float) -> Iterator[ObjectServer]:
    """Serve a folder on loopback as a bucket; each response takes ``delay`` seconds longer."""
    context = get_context("spawn")
    requests, sent, port = context.Value("q", 0), context.Value("q", 0), context.Queue()
    process = context.Process(target=_run, args=(folder, delay, requests, sent, port), daemon=True)
    process.start()
    given = {"AWS_ACCESS_KEY_ID": "some", "AWS_SECRET_ACCESS_KEY": "secret"}
    given["AWS_EC2_METADATA_DISABLED"] = "true"
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield ObjectServer(port.get(timeout=60), requests, sent)
    finally:
        process.terminate()
        process.join()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _run(folder: Path, delay: float, requests: Any, sent: Any, port: Any) -> None:
    paths = (path for path in folder.rglob("*") if path.is_file())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    keys = sorted(sizes)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None: ...

        def do_HEAD(self) -> None:
            self._answer(is_head=True)

        def do_GET(self) -> None:
            self._answer(is_head=False)

        def _answer(self, *, is_head: bool) -> None:
            time.sleep(delay)
            url = urlsplit(self.path)
            key = unquote(url.path).removeprefix(f"/{BUCKET}").strip("/")
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            if "list-type" in query:
                self._send(200, "application/xml", _page(keys, sizes, query))
            elif key not in sizes:
                error = b"<Error><Code>NoSuchKey</Code></Error>"
                self._send(404, "application/xml", b"" if is_head else error)
            elif is_head:
                self._send(200, "binary/octet-stream", b"", sizes[key])
            else:
                first, last = _range(self.headers.get("Range"), sizes[key])
                with (folder / key).open("rb") as file:
                    file.seek(first)
                    data = file.read(last + 1 - first)
                self._send(206 if "Range" in self.headers else 200, "binary/octet-stream", data)

        def _send(self, status: int, kind: str, body: bytes, size: int | None = None) -> None:
            with requests.get_lock():
                requests.value += 1
                sent.value += len(body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body) if size is None else size))
            self.send_header("Last-Modified", formatdate(0, usegmt=True))
            self.send_header("ETag", '"0"')
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.put(server.server_port)
    server.serve_forever()


def _page(keys: list[str], sizes: dict[str, int], query: dict[str, str]) -> bytes:
    """Return a page of a listing: of objects, in the order of their names."""
    prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
    found = [key for key in keys[bisect_right(keys, after) :] if key.startswith(prefix)]
    entries = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>{_TIME}</LastModified>"
        f"<ETag>0</ETag><Size>{sizes[key]}</Size></Contents>"
        for key in found[:_PAGE]
    )
    more = len(found) > _PAGE
    token = f"<NextContinuationToken>{found[_PAGE - 1]}</NextContinuationToken>" if more else ""
    return (
        f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
        f"<KeyCount>{len(found[:_PAGE])}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>"
        f"{token}{entries}</ListBucketResult>"
    ).encode()


def _range(header: str | None, size: int) -> tuple[int, int]:
    """Return the first and the last byte of a request."""
    if header is None:
        return 0, size - 1
    first, _, last = header.removeprefix("bytes=").partition("-")
    return int(first), min(int(last or size), size - 1)

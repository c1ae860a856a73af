"""An S3 server on this machine."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def s3(bucket: str) -> Iterator[dict[str, str]]:
    """An S3 server with a bucket; the environment variables that lead to it."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        urllib.request.urlopen(urllib.request.Request(f"{url}/{bucket}", method="PUT")).close()
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "some",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        server.stop()


@contextlib.contextmanager
def s3_options(bucket: str) -> Iterator[dict[str, str]]:
    """An S3 server with a bucket; the options of tables there."""
    with s3(bucket) as variables:
        names = "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
        chosen = {name: variables[name] for name in names}
        yield chosen | {"AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}

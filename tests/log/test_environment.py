"""Options of object stores in the environment."""

from __future__ import annotations

import pytest

from pgwire_codec.log.environment import environment_options


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({}, {}),
        ({"AWS_ENDPOINT_URL": ""}, {}),
        ({"AWS_ENDPOINT_URL": "https://minio"}, {"aws_endpoint_url": "https://minio"}),
        (
            {"AWS_ENDPOINT_URL": "https://other", "AWS_ENDPOINT_URL_S3": "http://minio:9000"},
            {"aws_endpoint_url": "http://minio:9000", "allow_http": "true"},
        ),
    ],
)
def test_endpoints(
    environment: dict[str, str], options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert environment_options() == options

"""Options of object stores that are in the environment, for libraries that do not read them."""

from __future__ import annotations

import os
from typing import Final

#: Endpoints of S3, the one that counts first.
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def environment_options() -> dict[str, str]:
    """Return the options of delta-rs's and obstore's stores that the environment implies.

    ``pyarrow.fs`` connects to an endpoint such as ``http://127.0.0.1:9000`` as it is. Those two
    refuse HTTP without an option for it, and do not read all names of the endpoint.
    """
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
    if not endpoint:
        return {}
    plain = {"allow_http": "true"} if endpoint.startswith("http://") else {}
    return {"aws_endpoint_url": endpoint, **plain}

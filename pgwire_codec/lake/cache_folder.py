"""Folder of this machine for caches, which may be removed at any time."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return the folder of a cache, which is created if it is missing. Raises ``OSError``."""
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from error
    folder = caches / "pgwire_codec" / name
    folder.mkdir(0o700, parents=True, exist_ok=True)
    return folder

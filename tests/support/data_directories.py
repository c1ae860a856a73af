"""Data directories of the tests' servers: copies of one that initdb has made."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

#: Data directories to copy. They stay there for later runs of the tests.
_TEMPLATES = Path(tempfile.gettempdir()) / f"pgwire_codec_initdb_{os.geteuid()}"

#: A file system in memory, and the free space that a few servers need at most.
_MEMORY = Path("/dev/shm")
_SERVERS_BYTES = 4 << 30


def create(data: Path, binaries: Path, user: str | None) -> None:
    """Create a data directory that trusts local users; ``user`` owns it.

    All copies of a template have the same system identifier.
    """
    # Python copies a thousand small files ten times more slowly.
    subprocess.run(["cp", "-a", _template(binaries, user), data], check=True)


def servers_folder() -> Path:
    """Return the folder for temporary servers: in memory, if there is enough of it."""
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _SERVERS_BYTES:
        return _MEMORY
    return Path(tempfile.gettempdir())


def _template(binaries: Path, user: str | None) -> Path:
    """Return the template of these binaries and this locale. The first process makes it."""
    built = (binaries / "postgres").stat()
    locale = [os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")]
    facts = repr((str(binaries.resolve()), built.st_mtime_ns, built.st_size, user, locale))
    folder = _TEMPLATES / hashlib.sha256(facts.encode()).hexdigest()[:16]
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    template, unfinished = folder / "data", folder / "unfinished"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
            if user is not None:
                shutil.chown(folder, user)
            options = ["-N", "-U", "postgres", "-A", "trust", "-E", "UTF8"]
            subprocess.run(
                [binaries / "initdb", *options, "-D", unfinished],
                check=True,
                cwd=folder,
                user=user,
                stdout=subprocess.DEVNULL,
            )
            unfinished.rename(template)
    return template

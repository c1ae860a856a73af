"""Manifest of a log: its identifier and its first segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pgwire_codec.log.checked_json import Count, dump, load

MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of ``manifest.json``.

    A log's segments follow one another without a gap. The manifest records the first ordinal, each
    sidecar the ordinal of the next segment, and the watermark (in a copy, the manifest) the end. A
    missing segment is therefore always detected.

    Attributes
    ----------
    log_id : str
        Random identifier of the log, repeated in all its files.
    first_ordinal : int
        Ordinal of the first segment's first message. Pruning increases it.
    end_ordinal : int or None
        Ordinal after the last message of a copy. None for a log with a watermark.
    """

    log_id: str
    first_ordinal: Count
    end_ordinal: Count | None = None


def manifest_to_bytes(manifest: Manifest) -> bytes:
    """Return the file of a manifest."""
    return dump(manifest)


def manifest_from_bytes(data: bytes, file: str) -> Manifest:
    """Read a manifest; ``file`` is its name in errors. Raise ``LogError`` for a damaged one."""
    return load(data, Manifest, file)

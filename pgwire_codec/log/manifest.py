"""Identity and extent of a log: the file that says which segments belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pgwire_codec.log.checked_json import Count, dump, load

MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of ``manifest.json``.

    A log's segments follow one another without a gap: the first is named here, each sidecar says
    where the next one begins, and the watermark, or in a copy the manifest, says where they end.
    A segment that is missing is therefore always found out.

    Attributes
    ----------
    log_id : str
        Random identifier of the log, repeated in all its files.
    first_ordinal : int
        Ordinal of the first segment's first message. Pruning moves it.
    end_ordinal : int or None
        Of a copy: one past its last message's ordinal. None for a log with a watermark.
    """

    log_id: str
    first_ordinal: Count
    end_ordinal: Count | None = None


def manifest_to_bytes(manifest: Manifest) -> bytes:
    return dump(manifest)


def manifest_from_bytes(data: bytes, file: str) -> Manifest:
    """Read a manifest; ``LogError`` for one that is damaged. ``file`` is its name for messages."""
    return load(data, Manifest, file)

"""Which files of a log are what."""

from __future__ import annotations

from dataclasses import dataclass

from pgwire_codec.errors import LogError
from pgwire_codec.log.segment import SEGMENT, SIDECAR, Segment, segment_from_bytes
from pgwire_codec.log.store import TEMPORARY, Store
from pgwire_codec.log.watermark import WATERMARK, Watermark, watermark_from_bytes


@dataclass(frozen=True, slots=True)
class Directory:
    """The files of a log at one time.

    Attributes
    ----------
    watermark : Watermark or None
        None where nothing was ever flushed.
    sealed : list of str
        Segments that have a sidecar, by ordinal; names without suffix.
    unsealed : list of str
        Segments that have none.
    temporary : list of str
        Files that a writer left half written.
    """

    watermark: Watermark | None
    sealed: list[str]
    unsealed: list[str]
    temporary: list[str]

    @property
    def growing(self) -> str | None:
        """The segment that may be read as far as the watermark says."""
        name = None if self.watermark is None else self.watermark.segment
        return None if name in self.sealed else name


def look(store: Store) -> Directory:
    """See what is there; ``LogError`` when the watermark is damaged, or its segment is missing."""
    # The watermark first: what it names is there, growing or already sealed, in the list.
    found = list_files(store, read_watermark(store))
    if found.growing is not None and found.growing not in found.unsealed:
        raise LogError(
            f"{store.name} has no file {found.growing}{SEGMENT}, which its watermark names: "
            "restore it from a copy of the log"
        )
    return found


def read_watermark(store: Store) -> Watermark | None:
    """Read the watermark, if there is one; ``LogError`` for one that is damaged."""
    data = store.read(WATERMARK)
    return None if data is None else watermark_from_bytes(data, f"{store.name}/{WATERMARK}")


def list_files(store: Store, watermark: Watermark | None) -> Directory:
    """Say which files are what."""
    names = store.names()
    segments = [name.removesuffix(SEGMENT) for name in names if _is_segment(name)]
    sidecars = {name.removesuffix(SIDECAR) for name in names if name.endswith(SIDECAR)}
    return Directory(
        watermark,
        sealed=[name for name in segments if name in sidecars],
        unsealed=[name for name in segments if name not in sidecars],
        temporary=[name for name in names if name.endswith(TEMPORARY)],
    )


def read_sidecar(store: Store, name: str) -> Segment:
    """Read the sidecar of a sealed segment."""
    data = store.read(name + SIDECAR)
    file = f"{store.name}/{name}{SIDECAR}"
    if data is None:
        raise LogError(f"{file} is not there any more: the log was pruned meanwhile")
    segment = segment_from_bytes(data, file)
    if segment.name != name:
        raise LogError(f"{file} is the sidecar of segment {segment.name}")
    return segment


def check_end(store: Store, watermark: Watermark | None, end_ordinal: int) -> None:
    """Raise ``LogError`` when sealed segments end before the watermark says they do."""
    if watermark is not None and end_ordinal < watermark.end_ordinal:
        raise LogError(
            f"{store.name} ends before ordinal {end_ordinal}, and messages up to "
            f"{watermark.end_ordinal - 1} were acknowledged: a segment is missing; restore it from "
            "a copy of the log"
        )


def _is_segment(name: str) -> bool:
    return name.endswith(SEGMENT) and name.removesuffix(SEGMENT).isdecimal()

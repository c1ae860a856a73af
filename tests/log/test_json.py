"""Sidecars, watermarks and manifests keep every field of what is written to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pgwire_codec as pgc
from pgwire_codec import log
from pgwire_codec.log.bounds import (
    Manifest,
    Watermark,
    manifest_from_bytes,
    manifest_to_bytes,
    watermark_from_bytes,
    watermark_to_bytes,
)
from pgwire_codec.log.checked_json import checksum, dump, load
from pgwire_codec.log.segment import Extent, RelationCount, Segment, SegmentHeader
from pgwire_codec.log.sidecar import segment_from_bytes, segment_to_bytes
from pgwire_codec.log.state import LogState
from pgwire_codec.log.state_json import (
    carry_from_json,
    carry_to_json,
    scope_from_json,
    scope_to_json,
    summary_from_json,
    summary_to_json,
)
from pgwire_codec.transactions.carry import OpenTransaction, Position, RelationVersion, Scope
from pgwire_codec.transactions.resolver import Advance
from pgwire_codec.transactions.summary import ChangeCount
from tests.support import corpus
from tests.support.logs import SOURCE
from tests.support.strategies import by_kind, int64, names, uint32, uint64

count = st.integers(0, 2**40)
positions = st.builds(Position, count, count)
places = st.dictionaries(uint32, positions, max_size=3)
relations = by_kind(streaming=False)[pgc.Relation]
types = by_kind(streaming=False)[pgc.Type]
versions = st.builds(RelationVersion, relations, st.lists(types, max_size=2).map(tuple))


@st.composite
def scopes(draw: st.DrawFn) -> Scope:
    # No two Relations come at once.
    told = draw(st.lists(st.tuples(count, versions), max_size=3, unique_by=lambda each: each[0]))
    user_types = draw(st.lists(types, max_size=3))
    scope = Scope(types={each.oid: each for each in user_types})
    for clock, version in sorted(told, key=lambda each: each[0]):
        scope.add(clock, version)
    for name in draw(st.lists(names, max_size=2)):
        if told and name not in scope.names:
            scope.names[name] = draw(count), told[0][1].relation.oid
    return scope


opened = st.builds(
    OpenTransaction,
    xid=uint32,
    final_lsn=uint64,
    commit_time=int64,
    gid=st.none() | names,
    origin=st.none() | names,
    position=positions,
    first=places,
    scope=scopes(),
    delivered=count,
)


@st.composite
def carries(draw: st.DrawFn) -> pgc.Carry:
    streams = draw(st.lists(opened, max_size=2))
    prepared = [each for each in draw(st.lists(opened, max_size=2)) if each.gid is not None]
    return pgc.Carry(
        plain=draw(st.none() | opened),
        streams={each.xid: each for each in streams},
        prepared={each.gid: each for each in prepared if each.gid is not None},
        in_block=draw(st.booleans()),
        in_stream=draw(st.none() | uint32),
        delivered_lsn=draw(uint64),
        cut_off=draw(st.tuples(uint64, count)),
        clock=draw(count),
    )


errors = st.builds(
    pgc.DecodeError,
    st.sampled_from([pgc.ErrorCode.TRUNCATED, pgc.ErrorCode.PROTOCOL]),
    offset=count,
    expected=names,
    message_index=st.none() | count,
    context=names,
    hint=st.none() | names,
)
events = st.one_of(
    st.builds(Advance, uint64),
    st.builds(ChangeCount, positions, places, st.none() | uint32, st.booleans()),
    *(strategy for kind, strategy in by_kind(streaming=False).items()),
    by_kind(streaming=True)[pgc.Relation],
    by_kind(streaming=True)[pgc.Type],
)
readings = st.one_of(st.none(), errors, st.lists(events, max_size=4).map(tuple))
summaries = st.builds(
    pgc.Summary,
    count,
    readings,
    readings,
    st.none() | st.booleans(),
    st.booleans(),
    st.none() | st.lists(uint32, max_size=3).map(tuple),
)


def through_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value), type=type(value))


@pytest.mark.slow
@given(carries())
def test_a_carry(carry: pgc.Carry) -> None:
    assert carry_from_json(through_json(carry_to_json(carry))) == carry


@given(scopes())
def test_a_scope(scope: Scope) -> None:
    assert scope_from_json(through_json(scope_to_json(scope))) == scope


@given(summaries)
def test_a_summary(summary: pgc.Summary) -> None:
    assert summary_from_json(through_json(summary_to_json(summary))) == summary


@pytest.mark.parametrize("capture", corpus.captures(major=18), ids=str)
def test_carries_and_summaries_of_captures(capture: corpus.Capture) -> None:
    decoder = pgc.Decoder()
    step = max(len(capture.messages) // 20, 1)
    for start in range(0, len(capture.messages), step):
        piece = capture.messages[start : start + step]
        summary = pgc.summarise(piece)
        assert summary_from_json(through_json(summary_to_json(summary))) == summary
        decoder.decode(piece)
        carry = carry_from_json(through_json(carry_to_json(decoder.carry)))
        scope = scope_from_json(through_json(scope_to_json(decoder.carry.scope)))
        assert carry.with_scope(scope) == decoder.carry


years = st.none() | st.integers(-(10**16), 10**17).map(lambda us: np.datetime64(us, "us"))
keys = st.one_of(
    st.tuples(st.just("plain"), st.just(0)),
    st.tuples(st.just("stream"), uint32),
    st.tuples(st.just("prepared"), names),
)
checksums = st.integers(0, 2**64 - 1).map(lambda number: f"{number:016x}")


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    """Segments whose parts follow one another."""
    segment = draw(loose_segments)
    offset, ordinal = segment.header_extent.stop, segment.first_ordinal
    parts = []
    for part in segment.parts:
        extent = part.extent._replace(offset=offset)
        begins_session = segment.header.new_session and not parts
        summary = replace(part.summary, messages=part.messages, new_session=begins_session)
        parts.append(replace(part, extent=extent, first_ordinal=ordinal, summary=summary))
        offset, ordinal = extent.stop, ordinal + part.messages
    messages = ordinal - segment.first_ordinal
    return replace(segment, parts=tuple(parts), messages=messages, bytes=offset + 8)


sizes = st.integers(1, 2**40)
parts = st.builds(
    log.SegmentPart,
    extent=st.builds(Extent, count, sizes, checksums),
    first_ordinal=count,
    messages=sizes,
    message_bytes=count,
    summary=summaries,
    delivered_lsn=uint64,
    undecodable=count,
    committed=count,
)
loose_segments = st.builds(
    Segment,
    header=st.builds(
        SegmentHeader,
        log_id=names,
        source=st.just(SOURCE),
        session=count,
        new_session=st.booleans(),
        snapshot=st.booleans(),
        first_ordinal=count,
        before=st.builds(LogState, carries(), st.dictionaries(keys, count, max_size=2)),
    ),
    sealed=st.just(True),
    header_extent=st.builds(Extent, st.just(0), sizes, checksums),
    bytes=count,
    messages=count,
    message_bytes=count,
    commits=count,
    first_commit_lsn=st.none() | uint64,
    last_commit_lsn=st.none() | uint64,
    first_time=years,
    last_time=years,
    delivered_lsn=uint64,
    parts=st.lists(parts, max_size=2).map(tuple),
    tables=st.lists(
        st.builds(RelationCount, names, count, count, count, count, count, uint32), max_size=2
    ).map(tuple),
    versions=st.lists(versions, max_size=2).map(tuple),
    opened=st.dictionaries(keys, count, max_size=2),
    known=st.none() | scopes(),
)


@pytest.mark.slow
@given(segments())
def test_a_sidecar(segment: Segment) -> None:
    assert segment_from_bytes(segment_to_bytes(segment), "sidecar") == segment


@given(
    st.builds(
        Watermark,
        names,
        st.just(SOURCE),
        st.none() | names,
        *[count] * 2,
        checksums,
        count,
        *[uint64] * 3,
        names,
    )
)
def test_a_watermark(watermark: Watermark) -> None:
    assert watermark_from_bytes(watermark_to_bytes(watermark), "watermark") == watermark


@given(st.builds(Manifest, names, count, count))
def test_a_manifest(manifest: Manifest) -> None:
    assert manifest_from_bytes(manifest_to_bytes(manifest), "manifest") == manifest


def test_a_wrong_byte_anywhere_is_seen() -> None:
    manifest = Manifest(',"checksum":', 7)
    data = dump(manifest)
    assert load(data, Manifest, "f") == manifest
    for place in range(len(data)):
        for bit in range(8):
            wrong = bytearray(data)
            wrong[place] ^= 1 << bit
            with pytest.raises(log.LogError, match="f is damaged"):
                load(bytes(wrong), Manifest, "f")
    for length in range(len(data)):
        with pytest.raises(log.LogError, match="f is damaged"):
            load(data[:length], Manifest, "f")
    with pytest.raises(log.LogError, match="f is damaged"):
        load(data + b" ", Manifest, "f")


def test_another_format_is_refused() -> None:
    body = b'{"format":5'
    data = b'%s,"checksum":"%s"}\n' % (body, checksum(body).encode())
    for read in (watermark_from_bytes, segment_from_bytes, manifest_from_bytes):
        with pytest.raises(log.LogError, match=r"f has format version 5, .* reads versions 2 to 4"):
            read(data, "f")

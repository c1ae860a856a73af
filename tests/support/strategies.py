"""Hypothesis strategies: any message and any frame that the wire can carry."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import pgwire_codec as pgc

uint8 = st.integers(0, 2**8 - 1)
uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)

#: A name can hold every character but NUL.
names = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
contents = st.binary(max_size=24)

values = st.one_of(
    st.sampled_from([(b"n", None), (b"u", None)]),
    st.tuples(st.sampled_from([b"t", b"b"]), contents),
)


@st.composite
def tuples(draw: st.DrawFn) -> pgc.TupleData:
    columns = draw(st.lists(values, max_size=6))
    return pgc.TupleData(
        b"".join(kind for kind, _ in columns), tuple(value for _, value in columns)
    )


relation_columns = st.builds(pgc.RelationColumn, uint8, names, uint32, int32)


def messages(streaming: bool) -> st.SearchStrategy[Any]:
    """Any message, as it is outside a stream block or inside one."""
    return st.one_of(list(by_kind(streaming).values()))


def by_kind(streaming: bool) -> dict[type, st.SearchStrategy[Any]]:
    """A strategy for each kind of message."""
    xid = uint32 if streaming else st.none()
    some, none = tuples(), st.none()
    prepared = (uint8, uint64, uint64, int64, uint32, names)
    return {
        pgc.Begin: st.builds(pgc.Begin, uint64, int64, uint32),
        pgc.Message: st.builds(pgc.Message, xid, uint8, uint64, names, contents),
        pgc.Commit: st.builds(pgc.Commit, uint8, uint64, uint64, int64),
        pgc.Origin: st.builds(pgc.Origin, uint64, names),
        pgc.Relation: st.builds(
            pgc.Relation,
            xid,
            uint32,
            names,
            names,
            st.sampled_from("dnfi"),
            st.lists(relation_columns, max_size=5).map(tuple),
        ),
        pgc.Type: st.builds(pgc.Type, xid, uint32, names, names),
        pgc.Insert: st.builds(pgc.Insert, xid, uint32, some),
        pgc.Update: st.one_of(
            st.builds(pgc.Update, xid, uint32, key, old, some)
            for key, old in ((some, none), (none, some), (none, none))
        ),
        pgc.Delete: st.one_of(
            st.builds(pgc.Delete, xid, uint32, key, old)
            for key, old in ((some, none), (none, some))
        ),
        pgc.Truncate: st.builds(pgc.Truncate, xid, uint8, st.lists(uint32, max_size=5).map(tuple)),
        pgc.StreamStart: st.builds(pgc.StreamStart, uint32, st.booleans()),
        pgc.StreamStop: st.builds(pgc.StreamStop),
        pgc.StreamCommit: st.builds(pgc.StreamCommit, uint32, uint8, uint64, uint64, int64),
        pgc.StreamAbort: st.one_of(
            st.builds(pgc.StreamAbort, uint32, uint32, none, none),
            st.builds(pgc.StreamAbort, uint32, uint32, uint64, int64),
        ),
        pgc.BeginPrepare: st.builds(pgc.BeginPrepare, uint64, uint64, int64, uint32, names),
        pgc.Prepare: st.builds(pgc.Prepare, *prepared),
        pgc.CommitPrepared: st.builds(pgc.CommitPrepared, *prepared),
        pgc.RollbackPrepared: st.builds(
            pgc.RollbackPrepared, uint8, uint64, uint64, int64, int64, uint32, names
        ),
        pgc.StreamPrepare: st.builds(pgc.StreamPrepare, *prepared),
    }


def frames() -> st.SearchStrategy[Any]:
    """Any frame of the streaming replication protocol."""
    return st.one_of(list(frames_by_kind().values()))


def frames_by_kind() -> dict[type, st.SearchStrategy[Any]]:
    """A strategy for each kind of frame."""
    return {
        pgc.XLogData: st.builds(pgc.XLogData, uint64, uint64, int64, contents),
        pgc.PrimaryKeepalive: st.builds(pgc.PrimaryKeepalive, uint64, int64, st.booleans()),
        pgc.StandbyStatusUpdate: st.builds(
            pgc.StandbyStatusUpdate, uint64, uint64, uint64, int64, st.booleans()
        ),
        pgc.HotStandbyFeedback: st.builds(
            pgc.HotStandbyFeedback, int64, uint32, uint32, uint32, uint32
        ),
    }

"""spec.py against the documentation's messages, the message classes, and the public names."""

from __future__ import annotations

import dataclasses
import typing

import pytest

import pgwire_codec as pgc
from pgwire_codec.protocol import messages, spec, tags
from pgwire_codec.protocol.spec import FRAMES, MESSAGES, MessageSpec, Presence, Wire

#: "Logical Replication Message Formats": tag, name, first protocol version.
DOCUMENTED = {
    "B": ("Begin", 1),
    "M": ("Message", 1),
    "C": ("Commit", 1),
    "O": ("Origin", 1),
    "R": ("Relation", 1),
    "Y": ("Type", 1),
    "I": ("Insert", 1),
    "U": ("Update", 1),
    "D": ("Delete", 1),
    "T": ("Truncate", 1),
    "S": ("StreamStart", 2),
    "E": ("StreamStop", 2),
    "c": ("StreamCommit", 2),
    "A": ("StreamAbort", 2),
    "b": ("BeginPrepare", 3),
    "P": ("Prepare", 3),
    "K": ("CommitPrepared", 3),
    "r": ("RollbackPrepared", 3),
    "p": ("StreamPrepare", 3),
}

#: "Streaming Replication Protocol", START_REPLICATION.
DOCUMENTED_FRAMES = {
    "w": "XLogData",
    "k": "PrimaryKeepalive",
    "r": "StandbyStatusUpdate",
    "h": "HotStandbyFeedback",
}

#: Python class of each wire type.
PYTHON_TYPES = {
    Wire.INT8: int,
    Wire.BOOL: bool,
    Wire.CHAR: str,
    Wire.INT16: int,
    Wire.INT32: int,
    Wire.UINT32: int,
    Wire.UINT64: int,
    Wire.INT64: int,
    Wire.STRING: str,
    Wire.BYTES: bytes,
    Wire.REST: bytes,
    Wire.OIDS: tuple[int, ...],
    Wire.COLUMNS: tuple[pgc.RelationColumn, ...],
    Wire.TUPLE: pgc.TupleData,
}

#: Since which protocol version a field that is not always there can come.
SINCE = {Presence.STREAMED: 2, Presence.REMAINING: 4}

each_layout = pytest.mark.parametrize("layout", MESSAGES + FRAMES, ids=lambda each: each.name)


def test_messages_are_those_of_the_documentation() -> None:
    assert {each.tag.decode(): (each.name, each.since) for each in MESSAGES} == DOCUMENTED
    assert len(MESSAGES) == len(DOCUMENTED)  # so that no tag occurs twice


def test_frames_are_those_of_the_documentation() -> None:
    assert {each.tag.decode(): each.name for each in FRAMES} == DOCUMENTED_FRAMES
    assert len(FRAMES) == len(DOCUMENTED_FRAMES)


def test_unions_of_classes_are_whole() -> None:
    assert [each.__name__ for each in typing.get_args(messages.LogicalMessage)] == [
        each.name for each in MESSAGES
    ]
    assert [each.__name__ for each in typing.get_args(messages.Frame)] == [
        each.name for each in FRAMES
    ]


@each_layout
def test_class_has_the_fields_of_the_spec_in_their_order(layout: MessageSpec) -> None:
    cls = getattr(messages, layout.name)
    wanted = [field.name for field in layout.fields if not field.of]
    assert [field.name for field in dataclasses.fields(cls)] == wanted


@each_layout
def test_class_has_the_types_of_the_spec(layout: MessageSpec) -> None:
    hints = typing.get_type_hints(getattr(messages, layout.name))
    for field in layout.fields:
        if field.of:
            continue
        kind = PYTHON_TYPES[field.wire]
        may_be_absent = field.presence is not Presence.ALWAYS or field.alternative_to
        assert hints[field.name] == (kind | None if may_be_absent else kind), field.name


@each_layout
def test_class_is_frozen_and_slotted(layout: MessageSpec) -> None:
    cls = getattr(messages, layout.name)
    assert cls.__dataclass_params__.frozen
    assert "__slots__" in vars(cls)


@each_layout
def test_fields_agree_with_each_other(layout: MessageSpec) -> None:
    names = [field.name for field in layout.fields]
    assert len(set(names)) == len(names)
    for number, field in enumerate(layout.fields):
        for other in (field.alternative_to, field.together_with):
            assert not other or other in names[:number]  # what was read before
        assert not field.of or field.of in names[number + 1 :]
        assert bool(field.of) == (field.wire in (Wire.COUNT16, Wire.COUNT32))
        assert bool(field.choices) == (field.wire is Wire.CHAR)
        assert bool(field.marker) == (field.wire is Wire.TUPLE)
        assert field.since == SINCE.get(field.presence, 1)
        assert field.doc.endswith(".")


def test_every_list_has_its_count() -> None:
    counted = {field.of for layout in MESSAGES for field in layout.fields if field.of}
    assert counted == {"content", "columns", "relation_oids"}


def test_relation_column() -> None:
    fields = dataclasses.fields(pgc.RelationColumn)
    assert [field.name for field in fields] == [field.name for field in spec.RELATION_COLUMN]


def test_kinds_of_columns_in_a_tuple() -> None:
    assert set(spec.TUPLE_KINDS) == {b"n", b"u", b"t", b"b"}


def test_stream_content_is_what_carries_an_xid_and_what_ends_the_block() -> None:
    """Facts: R Y I U D T M carry an xid inside a block; O and E occur in one without an xid."""
    with_xid = {
        layout.tag
        for layout in MESSAGES
        if any(field.presence is Presence.STREAMED for field in layout.fields)
    }
    assert with_xid == {b"R", b"Y", b"I", b"U", b"D", b"T", b"M"}
    assert {bytes([tag]) for tag in tags.STREAM_CONTENT} == with_xid | {b"O"}


@pytest.mark.parametrize("tag", DOCUMENTED)
def test_what_opens_and_closes_a_stream_block(tag: str) -> None:
    data = tag.encode()
    inside = tag in "RYIUDTMO"
    assert tags.in_stream_block(data, True) == (inside or tag == "S")
    assert tags.in_stream_block(data, False) == (tag == "S")


@pytest.mark.parametrize("damaged", [b"", b"?", b"\xff"])
def test_a_tag_that_is_none_leaves_the_stream_block_as_it_was(damaged: bytes) -> None:
    assert tags.in_stream_block(damaged, True)
    assert not tags.in_stream_block(damaged, False)


#: The public contract, name by name.
PUBLIC = """
    IMPL decode_message encode_message decode_frame reference Decoder Changes ChangeBatch Column
    Begin Message Commit Origin Relation RelationColumn Type Insert Update Delete Truncate TupleData
    StreamStart StreamStop StreamCommit StreamAbort BeginPrepare Prepare CommitPrepared
    RollbackPrepared StreamPrepare XLogData PrimaryKeepalive StandbyStatusUpdate HotStandbyFeedback
    format_lsn parse_lsn register_type PgwireError DecodeError EncodeError OptionError CaptureError
    ErrorCode
"""


@pytest.mark.parametrize("name", PUBLIC.split())
def test_public_name(name: str) -> None:
    assert name in pgc.__all__
    assert hasattr(pgc, name)


def test_all_is_sorted_and_names_what_there_is() -> None:
    assert sorted(set(pgc.__all__), key=lambda name: (not name.isupper(), name)) == pgc.__all__
    assert [name for name in pgc.__all__ if not hasattr(pgc, name)] == []


def test_reference_offers_the_same_functions() -> None:
    for name in ("decode_message", "encode_message", "decode_frame", "Decoder"):
        assert callable(getattr(pgc.reference, name))
    assert pgc.IMPL in ("cython", "python")

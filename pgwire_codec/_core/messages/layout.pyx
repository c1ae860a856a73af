"""Layouts of all messages and frames, from the tables of :mod:`pgwire_codec.protocol.spec`."""

from cpython.object cimport PyObject

from types import MemberDescriptorType

from pgwire_codec.protocol import messages, spec

_WIRES = {
    spec.Wire.INT8: INT8,
    spec.Wire.BOOL: BOOL,
    spec.Wire.CHAR: CHAR,
    spec.Wire.INT32: INT32,
    spec.Wire.UINT32: UINT32,
    spec.Wire.INT64: INT64,
    spec.Wire.UINT64: UINT64,
    spec.Wire.STRING: STRING,
    spec.Wire.COUNT16: COUNT16,
    spec.Wire.COUNT32: COUNT32,
    spec.Wire.BYTES: BYTES,
    spec.Wire.REST: REST,
    spec.Wire.OIDS: OIDS,
    spec.Wire.COLUMNS: COLUMNS,
    spec.Wire.TUPLE: TUPLE,
}
_PRESENCES = {
    spec.Presence.ALWAYS: ALWAYS,
    spec.Presence.STREAMED: STREAMED,
    spec.Presence.MARKED: MARKED,
    spec.Presence.REMAINING: REMAINING,
}


cdef class Layout:
    def __cinit__(self, type cls, bytes tag, tuple fields):
        names = cls.__slots__
        members = tuple([cls.__dict__[name] for name in names])
        if any([type(member) is not MemberDescriptorType for member in members]):
            raise TypeError(f"{cls.__name__} is not a slotted class")
        if len(members) > MAX_MEMBERS or len(fields) > MAX_FIELDS:
            raise ValueError(f"{cls.__name__} has too many fields")
        self.owned = (cls, members, fields)
        self.cls = <Type*> <PyObject*> cls
        self.assign = (<Type*> <PyObject*> MemberDescriptorType).tp_descr_set
        self.fetch = (<Type*> <PyObject*> MemberDescriptorType).tp_descr_get
        for index, member in enumerate(members):
            self.members[index] = <PyObject*> member
        self.tag = tag
        self.count = len(fields)
        for index, field in enumerate(fields):
            self.fields[index] = Field(
                wire=_WIRES[field.wire],
                presence=_PRESENCES[field.presence],
                member=names.index(field.of or field.name),
                alternative=names.index(field.alternative_to) if field.alternative_to else -1,
                together=names.index(field.together_with) if field.together_with else -1,
                marker=field.marker[0] if field.marker else -1,
                is_count=bool(field.of),
                choices=<bytes> field.choices,
            )


def layout_of(message):
    """Return the Layout of a MessageSpec."""
    return Layout(getattr(messages, message.name), message.tag, message.fields)


MESSAGES = [layout_of(message) for message in spec.MESSAGES]
FRAMES = [layout_of(frame) for frame in spec.FRAMES]
RELATION_COLUMN = Layout(messages.RelationColumn, b"", spec.RELATION_COLUMN)
TUPLE_DATA = Layout(messages.TupleData, b"", ())

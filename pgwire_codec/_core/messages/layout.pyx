"""The classes of messages, looked up once."""

from cpython.object cimport PyObject

from types import MemberDescriptorType

from pgwire_codec.protocol import spec

_WIRES = {
    spec.Wire.INT8: INT8,
    spec.Wire.BOOL: BOOL,
    spec.Wire.CHAR: CHAR,
    spec.Wire.INT32: INT32,
    spec.Wire.UINT32: UINT32,
    spec.Wire.UINT64: UINT64,
    spec.Wire.INT64: INT64,
    spec.Wire.STRING: STRING,
    spec.Wire.COUNT16: COUNT16,
    spec.Wire.COUNT32: COUNT32,
    spec.Wire.BYTES: BYTES,
    spec.Wire.REST: BYTES,
    spec.Wire.OIDS: OIDS,
    spec.Wire.COLUMNS: COLUMNS,
    spec.Wire.TUPLE: TUPLE,
}


cdef class Shape:
    """A frozen, slotted dataclass, for the functions beside this class to make and to read."""

    def __cinit__(self, type cls):
        slots = tuple(cls.__dict__[name] for name in cls.__slots__)
        if len(slots) > MAX_FIELDS or any(type(slot) is not MemberDescriptorType for slot in slots):
            raise TypeError(f"{cls.__name__} is not a slotted class of {MAX_FIELDS} fields at most")
        self.kept = (cls, slots)
        self.cls = <Type*> <PyObject*> cls
        self.assign = (<Type*> <PyObject*> MemberDescriptorType).tp_descr_set
        self.fetch = (<Type*> <PyObject*> MemberDescriptorType).tp_descr_get
        for index, slot in enumerate(slots):
            self.slots[index] = <PyObject*> slot

    cdef object make(self, tuple values):
        """Give the object whose fields are these, in order."""
        cdef int field = 0
        message = new(self)
        for value in values:
            put(self, message, field, value)
            field += 1
        return message


cdef class Layout:
    """How the fields of one class are written."""

    def __cinit__(self, type cls, bytes tag, tuple fields):
        slots = cls.__slots__
        if len(fields) > MAX_WIRE_FIELDS:
            raise ValueError(f"{cls.__name__} has more than {MAX_WIRE_FIELDS} fields")
        self.shape = Shape(cls)
        self.tag = tag
        self.count = len(fields)
        for index, field in enumerate(fields):
            self.fields[index] = Field(
                wire=_WIRES[field.wire],
                slot=slots.index(field.of or field.name),
                alternative=slots.index(field.alternative_to) if field.alternative_to else -1,
                together=slots.index(field.together_with) if field.together_with else -1,
                always=field.presence is spec.Presence.ALWAYS,
                marker=field.marker[0] if field.marker else -1,
            )

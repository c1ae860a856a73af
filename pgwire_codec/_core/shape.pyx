# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=True
"""The classes of messages, looked up once."""

from cpython.object cimport PyObject

from types import MemberDescriptorType


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

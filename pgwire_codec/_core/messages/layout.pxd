"""Objects of frozen, slotted dataclasses, made without their __init__.

That would set each field through object.__setattr__, which calls the slot's descriptor in the end.
Calling the descriptor itself takes a tenth of the time.
"""

from cpython.object cimport PyObject

cdef extern from "Python.h":
    ctypedef int (*descrsetfunc)(PyObject*, object, object) except -1
    ctypedef object (*descrgetfunc)(PyObject*, object, PyObject*)
    ctypedef struct Type "PyTypeObject":
        descrsetfunc tp_descr_set
        descrgetfunc tp_descr_get
    object PyType_GenericNew(Type* cls, PyObject* args, PyObject* keywords)

cdef enum:
    MAX_FIELDS = 8


cdef class Shape:
    cdef Type* cls
    cdef PyObject* slots[MAX_FIELDS]
    cdef descrsetfunc assign
    cdef descrgetfunc fetch
    cdef readonly tuple kept  # the class and the descriptors: owns what the pointers point to

    cdef object make(self, tuple values)


cdef enum:
    MAX_WIRE_FIELDS = 12

cdef enum Wire:
    INT8, BOOL, CHAR, INT32, UINT32, UINT64, INT64, STRING, COUNT16, COUNT32, BYTES, OIDS
    COLUMNS, TUPLE

cdef struct Field:
    Wire wire
    int slot           # where the class has it; of a count: where it has what is counted
    int alternative    # slot of the field that may not be there with it, or -1
    int together       # slot of the field that must be there with it, or -1
    bint always        # whether it may not be None (but for its alternative)
    int marker         # the byte before it, or -1


cdef class Layout:
    cdef Shape shape
    cdef bytes tag
    cdef int count
    cdef Field fields[MAX_WIRE_FIELDS]


cdef inline object new(Shape shape):
    """Give an object whose fields are not set yet."""
    return PyType_GenericNew(shape.cls, NULL, NULL)


cdef inline int put(Shape shape, object message, int field, object value) except -1:
    return shape.assign(shape.slots[field], message, value)


cdef inline object get(Shape shape, object message, int field):
    """Give a field of an object of this very class."""
    return shape.fetch(shape.slots[field], message, <PyObject*> shape.cls)

# cython: language_level=3
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


cdef inline object new(Shape shape):
    """Give an object whose fields are not set yet."""
    return PyType_GenericNew(shape.cls, NULL, NULL)


cdef inline int put(Shape shape, object message, int field, object value) except -1:
    return shape.assign(shape.slots[field], message, value)


cdef inline object get(Shape shape, object message, int field):
    """Give a field of an object of this very class."""
    return shape.fetch(shape.slots[field], message, <PyObject*> shape.cls)

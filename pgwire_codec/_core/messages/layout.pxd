"""Layout: the class of a message, and its fields on the wire.

Objects are made without the __init__ of the frozen, slotted dataclass. That would set each field
through object.__setattr__, which calls the descriptor of the field in the end. Calling the
descriptor itself takes a tenth of the time.
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
    MAX_MEMBERS = 8  # of a class
    MAX_FIELDS = 12  # on the wire: counts are fields, too

cdef enum Wire:
    INT8
    BOOL
    CHAR
    INT32
    UINT32
    INT64
    UINT64
    STRING
    COUNT16
    COUNT32
    BYTES
    REST
    OIDS
    COLUMNS
    TUPLE

cdef enum Presence:
    ALWAYS
    STREAMED
    MARKED
    REMAINING

cdef struct Field:
    # As pgwire_codec.protocol.spec.Field; members are numbered from 0, and -1 is for no member.
    Wire wire
    Presence presence
    int member  # of the field; of a count: of what is counted
    int alternative  # member that cannot be there together with this field
    int together  # member that is there if and only if this field is
    int marker  # the byte before the field, or -1
    bint is_count
    const char* choices  # of a CHAR


cdef class Layout:
    cdef Type* cls
    cdef PyObject* members[MAX_MEMBERS]  # descriptors
    cdef descrsetfunc assign
    cdef descrgetfunc fetch
    cdef tuple owned  # the objects that the pointers point to
    cdef bytes tag
    cdef int count
    cdef Field fields[MAX_FIELDS]


cdef inline object new(Layout layout):
    """Return an object whose fields are not set yet."""
    return PyType_GenericNew(layout.cls, NULL, NULL)


cdef inline int put(Layout layout, object message, int member, object value) except -1:
    return layout.assign(layout.members[member], message, value)


cdef inline object get(Layout layout, object message, int member):
    """Return a member of an object of this very class."""
    return layout.fetch(layout.members[member], message, <PyObject*> layout.cls)

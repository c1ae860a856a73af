"""encode_message, the counterpart of :func:`pgwire_codec.reference.encode_message`.

Writers accept what messages ordinarily contain: ints in range, str, bytes, tuples. They leave
anything else to the reference, which writes it (a list, a bytearray, a subclass) or raises.
"""

from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport INT16_MAX, INT32_MAX, INT32_MIN, UINT32_MAX, uint8_t, uint64_t
from libc.string cimport memchr, memcpy, strchr

from pgwire_codec._core.messages.layout cimport (
    ALWAYS, BOOL, BYTES, CHAR, COUNT16, COUNT32, INT8, INT32, INT64, OIDS, REST, STRING, TUPLE,
    UINT32, UINT64, Field, Layout, Type, get,
)
from pgwire_codec._core.protocol cimport KIND_BINARY, KIND_NULL, KIND_TEXT, KIND_UNCHANGED
from pgwire_codec._core.wire.primitives cimport (
    store_bytes, store_u8, store_u16, store_u32, store_u64,
)
from pgwire_codec._core.wire.tuple_data cimport VALUE_HEAD

from pgwire_codec._core.messages import layout as layouts

cdef extern from "Python.h":
    Type* Py_TYPE(object o)
    bint PyLong_Check(object o)
    long long PyLong_AsLongLongAndOverflow(object o, int* overflow) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object o) except? 0xFFFFFFFFFFFFFFFF
    bint PyUnicode_CheckExact(object o)
    const char* PyUnicode_AsUTF8AndSize(object o, Py_ssize_t* size) except NULL


cdef enum:
    # Results of a writer; -1 is an exception.
    WRITTEN = 0
    NOT_ORDINARY = 1
    INLINE = 1024

cdef struct Writer:
    uint8_t* start
    uint8_t* p
    uint8_t* end
    uint8_t inline_[INLINE]  # most messages need no other memory


cdef int reserve(Writer* w, Py_ssize_t wanted) except -1:
    """Reserve that many more bytes."""
    cdef Py_ssize_t used = w.p - w.start, capacity = w.end - w.start
    cdef uint8_t* grown
    if wanted <= w.end - w.p:
        return 0
    capacity = max(2 * capacity, used + wanted)
    if w.start is w.inline_:
        grown = <uint8_t*> PyMem_RawMalloc(capacity)
        if grown is not NULL:
            memcpy(grown, w.start, used)
    else:
        grown = <uint8_t*> PyMem_RawRealloc(w.start, capacity)
    if grown is NULL:
        raise MemoryError()
    w.start = grown
    w.p = grown + used
    w.end = grown + capacity
    return 0


cdef Layout RELATION_COLUMN = layouts.RELATION_COLUMN
cdef Layout TUPLE_DATA = layouts.TUPLE_DATA


# Fields.


cdef int write_u8(Writer* w, object value) except -1:
    cdef int overflow = 0
    cdef long long number
    if not PyLong_Check(value):
        return NOT_ORDINARY
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < 0 or number > 255:
        return NOT_ORDINARY
    reserve(w, 1)
    w.p = store_u8(w.p, <uint8_t> number)
    return WRITTEN


cdef int write_u32(Writer* w, object value) except -1:
    cdef int overflow = 0
    cdef long long number
    if not PyLong_Check(value):
        return NOT_ORDINARY
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < 0 or number > UINT32_MAX:
        return NOT_ORDINARY
    reserve(w, 4)
    w.p = store_u32(w.p, number)
    return WRITTEN


cdef int write_i32(Writer* w, object value) except -1:
    cdef int overflow = 0
    cdef long long number
    if not PyLong_Check(value):
        return NOT_ORDINARY
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < INT32_MIN or number > INT32_MAX:
        return NOT_ORDINARY
    reserve(w, 4)
    w.p = store_u32(w.p, <unsigned int> number)
    return WRITTEN


cdef int write_i64(Writer* w, object value) except -1:
    cdef int overflow = 0
    cdef long long number
    if not PyLong_Check(value):
        return NOT_ORDINARY
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        return NOT_ORDINARY
    reserve(w, 8)
    w.p = store_u64(w.p, <uint64_t> number)
    return WRITTEN


cdef int write_u64(Writer* w, object value) except -1:
    cdef int overflow = 0
    cdef long long number
    cdef uint64_t unsigned
    if not PyLong_Check(value):
        return NOT_ORDINARY
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow < 0 or (not overflow and number < 0):
        return NOT_ORDINARY
    if overflow:
        try:
            unsigned = PyLong_AsUnsignedLongLong(value)
        except OverflowError:
            return NOT_ORDINARY
    else:
        unsigned = <uint64_t> number
    reserve(w, 8)
    w.p = store_u64(w.p, unsigned)
    return WRITTEN


cdef int write_bool(Writer* w, object value) except -1:
    if value is not True and value is not False:
        return NOT_ORDINARY
    reserve(w, 1)
    w.p = store_u8(w.p, value is True)
    return WRITTEN


cdef int write_char(Writer* w, object value, const char* choices) except -1:
    cdef Py_UCS4 character
    if not PyUnicode_CheckExact(value) or len(value) != 1:
        return NOT_ORDINARY
    character = ord(value)
    if character == 0 or character > 127 or strchr(choices, character) == NULL:
        return NOT_ORDINARY
    reserve(w, 1)
    w.p = store_u8(w.p, <uint8_t> character)
    return WRITTEN


cdef int write_string(Writer* w, object value) except -1:
    cdef const char* data
    cdef Py_ssize_t length
    if not PyUnicode_CheckExact(value):
        return NOT_ORDINARY
    try:
        data = PyUnicode_AsUTF8AndSize(value, &length)
    except UnicodeEncodeError:
        return NOT_ORDINARY
    if memchr(data, 0, length) is not NULL:
        return NOT_ORDINARY
    reserve(w, length + 1)
    w.p = store_bytes(w.p, data, length + 1)  # the copy's own NUL ends it
    return WRITTEN


cdef int write_bytes(Writer* w, object value) except -1:
    if not PyBytes_CheckExact(value):
        return NOT_ORDINARY
    reserve(w, PyBytes_GET_SIZE(value))
    w.p = store_bytes(w.p, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    return WRITTEN


cdef int write_tuple(Writer* w, object value) except -1:
    cdef Py_ssize_t count, number, length
    cdef const char* kinds
    cdef PyObject* column
    if Py_TYPE(value) is not TUPLE_DATA.cls:
        return NOT_ORDINARY
    kinds_ = get(TUPLE_DATA, value, 0)
    values = get(TUPLE_DATA, value, 1)
    if not PyBytes_CheckExact(kinds_) or not PyTuple_CheckExact(values):
        return NOT_ORDINARY
    count = PyTuple_GET_SIZE(values)
    if count != PyBytes_GET_SIZE(kinds_) or count > INT16_MAX:
        return NOT_ORDINARY
    kinds = PyBytes_AS_STRING(kinds_)
    reserve(w, 2 + count)
    w.p = store_u16(w.p, count)
    for number in range(count):
        column = PyTuple_GET_ITEM(values, number)
        if kinds[number] == KIND_TEXT or kinds[number] == KIND_BINARY:
            if not PyBytes_CheckExact(<object> column):
                return NOT_ORDINARY
            length = PyBytes_GET_SIZE(<object> column)
            if length > INT32_MAX:
                return NOT_ORDINARY
            reserve(w, VALUE_HEAD + length + count - number)  # every field takes a byte at least
            w.p = store_u8(w.p, <uint8_t> kinds[number])
            w.p = store_u32(w.p, length)
            w.p = store_bytes(w.p, PyBytes_AS_STRING(<object> column), length)
        elif kinds[number] == KIND_NULL or kinds[number] == KIND_UNCHANGED:
            if <object> column is not None:
                return NOT_ORDINARY
            w.p = store_u8(w.p, <uint8_t> kinds[number])
        else:
            return NOT_ORDINARY
    return WRITTEN


cdef int write_count(Writer* w, object counted, Py_ssize_t most, int size) except -1:
    cdef Py_ssize_t count
    if PyTuple_CheckExact(counted):
        count = PyTuple_GET_SIZE(counted)
    elif PyBytes_CheckExact(counted):
        count = PyBytes_GET_SIZE(counted)
    else:
        return NOT_ORDINARY
    if count > most:
        return NOT_ORDINARY
    reserve(w, size)
    w.p = store_u16(w.p, count) if size == 2 else store_u32(w.p, count)
    return WRITTEN


cdef int write_columns(Writer* w, object value) except -1:
    if not PyTuple_CheckExact(value):
        return NOT_ORDINARY
    for column in <tuple> value:
        if Py_TYPE(column) is not RELATION_COLUMN.cls or write_fields(w, RELATION_COLUMN, column):
            return NOT_ORDINARY
    return WRITTEN


cdef int write_oids(Writer* w, object value) except -1:
    if not PyTuple_CheckExact(value):
        return NOT_ORDINARY
    for oid in <tuple> value:
        if write_u32(w, oid):
            return NOT_ORDINARY
    return WRITTEN


# Messages.


cdef int write_field(Writer* w, const Field* field, object value) except -1:
    if field.wire == TUPLE:
        return write_tuple(w, value)
    elif field.wire == UINT32:
        return write_u32(w, value)
    elif field.wire == UINT64:
        return write_u64(w, value)
    elif field.wire == INT64:
        return write_i64(w, value)
    elif field.wire == INT8:
        return write_u8(w, value)
    elif field.wire == INT32:
        return write_i32(w, value)
    elif field.wire == STRING:
        return write_string(w, value)
    elif field.wire == COUNT16:
        return write_count(w, value, INT16_MAX, 2)
    elif field.wire == COUNT32:
        return write_count(w, value, INT32_MAX, 4)
    elif field.wire == BYTES or field.wire == REST:
        return write_bytes(w, value)
    elif field.wire == BOOL:
        return write_bool(w, value)
    elif field.wire == CHAR:
        return write_char(w, value, field.choices)
    elif field.wire == OIDS:
        return write_oids(w, value)
    return write_columns(w, value)


cdef int write_fields(Writer* w, Layout layout, object message) except -1:
    cdef int index
    cdef bint alone
    cdef Field* field
    for index in range(layout.count):
        field = &layout.fields[index]
        value = get(layout, message, field.member)
        alone = field.alternative < 0 or get(layout, message, field.alternative) is None
        if not alone and value is not None:
            return NOT_ORDINARY
        if field.together >= 0 and (
            (get(layout, message, field.together) is None) != (value is None)
        ):
            return NOT_ORDINARY
        if value is None:
            if field.presence == ALWAYS and alone:
                return NOT_ORDINARY
            continue
        if field.marker >= 0:
            reserve(w, 1)
            w.p = store_u8(w.p, <uint8_t> field.marker)
        if write_field(w, field, value):
            return NOT_ORDINARY
    return WRITTEN


cdef object write_message(Layout layout, object message):
    """Return the bytes of a message, or None if it is not ordinary."""
    cdef Writer w
    w.start = w.p = w.inline_
    w.end = w.start + INLINE
    try:
        w.p = store_bytes(w.p, PyBytes_AS_STRING(layout.tag), PyBytes_GET_SIZE(layout.tag))
        if write_fields(&w, layout, message):
            return None
        return PyBytes_FromStringAndSize(<char*> w.start, w.p - w.start)
    finally:
        if w.start is not w.inline_:
            PyMem_RawFree(w.start)


cdef dict by_class(each):
    cdef Layout layout
    table = {}
    for layout in each:
        table[<object> <PyObject*> layout.cls] = layout
    return table


cdef dict LAYOUTS = by_class(layouts.MESSAGES + layouts.FRAMES)


def encode_message(message):
    """Write a message or a frame as bytes: the exact inverse of decoding.

    Raises
    ------
    EncodeError
        When a field holds what the wire cannot carry: a NUL in a name, a number out of range, a
        value of another type, an old tuple and a key at once.
    TypeError
        When ``message`` is not one of the classes of :mod:`pgwire_codec.protocol.messages`.
    """
    layout = LAYOUTS.get(type(message))
    data = None if layout is None else write_message(<Layout> layout, message)
    if data is None:
        from pgwire_codec.reference import codec as reference

        return reference.encode_message(message)
    return data

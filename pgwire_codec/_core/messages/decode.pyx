"""decode_message and decode_frame.

The counterparts are in :mod:`pgwire_codec.reference.codec`.
Readers return None for bytes that are not what they read. Such bytes are given to the reference,
which raises: errors are its own.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport strchr

from pgwire_codec._core.messages.layout cimport (
    BOOL, BYTES, CHAR, COUNT16, INT8, INT32, INT64, MARKED, MAX_MEMBERS, OIDS, REMAINING, REST,
    STREAMED, STRING, TUPLE, UINT32, UINT64, Field, Layout, new, put,
)
from pgwire_codec._core.protocol cimport KIND_BINARY, KIND_NULL, KIND_TEXT, KIND_UNCHANGED
from pgwire_codec._core.wire.primitives cimport (
    BAD_LENGTH, BAD_VALUE, OK, TRUNCATED, Code, Cursor, cursor, load_i32, load_u32, read_bytes,
    read_count16, read_count32, read_cstring, read_i32, read_i64, read_u8, read_u32, read_u64,
    remaining,
)
from pgwire_codec._core.wire.tuple_data cimport VALUE_HEAD, has_value

from pgwire_codec._core.messages import layout as layouts

__all__ = ["decode_frame", "decode_message"]

cdef enum:
    MAX_COMMON = 64

# The kinds of tuples with only text, or only binary values: those of most tuples, made once.
cdef tuple ALL_TEXT = tuple([b"t" * count for count in range(MAX_COMMON)])
cdef tuple ALL_BINARY = tuple([b"b" * count for count in range(MAX_COMMON)])

cdef Layout TUPLE_DATA = layouts.TUPLE_DATA
cdef Layout RELATION_COLUMN = layouts.RELATION_COLUMN


cdef tuple by_tag(each):
    """Return 256 entries: a Layout for each tag, None for other bytes."""
    cdef Layout layout
    table = [None] * 256
    for layout in each:
        table[layout.tag[0]] = layout
    return tuple(table)


# Fields.


cdef inline object new_bytes(const uint8_t* data, Py_ssize_t length):
    return PyBytes_FromStringAndSize(<const char*> data, length)


cdef object read_string(Cursor* c):
    cdef const uint8_t* data
    cdef Py_ssize_t length
    if read_cstring(c, &data, &length):
        return None
    try:
        return PyUnicode_DecodeUTF8(<char*> data, length, NULL)
    except UnicodeDecodeError:
        return None


cdef object read_char(Cursor* c, const char* choices):
    cdef uint8_t value
    if read_u8(c, &value) or value == 0 or strchr(choices, value) == NULL:
        return None
    return chr(value)


cdef object read_oids(Cursor* c, int32_t count):
    cdef int32_t number
    if count > remaining(c) // 4:
        return None
    oids = tuple([load_u32(c.p + 4 * <Py_ssize_t> number) for number in range(count)])
    c.p += 4 * <Py_ssize_t> count
    return oids


cdef object read_columns(Cursor* c, int32_t count):
    cdef int32_t _
    columns = []
    for _ in range(count):
        column = read_fields(RELATION_COLUMN, c, False)
        if column is None:
            return None
        columns.append(column)
    return tuple(columns)


cdef Code check_tuple(Cursor* c, int16_t* count, uint8_t* every) noexcept nogil:
    """Skip TupleData; set its number of fields, and the kind of all, or 0 if they differ."""
    cdef Code code = read_count16(c, count)
    cdef const uint8_t* p = c.p
    cdef const uint8_t* end = c.end
    cdef uint8_t kind
    cdef int32_t length
    cdef int _
    if code:
        return code
    if count[0] > end - p:
        return TRUNCATED
    every[0] = p[0] if count[0] else KIND_TEXT
    for _ in range(count[0]):
        if 1 > end - p:
            return TRUNCATED
        kind = p[0]
        p += 1
        if kind != every[0]:
            every[0] = 0
        if kind == KIND_TEXT or kind == KIND_BINARY:
            if 4 > end - p:
                return TRUNCATED
            length = load_i32(p)
            p += 4
            if length < 0 or length > end - p:
                return TRUNCATED if length > 0 else BAD_LENGTH
            p += length
        elif kind != KIND_NULL and kind != KIND_UNCHANGED:
            return BAD_VALUE
    c.p = p
    return OK


cdef object read_tuple(Cursor* c):
    cdef const uint8_t* p = c.p + 2  # after the count
    cdef int16_t count
    cdef uint8_t every
    cdef int32_t length
    cdef int number
    cdef char* mixed = NULL
    if check_tuple(c, &count, &every):
        return None
    if every == KIND_TEXT and count < MAX_COMMON:
        kinds = <object> PyTuple_GET_ITEM(ALL_TEXT, count)
    elif every == KIND_BINARY and count < MAX_COMMON:
        kinds = <object> PyTuple_GET_ITEM(ALL_BINARY, count)
    else:
        kinds = PyBytes_FromStringAndSize(NULL, count)
        mixed = PyBytes_AS_STRING(kinds)
    values = PyTuple_New(count)
    for number in range(count):
        if mixed is not NULL:
            mixed[number] = <char> p[0]
        if has_value(p):
            length = load_i32(p + 1)
            value = new_bytes(p + VALUE_HEAD, length)
            p += VALUE_HEAD + length
        else:
            value = None
            p += 1
        Py_INCREF(value)
        PyTuple_SET_ITEM(values, number, value)
    result = new(TUPLE_DATA)
    put(TUPLE_DATA, result, 0, kinds)
    put(TUPLE_DATA, result, 1, values)
    return result


cdef object read_field(const Field* field, Cursor* c, int32_t count):
    """Read a field; `count` is that of the list before it."""
    cdef const uint8_t* data
    cdef uint8_t byte
    cdef uint32_t u32
    cdef int32_t i32
    cdef uint64_t u64
    cdef int64_t i64
    if field.wire == TUPLE:
        return read_tuple(c)
    elif field.wire == UINT32:
        return None if read_u32(c, &u32) else u32
    elif field.wire == UINT64:
        return None if read_u64(c, &u64) else u64
    elif field.wire == INT64:
        return None if read_i64(c, &i64) else i64
    elif field.wire == INT32:
        return None if read_i32(c, &i32) else i32
    elif field.wire == INT8:
        return None if read_u8(c, &byte) else byte
    elif field.wire == BOOL:
        return None if read_u8(c, &byte) or byte > 1 else byte == 1
    elif field.wire == CHAR:
        return read_char(c, field.choices)
    elif field.wire == STRING:
        return read_string(c)
    elif field.wire == BYTES:
        return None if read_bytes(c, count, &data) else new_bytes(data, count)
    elif field.wire == REST:
        data = c.p
        c.p = c.end
        return new_bytes(data, c.end - data)
    elif field.wire == OIDS:
        return read_oids(c, count)
    return read_columns(c, count)


# Messages.


cdef inline int is_present(
    const Field* field, Cursor* c, const bint* there, bint streaming
) noexcept nogil:
    """Return 1 if the field is there, after its marker; 0 if not; -1 if its marker is missing.

    `there` contains the same for the members before it.
    """
    if field.alternative >= 0 and there[field.alternative]:
        return False
    if field.together >= 0:
        return there[field.together]
    if field.presence == STREAMED:
        return streaming
    if field.presence == REMAINING:
        return remaining(c) > 0
    if field.marker < 0:
        return True
    if remaining(c) and c.p[0] == field.marker:
        c.p += 1
        return True
    return 0 if field.presence == MARKED else -1


cdef bint read_count(const Field* field, Cursor* c, int32_t* count) noexcept nogil:
    """Read the count of the list that follows; return False if it is invalid."""
    cdef int16_t short_count
    if field.wire == COUNT16:
        if read_count16(c, &short_count):
            return False
        count[0] = short_count
        return True
    return read_count32(c, count) == OK


cdef object read_fields(Layout layout, Cursor* c, bint streaming):
    cdef const Field* field
    cdef bint there[MAX_MEMBERS]
    cdef int32_t count = 0
    cdef int index, presence
    message = new(layout)
    for index in range(layout.count):
        field = &layout.fields[index]
        if field.is_count:
            if not read_count(field, c, &count):
                return None
            continue
        presence = is_present(field, c, there, streaming)
        if presence < 0:
            return None
        there[field.member] = presence
        value = None
        if presence:
            value = read_field(field, c, count)
            if value is None:
                return None
        put(layout, message, field.member, value)
    return message


# Entry.


cdef tuple MESSAGES = by_tag(layouts.MESSAGES)
cdef tuple FRAMES = by_tag(layouts.FRAMES)


cdef object read_whole(const uint8_t* data, Py_ssize_t length, tuple table, bint streaming):
    """Read all of the bytes, or return None."""
    cdef Cursor c = cursor(data, length)
    cdef uint8_t tag
    if read_u8(&c, &tag):
        return None
    layout = <object> PyTuple_GET_ITEM(table, tag)
    if layout is None:
        return None
    message = read_fields(<Layout> layout, &c, streaming)
    return None if remaining(&c) else message


cdef object decode(object data, tuple table, bint streaming):
    """Read a message or a frame; return None if it is invalid, or not in a plain buffer."""
    cdef Py_buffer view
    if PyBytes_CheckExact(data):
        return read_whole(
            <const uint8_t*> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), table, streaming
        )
    if not is_plain(data):
        return None
    # While the buffer is held, a bytearray cannot be resized.
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return read_whole(<const uint8_t*> view.buf, view.len, table, streaming)
    finally:
        PyBuffer_Release(&view)


cdef bint is_plain(object data) except -1:
    if type(data) is memoryview:
        return data.c_contiguous
    return type(data) is bytes or type(data) is bytearray


def decode_message(data, *, bint streaming=False):
    """Decode one pgoutput message.

    Parameters
    ----------
    data : bytes-like
        The message, from its tag byte to its end.
    streaming : bool
        Whether it came inside Stream Start ... Stream Stop: there, changes, Relation, Type and
        Message carry the ID of their (sub)transaction.

    Raises
    ------
    DecodeError
        When the bytes are not one whole message and nothing else; with code and byte offset.
    TypeError
        When ``data`` is not bytes-like.

    Notes
    -----
    PostgreSQL documentation, "Logical Replication Message Formats".
    """
    message = decode(data, MESSAGES, streaming)
    if message is None:
        from pgwire_codec.reference import codec as reference

        message = reference.decode_message(data, streaming=streaming)
        if is_plain(data):
            raise _disagreement(data, message)
    return message


def decode_frame(data):
    """Decode one frame of the streaming replication protocol (the payload of CopyData).

    Raises ``DecodeError`` and ``TypeError`` as :func:`decode_message` does. The tags of frames
    and messages overlap, so that a caller has to say which it has.

    Notes
    -----
    PostgreSQL documentation, "Streaming Replication Protocol", START_REPLICATION.
    """
    frame = decode(data, FRAMES, False)
    if frame is None:
        from pgwire_codec.reference import codec as reference

        frame = reference.decode_frame(data)
        if is_plain(data):
            raise _disagreement(data, frame)
    return frame


def _disagreement(data, message):
    return RuntimeError(
        f"the compiled codec refused {bytes(data).hex()}, which the reference reads as "
        f"{message!r}: please report it"
    )

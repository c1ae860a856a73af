"""Decode one message or frame: the compiled twin of :mod:`pgwire_codec.reference.codec`.

Functions are named as in PostgreSQL's proto.c. Each gives the message, or None where the bytes are
not one. Those are given to the reference, which says what is wrong with them: errors are the
reference's own.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pgwire_codec._core.messages.layout cimport Shape, new, put
from pgwire_codec._core.wire.primitives cimport (
    BAD_LENGTH, BAD_VALUE, OK, TRUNCATED, Code, Cursor, cursor, load_i32, load_u32, read_bytes,
    read_count16, read_count32, read_cstring, read_i32, read_i64, read_u8, read_u32, read_u64,
    remaining,
)

from pgwire_codec.protocol import messages
from pgwire_codec.reference import codec as reference

__all__ = ["decode_frame", "decode_message"]

cdef Shape TUPLE = Shape(messages.TupleData)
cdef Shape RELATION_COLUMN = Shape(messages.RelationColumn)
cdef Shape BEGIN = Shape(messages.Begin)
cdef Shape MESSAGE = Shape(messages.Message)
cdef Shape COMMIT = Shape(messages.Commit)
cdef Shape ORIGIN = Shape(messages.Origin)
cdef Shape RELATION = Shape(messages.Relation)
cdef Shape TYPE = Shape(messages.Type)
cdef Shape INSERT = Shape(messages.Insert)
cdef Shape UPDATE = Shape(messages.Update)
cdef Shape DELETE = Shape(messages.Delete)
cdef Shape TRUNCATE = Shape(messages.Truncate)
cdef Shape STREAM_START = Shape(messages.StreamStart)
cdef Shape STREAM_STOP = Shape(messages.StreamStop)
cdef Shape STREAM_COMMIT = Shape(messages.StreamCommit)
cdef Shape STREAM_ABORT = Shape(messages.StreamAbort)
cdef Shape BEGIN_PREPARE = Shape(messages.BeginPrepare)
cdef Shape PREPARE = Shape(messages.Prepare)
cdef Shape COMMIT_PREPARED = Shape(messages.CommitPrepared)
cdef Shape ROLLBACK_PREPARED = Shape(messages.RollbackPrepared)
cdef Shape STREAM_PREPARE = Shape(messages.StreamPrepare)
cdef Shape XLOG_DATA = Shape(messages.XLogData)
cdef Shape PRIMARY_KEEPALIVE = Shape(messages.PrimaryKeepalive)
cdef Shape STANDBY_STATUS_UPDATE = Shape(messages.StandbyStatusUpdate)
cdef Shape HOT_STANDBY_FEEDBACK = Shape(messages.HotStandbyFeedback)

cdef enum:
    MAX_COMMON = 64

# The kinds of tuples that have only text, or only binary values: of most, and made once.
cdef tuple ALL_TEXT = tuple(b"t" * count for count in range(MAX_COMMON))
cdef tuple ALL_BINARY = tuple(b"b" * count for count in range(MAX_COMMON))


# Parts of messages.


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


cdef object read_flag(Cursor* c):
    cdef uint8_t value
    if read_u8(c, &value) or value > 1:
        return None
    return value == 1


cdef inline object xid_or_none(bint streaming, uint32_t xid):
    return xid if streaming else None


cdef Code check_tuple(Cursor* c, int16_t* count, uint8_t* every) noexcept nogil:
    """Pass over TupleData; tell its number of columns, and the kind of all of them or 0."""
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
    every[0] = p[0] if count[0] else b"t"
    for _ in range(count[0]):
        if 1 > end - p:
            return TRUNCATED
        kind = p[0]
        p += 1
        if kind != every[0]:
            every[0] = 0
        if kind == b"t" or kind == b"b":
            if 4 > end - p:
                return TRUNCATED
            length = load_i32(p)
            p += 4
            if length < 0 or length > end - p:
                return TRUNCATED if length > 0 else BAD_LENGTH
            p += length
        elif kind != b"n" and kind != b"u":
            return BAD_VALUE
    c.p = p
    return OK


cdef object read_tuple(Cursor* c):
    cdef const uint8_t* p = c.p + 2  # behind the count
    cdef int16_t count
    cdef uint8_t every
    cdef int32_t length
    cdef int number
    cdef char* mixed = NULL
    if check_tuple(c, &count, &every):
        return None
    if every == b"t" and count < MAX_COMMON:
        kinds = <object> PyTuple_GET_ITEM(ALL_TEXT, count)
    elif every == b"b" and count < MAX_COMMON:
        kinds = <object> PyTuple_GET_ITEM(ALL_BINARY, count)
    else:
        kinds = PyBytes_FromStringAndSize(NULL, count)
        mixed = PyBytes_AS_STRING(kinds)
    values = PyTuple_New(count)
    for number in range(count):
        if mixed is not NULL:
            mixed[number] = <char> p[0]
        if p[0] == b"t" or p[0] == b"b":
            length = load_i32(p + 1)
            value = new_bytes(p + 5, length)
            p += 5 + length
        else:
            value = None
            p += 1
        Py_INCREF(value)
        PyTuple_SET_ITEM(values, number, value)
    result = new(TUPLE)
    put(TUPLE, result, 0, kinds)
    put(TUPLE, result, 1, values)
    return result


cdef object read_marked(Cursor* c, uint8_t marker):
    """Read the tuple that a marker byte announces."""
    if 1 > c.end - c.p or c.p[0] != marker:
        return None
    c.p += 1
    return read_tuple(c)


cdef inline bint next_is(const Cursor* c, uint8_t marker) noexcept nogil:
    return c.p != c.end and c.p[0] == marker


# Messages.


cdef object read_begin(Cursor* c):
    cdef uint64_t final_lsn
    cdef int64_t commit_time
    cdef uint32_t xid
    if read_u64(c, &final_lsn) or read_i64(c, &commit_time) or read_u32(c, &xid):
        return None
    return BEGIN.make((final_lsn, commit_time, xid))


cdef object read_message(Cursor* c, bint streaming):
    cdef uint32_t xid = 0
    cdef uint8_t flags
    cdef uint64_t lsn
    cdef int32_t length
    cdef const uint8_t* content
    if (streaming and read_u32(c, &xid)) or read_u8(c, &flags) or read_u64(c, &lsn):
        return None
    prefix = read_string(c)
    if prefix is None or read_count32(c, &length) or read_bytes(c, length, &content):
        return None
    return MESSAGE.make(
        (xid_or_none(streaming, xid), flags, lsn, prefix, new_bytes(content, length))
    )


cdef object read_commit(Cursor* c):
    cdef uint8_t flags
    cdef uint64_t commit_lsn, end_lsn
    cdef int64_t commit_time
    if (
        read_u8(c, &flags)
        or read_u64(c, &commit_lsn)
        or read_u64(c, &end_lsn)
        or read_i64(c, &commit_time)
    ):
        return None
    return COMMIT.make((flags, commit_lsn, end_lsn, commit_time))


cdef object read_origin(Cursor* c):
    cdef uint64_t lsn
    if read_u64(c, &lsn):
        return None
    name = read_string(c)
    return None if name is None else ORIGIN.make((lsn, name))


cdef object read_rel(Cursor* c, bint streaming):
    cdef uint32_t xid = 0, oid
    cdef uint8_t identity
    if (streaming and read_u32(c, &xid)) or read_u32(c, &oid):
        return None
    namespace = read_string(c)
    if namespace is None:
        return None
    name = read_string(c)
    if name is None or read_u8(c, &identity) or identity not in b"dnfi":
        return None
    columns = read_attrs(c)
    if columns is None:
        return None
    return RELATION.make(
        (xid_or_none(streaming, xid), oid, namespace, name, chr(identity), columns)
    )


cdef object read_attrs(Cursor* c):
    cdef int16_t count
    cdef int _
    cdef uint8_t flags
    cdef uint32_t type_oid
    cdef int32_t type_modifier
    if read_count16(c, &count):
        return None
    columns = []
    for _ in range(count):
        if read_u8(c, &flags):
            return None
        name = read_string(c)
        if name is None or read_u32(c, &type_oid) or read_i32(c, &type_modifier):
            return None
        columns.append(RELATION_COLUMN.make((flags, name, type_oid, type_modifier)))
    return tuple(columns)


cdef object read_typ(Cursor* c, bint streaming):
    cdef uint32_t xid = 0, oid
    if (streaming and read_u32(c, &xid)) or read_u32(c, &oid):
        return None
    namespace = read_string(c)
    if namespace is None:
        return None
    name = read_string(c)
    if name is None:
        return None
    return TYPE.make((xid_or_none(streaming, xid), oid, namespace, name))


cdef object read_insert(Cursor* c, bint streaming):
    cdef uint32_t xid = 0, relation_oid
    if (streaming and read_u32(c, &xid)) or read_u32(c, &relation_oid):
        return None
    after = read_marked(c, b"N")
    if after is None:
        return None
    message = new(INSERT)
    put(INSERT, message, 0, xid_or_none(streaming, xid))
    put(INSERT, message, 1, relation_oid)
    put(INSERT, message, 2, after)
    return message


cdef object read_update(Cursor* c, bint streaming):
    cdef uint32_t xid = 0, relation_oid
    if (streaming and read_u32(c, &xid)) or read_u32(c, &relation_oid):
        return None
    key = old = None
    if next_is(c, b"K"):
        key = read_marked(c, b"K")
        if key is None:
            return None
    elif next_is(c, b"O"):
        old = read_marked(c, b"O")
        if old is None:
            return None
    after = read_marked(c, b"N")
    if after is None:
        return None
    message = new(UPDATE)
    put(UPDATE, message, 0, xid_or_none(streaming, xid))
    put(UPDATE, message, 1, relation_oid)
    put(UPDATE, message, 2, key)
    put(UPDATE, message, 3, old)
    put(UPDATE, message, 4, after)
    return message


cdef object read_delete(Cursor* c, bint streaming):
    cdef uint32_t xid = 0, relation_oid
    if (streaming and read_u32(c, &xid)) or read_u32(c, &relation_oid):
        return None
    key = old = None
    if next_is(c, b"K"):
        key = read_marked(c, b"K")
    else:
        old = read_marked(c, b"O")
    if key is None and old is None:
        return None
    message = new(DELETE)
    put(DELETE, message, 0, xid_or_none(streaming, xid))
    put(DELETE, message, 1, relation_oid)
    put(DELETE, message, 2, key)
    put(DELETE, message, 3, old)
    return message


cdef object read_truncate(Cursor* c, bint streaming):
    cdef uint32_t xid = 0
    cdef int32_t count, number
    cdef uint8_t options
    if (streaming and read_u32(c, &xid)) or read_count32(c, &count) or read_u8(c, &options):
        return None
    if count > remaining(c) // 4:
        return None
    oids = tuple([load_u32(c.p + 4 * <Py_ssize_t> number) for number in range(count)])
    c.p += 4 * <Py_ssize_t> count
    return TRUNCATE.make((xid_or_none(streaming, xid), options, oids))


cdef object read_stream_start(Cursor* c):
    cdef uint32_t xid
    if read_u32(c, &xid):
        return None
    first_segment = read_flag(c)
    return None if first_segment is None else STREAM_START.make((xid, first_segment))


cdef object read_stream_commit(Cursor* c):
    cdef uint32_t xid
    cdef uint8_t flags
    cdef uint64_t commit_lsn, end_lsn
    cdef int64_t commit_time
    if (
        read_u32(c, &xid)
        or read_u8(c, &flags)
        or read_u64(c, &commit_lsn)
        or read_u64(c, &end_lsn)
        or read_i64(c, &commit_time)
    ):
        return None
    return STREAM_COMMIT.make((xid, flags, commit_lsn, end_lsn, commit_time))


cdef object read_stream_abort(Cursor* c):
    cdef uint32_t xid, subxid
    cdef uint64_t abort_lsn
    cdef int64_t abort_time
    if read_u32(c, &xid) or read_u32(c, &subxid):
        return None
    if not remaining(c):
        return STREAM_ABORT.make((xid, subxid, None, None))
    if read_u64(c, &abort_lsn) or read_i64(c, &abort_time):
        return None
    return STREAM_ABORT.make((xid, subxid, abort_lsn, abort_time))


cdef object read_begin_prepare(Cursor* c):
    cdef uint64_t prepare_lsn, end_lsn
    cdef int64_t prepare_time
    cdef uint32_t xid
    if (
        read_u64(c, &prepare_lsn)
        or read_u64(c, &end_lsn)
        or read_i64(c, &prepare_time)
        or read_u32(c, &xid)
    ):
        return None
    gid = read_string(c)
    return None if gid is None else BEGIN_PREPARE.make(
        (prepare_lsn, end_lsn, prepare_time, xid, gid)
    )


cdef object read_prepare_common(Cursor* c, Shape shape):
    """Read Prepare, StreamPrepare or CommitPrepared, which are laid out alike."""
    cdef uint8_t flags
    cdef uint64_t lsn, end_lsn
    cdef int64_t time
    cdef uint32_t xid
    if (
        read_u8(c, &flags)
        or read_u64(c, &lsn)
        or read_u64(c, &end_lsn)
        or read_i64(c, &time)
        or read_u32(c, &xid)
    ):
        return None
    gid = read_string(c)
    return None if gid is None else shape.make((flags, lsn, end_lsn, time, xid, gid))


cdef object read_rollback_prepared(Cursor* c):
    cdef uint8_t flags
    cdef uint64_t prepare_end_lsn, rollback_end_lsn
    cdef int64_t prepare_time, rollback_time
    cdef uint32_t xid
    if (
        read_u8(c, &flags)
        or read_u64(c, &prepare_end_lsn)
        or read_u64(c, &rollback_end_lsn)
        or read_i64(c, &prepare_time)
        or read_i64(c, &rollback_time)
        or read_u32(c, &xid)
    ):
        return None
    gid = read_string(c)
    return None if gid is None else ROLLBACK_PREPARED.make(
        (flags, prepare_end_lsn, rollback_end_lsn, prepare_time, rollback_time, xid, gid)
    )


# By tag.


cdef object read_any_message(Cursor* c, bint streaming):
    cdef uint8_t tag
    if read_u8(c, &tag):
        return None
    if tag == b"I":
        return read_insert(c, streaming)
    if tag == b"U":
        return read_update(c, streaming)
    if tag == b"D":
        return read_delete(c, streaming)
    if tag == b"B":
        return read_begin(c)
    if tag == b"C":
        return read_commit(c)
    if tag == b"R":
        return read_rel(c, streaming)
    if tag == b"Y":
        return read_typ(c, streaming)
    if tag == b"O":
        return read_origin(c)
    if tag == b"M":
        return read_message(c, streaming)
    if tag == b"T":
        return read_truncate(c, streaming)
    if tag == b"S":
        return read_stream_start(c)
    if tag == b"E":
        return new(STREAM_STOP)
    if tag == b"c":
        return read_stream_commit(c)
    if tag == b"A":
        return read_stream_abort(c)
    if tag == b"b":
        return read_begin_prepare(c)
    if tag == b"P":
        return read_prepare_common(c, PREPARE)
    if tag == b"K":
        return read_prepare_common(c, COMMIT_PREPARED)
    if tag == b"r":
        return read_rollback_prepared(c)
    if tag == b"p":
        return read_prepare_common(c, STREAM_PREPARE)
    return None


# Frames of the streaming replication protocol.


cdef object read_xlog_data(Cursor* c):
    cdef uint64_t wal_start, wal_end
    cdef int64_t send_time
    if read_u64(c, &wal_start) or read_u64(c, &wal_end) or read_i64(c, &send_time):
        return None
    data = PyBytes_FromStringAndSize(<const char*> c.p, remaining(c))
    c.p = c.end
    return XLOG_DATA.make((wal_start, wal_end, send_time, data))


cdef object read_keepalive(Cursor* c):
    cdef uint64_t wal_end
    cdef int64_t send_time
    if read_u64(c, &wal_end) or read_i64(c, &send_time):
        return None
    reply = read_flag(c)
    return None if reply is None else PRIMARY_KEEPALIVE.make((wal_end, send_time, reply))


cdef object read_status_update(Cursor* c):
    cdef uint64_t written, flushed, applied
    cdef int64_t send_time
    if (
        read_u64(c, &written)
        or read_u64(c, &flushed)
        or read_u64(c, &applied)
        or read_i64(c, &send_time)
    ):
        return None
    reply = read_flag(c)
    return None if reply is None else STANDBY_STATUS_UPDATE.make(
        (written, flushed, applied, send_time, reply)
    )


cdef object read_hot_standby_feedback(Cursor* c):
    cdef int64_t send_time
    cdef uint32_t xmin, xmin_epoch, catalog_xmin, catalog_xmin_epoch
    if (
        read_i64(c, &send_time)
        or read_u32(c, &xmin)
        or read_u32(c, &xmin_epoch)
        or read_u32(c, &catalog_xmin)
        or read_u32(c, &catalog_xmin_epoch)
    ):
        return None
    return HOT_STANDBY_FEEDBACK.make(
        (send_time, xmin, xmin_epoch, catalog_xmin, catalog_xmin_epoch)
    )


cdef object read_any_frame(Cursor* c):
    cdef uint8_t tag
    if read_u8(c, &tag):
        return None
    if tag == b"w":
        return read_xlog_data(c)
    if tag == b"k":
        return read_keepalive(c)
    if tag == b"r":
        return read_status_update(c)
    if tag == b"h":
        return read_hot_standby_feedback(c)
    return None


# Entry.


cdef object read_whole(const uint8_t* data, Py_ssize_t length, bint frame, bint streaming):
    """Read all of the bytes, or give None."""
    cdef Cursor c = cursor(data, length)
    message = read_any_frame(&c) if frame else read_any_message(&c, streaming)
    return None if remaining(&c) else message


cdef object decode(object data, bint frame, bint streaming):
    """Read a message or a frame; None where it is not one, or the input is not a plain buffer."""
    cdef Py_buffer view
    if PyBytes_CheckExact(data):
        return read_whole(
            <const uint8_t*> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), frame, streaming
        )
    if not is_plain(data):
        return None
    # While the buffer is held, a bytearray cannot be resized.
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return read_whole(<const uint8_t*> view.buf, view.len, frame, streaming)
    finally:
        PyBuffer_Release(&view)


cdef bint is_plain(object data) except -1:
    if type(data) is memoryview:
        return data.c_contiguous
    return type(data) is bytes or type(data) is bytearray


def decode_message(data, *, bint streaming=False):
    message = decode(data, False, streaming)
    if message is None:
        message = reference.decode_message(data, streaming=streaming)
        if is_plain(data):
            raise _disagreement(data, message)
    return message


def decode_frame(data):
    frame = decode(data, True, False)
    if frame is None:
        frame = reference.decode_frame(data)
        if is_plain(data):
            raise _disagreement(data, frame)
    return frame


decode_message.__doc__ = reference.decode_message.__doc__
decode_frame.__doc__ = reference.decode_frame.__doc__


def _disagreement(data, message):
    return RuntimeError(
        f"the compiled codec refused what the reference reads, {message!r} from "
        f"{bytes(data).hex()}: please report it"
    )

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=True
"""Decode one message or frame: the compiled twin of :mod:`pgwire_codec.reference.codec`.

Bytes that are not a message are given to the reference, which says what is wrong with them: errors
are the reference's own.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from pgwire_codec._core.read_messages cimport read_any_message, read_flag
from pgwire_codec._core.shape cimport Shape
from pgwire_codec._core.wire cimport (
    Cursor, cursor, read_i64, read_u8, read_u32, read_u64, remaining,
)

from pgwire_codec.protocol import messages
from pgwire_codec._core.write_messages import encode_message
from pgwire_codec.reference import codec as reference

__all__ = ["decode_frame", "decode_message", "encode_message"]

cdef Shape XLOG_DATA = Shape(messages.XLogData)
cdef Shape PRIMARY_KEEPALIVE = Shape(messages.PrimaryKeepalive)
cdef Shape STANDBY_STATUS_UPDATE = Shape(messages.StandbyStatusUpdate)
cdef Shape HOT_STANDBY_FEEDBACK = Shape(messages.HotStandbyFeedback)


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

"""The wire format as constants. Written by tools/update_protocol.py: do not edit."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #define PGWIRE_EPOCH INT64_C(946684800000000)
    """
    const int64_t EPOCH "PGWIRE_EPOCH"  # microseconds from 1970-01-01 to 2000-01-01

cdef enum:
    EPOCH_DAYS = 10957  # from 1970-01-01 to 2000-01-01

cdef enum:
    # States of a value.
    STATE_NULL = 0
    STATE_VALUE = 1
    STATE_UNCHANGED = 2
    STATE_NOT_SENT = 3

cdef enum:
    # Markers of tuples.
    MARKER_NEW = 0x4E  # N
    MARKER_KEY = 0x4B  # K
    MARKER_OLD = 0x4F  # O

cdef enum:
    # Kinds of the fields of a tuple.
    KIND_NULL = 0x6E  # n
    KIND_UNCHANGED = 0x75  # u
    KIND_TEXT = 0x74  # t
    KIND_BINARY = 0x62  # b

cdef enum:
    # Tags of messages.
    BEGIN = 0x42  # B
    MESSAGE = 0x4D  # M
    COMMIT = 0x43  # C
    ORIGIN = 0x4F  # O
    RELATION = 0x52  # R
    TYPE = 0x59  # Y
    INSERT = 0x49  # I
    UPDATE = 0x55  # U
    DELETE = 0x44  # D
    TRUNCATE = 0x54  # T
    STREAM_START = 0x53  # S
    STREAM_STOP = 0x45  # E
    STREAM_COMMIT = 0x63  # c
    STREAM_ABORT = 0x41  # A
    BEGIN_PREPARE = 0x62  # b
    PREPARE = 0x50  # P
    COMMIT_PREPARED = 0x4B  # K
    ROLLBACK_PREPARED = 0x72  # r
    STREAM_PREPARE = 0x70  # p

cdef enum:
    # Tags of frames.
    XLOG_DATA = 0x77  # w
    PRIMARY_KEEPALIVE = 0x6B  # k
    STANDBY_STATUS_UPDATE = 0x72  # r
    HOT_STANDBY_FEEDBACK = 0x68  # h

cdef enum:
    # Offsets of the fields of messages of a fixed size, and that size; XLogData without data.
    BEGIN_FINAL_LSN = 1
    BEGIN_COMMIT_TIME = 9
    BEGIN_XID = 17
    BEGIN_SIZE = 21
    COMMIT_FLAGS = 1
    COMMIT_COMMIT_LSN = 2
    COMMIT_END_LSN = 10
    COMMIT_COMMIT_TIME = 18
    COMMIT_SIZE = 26
    STREAM_START_XID = 1
    STREAM_START_FIRST_SEGMENT = 5
    STREAM_START_SIZE = 6
    STREAM_STOP_SIZE = 1
    STREAM_COMMIT_XID = 1
    STREAM_COMMIT_FLAGS = 5
    STREAM_COMMIT_COMMIT_LSN = 6
    STREAM_COMMIT_END_LSN = 14
    STREAM_COMMIT_COMMIT_TIME = 22
    STREAM_COMMIT_SIZE = 30
    STREAM_ABORT_XID = 1
    STREAM_ABORT_SUBXID = 5
    STREAM_ABORT_SIZE = 9
    STREAM_ABORT_LONG_SIZE = 25
    XLOG_DATA_WAL_START = 1
    XLOG_DATA_WAL_END = 9
    XLOG_DATA_SEND_TIME = 17
    XLOG_DATA_SIZE = 25
    PRIMARY_KEEPALIVE_WAL_END = 1
    PRIMARY_KEEPALIVE_SEND_TIME = 9
    PRIMARY_KEEPALIVE_REPLY_REQUESTED = 17
    PRIMARY_KEEPALIVE_SIZE = 18
    STANDBY_STATUS_UPDATE_WRITTEN_LSN = 1
    STANDBY_STATUS_UPDATE_FLUSHED_LSN = 9
    STANDBY_STATUS_UPDATE_APPLIED_LSN = 17
    STANDBY_STATUS_UPDATE_SEND_TIME = 25
    STANDBY_STATUS_UPDATE_REPLY_REQUESTED = 33
    STANDBY_STATUS_UPDATE_SIZE = 34
    HOT_STANDBY_FEEDBACK_SEND_TIME = 1
    HOT_STANDBY_FEEDBACK_XMIN = 9
    HOT_STANDBY_FEEDBACK_XMIN_EPOCH = 13
    HOT_STANDBY_FEEDBACK_CATALOG_XMIN = 17
    HOT_STANDBY_FEEDBACK_CATALOG_XMIN_EPOCH = 21
    HOT_STANDBY_FEEDBACK_SIZE = 25


cdef inline bint in_stream_block(uint8_t tag, bint before) noexcept nogil:
    """Return whether the message after one with this tag is inside a stream block."""
    if tag == STREAM_START:
        return True
    if tag in (
        BEGIN, COMMIT, STREAM_STOP, STREAM_COMMIT, STREAM_ABORT, BEGIN_PREPARE, PREPARE,
        COMMIT_PREPARED, ROLLBACK_PREPARED, STREAM_PREPARE,
    ):
        return False
    return before


cdef inline bint may_reach_position(uint8_t tag) noexcept nogil:
    """Return whether a message with this tag may be the last one before a position."""
    return tag in (
        MESSAGE, COMMIT, STREAM_STOP, STREAM_COMMIT, PREPARE, COMMIT_PREPARED, ROLLBACK_PREPARED,
        STREAM_PREPARE,
    )

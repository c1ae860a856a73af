# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What a value's bytes become in a column of strings or bytes."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from pgwire_codec._core.bytes_text cimport read_bytea, write_hex, write_uuid
from pgwire_codec._core.numerics cimport is_numeric, write_numeric
from pgwire_codec._core.utf8 cimport is_utf8

cdef enum Form:
    NO_FORM  # only the reference writes it
    UTF8  # as it is, if it is UTF-8
    RAW  # as it is
    NUMERIC_TEXT  # as it is, if it is a numeric
    BYTEA_TEXT  # the bytes that its hex or escape form says
    VERSIONED  # UTF-8 behind a version byte: jsonb
    NUMERIC_BINARY  # a numeric's text
    UUID_BINARY  # a uuid's text
    HEX_OF_BYTES  # a bytea's hex form

cdef enum:
    NUMERIC_ROOM = 512  # of a binary numeric's text; a longer one is hard


cdef inline int64_t most_bytes(Form form, const uint8_t* p, int32_t n) noexcept nogil:
    """Give the most bytes that put_form writes of n."""
    if form == BYTEA_TEXT and n >= 2 and p[1] == 0x78:
        return n >> 1
    if form == NUMERIC_BINARY:
        return NUMERIC_ROOM
    if form == UUID_BINARY:
        return 36
    if form == HEX_OF_BYTES:
        return 2 * <int64_t> n + 2
    return n


cdef inline int32_t put_form(Form form, const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    """Write a value's bytes; how many, or -1 where only the reference knows them."""
    if form == UTF8:
        if not is_utf8(p, n):
            return -1
    elif form == NUMERIC_TEXT:
        if not is_numeric(p, n):
            return -1
    elif form == VERSIONED:
        if n < 1 or p[0] != 1 or not is_utf8(p + 1, n - 1):
            return -1
        p += 1
        n -= 1
    elif form == BYTEA_TEXT:
        return read_bytea(p, n, out)
    elif form == NUMERIC_BINARY:
        return write_numeric(p, n, out, NUMERIC_ROOM)
    elif form == UUID_BINARY:
        if n != 16:
            return -1
        write_uuid(p, out)
        return 36
    elif form == HEX_OF_BYTES:
        memcpy(out, b"\\x", 2)
        write_hex(p, n, out + 2)
        return 2 * n + 2
    elif form != RAW:
        return -1
    if n:
        memcpy(out, p, n)
    return n

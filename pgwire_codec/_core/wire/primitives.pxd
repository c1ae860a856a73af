"""Primitive types of the wire: loads, stores and a cursor that does not pass its end.

Integers are big-endian. They are copied out of the buffer and swapped: a pointer into it need not
be aligned, so none is ever cast. A `load_` or `store_` has no bound: its caller has checked that
the bytes are there. A `read_` checks them, returns a Code and leaves the cursor where it failed.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define PGWIRE_SWAP16(x) (x)
    #define PGWIRE_SWAP32(x) (x)
    #define PGWIRE_SWAP64(x) (x)
    #else
    #define PGWIRE_SWAP16(x) __builtin_bswap16(x)
    #define PGWIRE_SWAP32(x) __builtin_bswap32(x)
    #define PGWIRE_SWAP64(x) __builtin_bswap64(x)
    #endif
    """
    uint16_t PGWIRE_SWAP16(uint16_t x) noexcept nogil
    uint32_t PGWIRE_SWAP32(uint32_t x) noexcept nogil
    uint64_t PGWIRE_SWAP64(uint64_t x) noexcept nogil


cdef enum Code:
    # Results of a reader, in the order of pgwire_codec.errors.ErrorCode.
    OK = 0
    TRUNCATED
    TRAILING_BYTES
    UNKNOWN_TAG
    BAD_LENGTH
    BAD_VALUE
    INVALID_UTF8


cdef struct Cursor:
    const uint8_t* p  # the next byte
    const uint8_t* end


cdef inline Cursor cursor(const uint8_t* data, Py_ssize_t length) noexcept nogil:
    cdef Cursor c
    c.p = data
    c.end = data + length
    return c


cdef inline Py_ssize_t remaining(const Cursor* c) noexcept nogil:
    return c.end - c.p


# Loads and stores.


cdef inline uint16_t load_u16(const uint8_t* p) noexcept nogil:
    cdef uint16_t x
    memcpy(&x, p, 2)
    return PGWIRE_SWAP16(x)


cdef inline uint32_t load_u32(const uint8_t* p) noexcept nogil:
    cdef uint32_t x
    memcpy(&x, p, 4)
    return PGWIRE_SWAP32(x)


cdef inline uint64_t load_u64(const uint8_t* p) noexcept nogil:
    cdef uint64_t x
    memcpy(&x, p, 8)
    return PGWIRE_SWAP64(x)


cdef inline int16_t load_i16(const uint8_t* p) noexcept nogil:
    return <int16_t> load_u16(p)


cdef inline int32_t load_i32(const uint8_t* p) noexcept nogil:
    return <int32_t> load_u32(p)


cdef inline int64_t load_i64(const uint8_t* p) noexcept nogil:
    return <int64_t> load_u64(p)


cdef inline uint8_t* store_u8(uint8_t* p, uint8_t x) noexcept nogil:
    p[0] = x
    return p + 1


cdef inline uint8_t* store_u16(uint8_t* p, uint16_t x) noexcept nogil:
    x = PGWIRE_SWAP16(x)
    memcpy(p, &x, 2)
    return p + 2


cdef inline uint8_t* store_u32(uint8_t* p, uint32_t x) noexcept nogil:
    x = PGWIRE_SWAP32(x)
    memcpy(p, &x, 4)
    return p + 4


cdef inline uint8_t* store_u64(uint8_t* p, uint64_t x) noexcept nogil:
    x = PGWIRE_SWAP64(x)
    memcpy(p, &x, 8)
    return p + 8


cdef inline uint8_t* store_bytes(uint8_t* p, const void* data, Py_ssize_t length) noexcept nogil:
    if length:  # the data of an empty value may be a null pointer
        memcpy(p, data, <size_t> length)
    return p + length


# Readers.


cdef inline Code read_u8(Cursor* c, uint8_t* out) noexcept nogil:
    if 1 > c.end - c.p:
        return TRUNCATED
    out[0] = c.p[0]
    c.p += 1
    return OK


cdef inline Code read_i16(Cursor* c, int16_t* out) noexcept nogil:
    if 2 > c.end - c.p:
        return TRUNCATED
    out[0] = load_i16(c.p)
    c.p += 2
    return OK


cdef inline Code read_i32(Cursor* c, int32_t* out) noexcept nogil:
    if 4 > c.end - c.p:
        return TRUNCATED
    out[0] = load_i32(c.p)
    c.p += 4
    return OK


cdef inline Code read_u32(Cursor* c, uint32_t* out) noexcept nogil:
    if 4 > c.end - c.p:
        return TRUNCATED
    out[0] = load_u32(c.p)
    c.p += 4
    return OK


cdef inline Code read_i64(Cursor* c, int64_t* out) noexcept nogil:
    if 8 > c.end - c.p:
        return TRUNCATED
    out[0] = load_i64(c.p)
    c.p += 8
    return OK


cdef inline Code read_u64(Cursor* c, uint64_t* out) noexcept nogil:
    if 8 > c.end - c.p:
        return TRUNCATED
    out[0] = load_u64(c.p)
    c.p += 8
    return OK


cdef inline Code read_bytes(Cursor* c, Py_ssize_t n, const uint8_t** out) noexcept nogil:
    if n < 0:
        return BAD_LENGTH
    if n > c.end - c.p:
        return TRUNCATED
    out[0] = c.p
    c.p += n
    return OK


cdef inline Code read_count16(Cursor* c, int16_t* out) noexcept nogil:
    """Read an Int16 that is 0 or more; a negative one leaves the cursor before it."""
    cdef Code code = read_i16(c, out)
    if code == OK and out[0] < 0:
        c.p -= 2
        return BAD_LENGTH
    return code


cdef inline Code read_count32(Cursor* c, int32_t* out) noexcept nogil:
    """Read an Int32 that is 0 or more; a negative one leaves the cursor before it."""
    cdef Code code = read_i32(c, out)
    if code == OK and out[0] < 0:
        c.p -= 4
        return BAD_LENGTH
    return code


cdef inline Code read_cstring(
    Cursor* c, const uint8_t** out, Py_ssize_t* length
) noexcept nogil:
    """Read a string, up to the NUL byte and past it; it is not checked for UTF-8."""
    cdef const uint8_t* stop
    if c.end == c.p:
        return TRUNCATED
    stop = <const uint8_t*> memchr(c.p, 0, <size_t> (c.end - c.p))
    if stop is NULL:
        return TRUNCATED
    out[0] = c.p
    length[0] = stop - c.p
    c.p = stop + 1
    return OK

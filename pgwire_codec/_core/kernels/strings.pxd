"""Strings and bytes: copied behind each other, or as views of where they lie.

Text that passes through is copied in a few wide moves and looked at for bytes above ASCII on the
way. What the server did not send as text is written here for the common types, and is hard for
the others.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from pgwire_codec._core.kernels.column cimport (
    BINARY,
    HARD,
    MISSING,
    TEXT,
    Column,
    Kernel,
    Slot,
    column_odd,
    column_room,
    likely,
    unlikely,
)
from pgwire_codec._core.kernels.digits cimport read_hex, write_hex
from pgwire_codec._core.kernels.numeric cimport is_numeric, write_numeric
from pgwire_codec._core.kernels.utf8 cimport copy_value, is_utf8
from pgwire_codec._core.kernels.uuids cimport write_uuid

cdef enum:
    INLINE = 12  # bytes that a view holds in itself
    CHUNK_BITS = 30  # of the buffers that views point into: each value starts in one's first half

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


cdef inline int32_t read_escaped(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    r"""Read ``\000\377\\``; bytes written, or -1."""
    cdef int32_t at = 0, size = 0
    while at < n:
        if p[at] < 0x20 or p[at] > 0x7E:
            return -1
        if p[at] != 0x5C:
            out[size] = p[at]
            at += 1
        elif n - at >= 2 and p[at + 1] == 0x5C:
            out[size] = 0x5C
            at += 2
        elif (
            n - at >= 4
            and p[at + 1] - <uint32_t> 0x30 <= 3
            and p[at + 2] - <uint32_t> 0x30 <= 7
            and p[at + 3] - <uint32_t> 0x30 <= 7
        ):
            out[size] = (
                (p[at + 1] - 0x30) << 6 | (p[at + 2] - 0x30) << 3 | (p[at + 3] - 0x30)
            )
            at += 4
        else:
            return -1
        size += 1
    return size


cdef inline int32_t read_bytea(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    r"""Read ``\x00ff`` or the escape form; bytes written (n at most, and slack), or -1."""
    if n >= 2 and p[0] == 0x5C and p[1] == 0x78:
        return read_hex(p + 2, n - 2, out)
    return read_escaped(p, n, out)


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


cdef inline Kernel string_kernel(Column* c, str family, str arrow, bint numeric, Py_ssize_t data_size):
    """Set the column up for strings ("u"), bytes ("z") or views of either ("vu", "vz")."""
    c.text_form = UTF8
    c.binary_form = <int> {
        "text": UTF8,
        "jsonb": VERSIONED,
        "jsonpath": VERSIONED,
        "numeric": NUMERIC_BINARY,
        "uuid": UUID_BINARY,
        "bytea": HEX_OF_BYTES,
        "unknown": HEX_OF_BYTES,
    }.get(family, NO_FORM)
    if numeric:
        c.text_form = NUMERIC_TEXT
    if arrow.endswith("z"):
        c.binary_form = RAW
        if family == "bytea":
            c.text_form = BYTEA_TEXT
    if arrow.startswith("v"):
        c.width = 16
        # Written bytes stand behind the chunks of the messages.
        c.high = max((data_size + (1 << CHUNK_BITS) - 1) >> CHUNK_BITS, 1)
        return run_views
    c.width = 4
    return run_utf8 if c.text_form == UTF8 else run_forms


cdef inline int32_t put_value(Column* c, Py_ssize_t index, const Slot* slot, int form) noexcept nogil:
    """Write a value behind the bytes; how many there are, or -1, and the row is noted."""
    cdef int32_t size
    if column_room(c, c.length + index, most_bytes(<Form> form, slot.p, slot.length)):
        return -1
    size = put_form(<Form> form, slot.p, slot.length, c.bytes + c.used)
    if unlikely(size < 0):
        column_odd(c, index, slot, HARD)
    return size


cdef inline void run_utf8(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    """Copy text that passes through, in both forms where they are the same."""
    cdef int32_t* offsets = <int32_t*> c.values + c.length + 1
    cdef int last_plain = BINARY if c.binary_form == UTF8 else TEXT
    # Locals, for the compiler must take every store of a byte for one into the column.
    cdef uint8_t* out = c.bytes + c.used
    cdef Py_ssize_t left = c.room - c.used
    cdef Py_ssize_t i
    cdef int32_t size
    for i in range(n):
        size = slots[i].length
        if likely(<uint32_t> slots[i].kind <= <uint32_t> last_plain):
            if unlikely(size > left):
                if column_room(c, c.length + i, size):
                    size = 0
                out = c.bytes + c.used
                left = c.room - c.used
            if unlikely(copy_value(slots[i].p, size, out)) and not is_utf8(slots[i].p, size):
                column_odd(c, i, &slots[i], HARD)
                size = 0
        elif slots[i].kind == BINARY:
            c.any_binary = True
            size = max(put_value(c, i, &slots[i], c.binary_form), 0)
            out = c.bytes + c.used
            left = c.room - c.used
        else:
            column_odd(c, i, &slots[i], MISSING)
            size = 0
        out += size
        left -= size
        c.used += size
        offsets[i] = <int32_t> c.used


cdef inline void run_forms(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    cdef int32_t* offsets = <int32_t*> c.values + c.length + 1
    cdef Py_ssize_t i
    cdef int32_t size
    for i in range(n):
        if likely(slots[i].kind >= 0):
            size = put_value(
                c, i, &slots[i], c.text_form if slots[i].kind == TEXT else c.binary_form
            )
            if likely(size > 0):
                c.used += size
        else:
            column_odd(c, i, &slots[i], MISSING)
        offsets[i] = <int32_t> c.used


cdef inline void run_views(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    cdef int32_t* out = <int32_t*> c.values + 4 * c.length
    cdef const uint8_t* p
    cdef Py_ssize_t i
    cdef int64_t index, offset
    cdef int32_t size
    for i in range(n):
        memset(out, 0, 16)
        p = slots[i].p
        size = slots[i].length
        if likely(slots[i].kind == TEXT):
            if unlikely(
                not (is_numeric(p, size) if c.text_form == NUMERIC_TEXT else is_utf8(p, size))
            ):
                column_odd(c, i, &slots[i], HARD)
                size = -1
            index = (p - c.start) >> CHUNK_BITS
            offset = (p - c.start) & ((1 << CHUNK_BITS) - 1)
        elif slots[i].kind == BINARY:
            c.any_binary = True
            size = put_value(c, i, &slots[i], c.binary_form)
            p = c.bytes + c.used
            index = c.high
            offset = c.used
            if size > INLINE:
                c.used += size
        else:
            column_odd(c, i, &slots[i], MISSING)
            size = -1
        if likely(size >= 0):
            out[0] = size
            if size <= INLINE:
                if size:
                    memcpy(out + 1, p, size)
            else:
                memcpy(out + 1, p, 4)
                out[2] = <int32_t> index
                out[3] = <int32_t> offset
        out += 4

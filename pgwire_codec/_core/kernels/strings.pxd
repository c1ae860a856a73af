"""Strings and bytes: copied one after the other, or as views of where they lie.

Text that passes through is copied in a few wide moves, which also find bytes that are not ASCII.
The binary forms of common types are rendered here; those of others are deferred.

Of the column, `text_rendering` and `binary_rendering` are what the two forms become, and `high` is
the buffer that views of rendered values point into.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from pgwire_codec._core.kernels.column cimport (
    AS_BINARY, BINARY, DEFERRED, MAX_BYTES, MISSING, TEXT, ColumnBuffers, Kernel, Slice,
    column_mark, column_reserve_bytes, length_and_form, likely, unlikely,
)
from pgwire_codec._core.kernels.digits cimport parse_hex_bytes, write_hex
from pgwire_codec._core.kernels.numeric_render cimport is_numeric, render_numeric
from pgwire_codec._core.kernels.skeleton cimport fast_path_fits, tries_fast_path
from pgwire_codec._core.kernels.utf8 cimport copy_value, is_ascii, is_utf8
from pgwire_codec._core.kernels.uuids cimport render_uuid

cdef enum:
    INLINE = 12  # bytes that a view contains itself
    CHUNK_BITS = 30  # of the buffers that views point into: each value starts in one's first half
    WIDEST = 64  # value of the fast path; SLACK is not less
    NUMERIC_CAPACITY = 512  # of the text of a binary numeric; a longer one is deferred

cdef enum Rendering:
    # Results for the bytes of a value.
    BY_FALLBACK
    UTF8  # the same, if they are UTF-8
    RAW  # the same
    NUMERIC_TEXT  # the same, if they are a numeric
    BYTEA_TEXT  # the bytes of which they are the hex or escape form
    VERSIONED  # UTF-8 after a version byte: jsonb
    NUMERIC_BINARY  # the text of a numeric
    UUID_BINARY  # the text of a uuid
    HEX_OF_BYTES  # the hex form of a bytea


cdef inline Kernel string_kernel(
    ColumnBuffers* c, str family, str arrow, bint numeric, Py_ssize_t data_size
):
    """Set the column up for strings ("u"), bytes ("z") or views ("vu", "vz"); return its kernel."""
    c.text_rendering = UTF8
    c.binary_rendering = <int> {
        "text": UTF8,
        "jsonb": VERSIONED,
        "jsonpath": VERSIONED,
        "numeric": NUMERIC_BINARY,
        "uuid": UUID_BINARY,
        "bytea": HEX_OF_BYTES,
        "unknown": HEX_OF_BYTES,
    }.get(family, BY_FALLBACK)
    if numeric:
        c.text_rendering = NUMERIC_TEXT
    if arrow.endswith("z"):
        c.binary_rendering = RAW
        if family == "bytea":
            c.text_rendering = BYTEA_TEXT
    if arrow.startswith("v"):
        c.width = 16
        # Rendered values are in a buffer after the chunks of the messages.
        c.high = max((data_size + (1 << CHUNK_BITS) - 1) >> CHUNK_BITS, 1)
        return decode_views
    c.width = 4
    c.has_fast_path = c.text_rendering == UTF8
    return decode_utf8 if c.text_rendering == UTF8 else decode_rendered


# Read and render.


cdef inline int32_t parse_escaped(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    r"""Read ``\000\377\\``; return the bytes written, or -1."""
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


cdef inline int32_t parse_bytea(const uint8_t* p, int32_t n, uint8_t* out) noexcept nogil:
    r"""Read ``\x00ff`` or the escape form; return the bytes written (n at most), or -1."""
    if n >= 2 and p[0] == 0x5C and p[1] == 0x78:
        return parse_hex_bytes(p + 2, n - 2, out)
    return parse_escaped(p, n, out)


cdef inline int64_t most_bytes(int rendering, const uint8_t* p, int32_t n) noexcept nogil:
    """Return the most bytes that `render` writes for n."""
    if rendering == BYTEA_TEXT and n >= 2 and p[1] == 0x78:
        return n >> 1
    if rendering == NUMERIC_BINARY:
        return NUMERIC_CAPACITY
    if rendering == UUID_BINARY:
        return 36
    if rendering == HEX_OF_BYTES:
        return 2 * <int64_t> n + 2
    return n


cdef inline int32_t render(
    int rendering, const uint8_t* p, int32_t n, uint8_t* out
) noexcept nogil:
    """Write the rendering of a value; return its length, or -1 to defer the value."""
    if rendering == UTF8:
        if not is_utf8(p, n):
            return -1
    elif rendering == NUMERIC_TEXT:
        if not is_numeric(p, n):
            return -1
    elif rendering == VERSIONED:
        if n < 1 or p[0] != 1 or not is_utf8(p + 1, n - 1):
            return -1
        p += 1
        n -= 1
    elif rendering == BYTEA_TEXT:
        return parse_bytea(p, n, out)
    elif rendering == NUMERIC_BINARY:
        return render_numeric(p, n, out, NUMERIC_CAPACITY)
    elif rendering == UUID_BINARY:
        if n != 16:
            return -1
        render_uuid(p, out)
        return 36
    elif rendering == HEX_OF_BYTES:
        memcpy(out, b"\\x", 2)
        write_hex(p, n, out + 2)
        return 2 * n + 2
    elif rendering != RAW:
        return -1
    if n:
        memcpy(out, p, n)
    return n


cdef inline int32_t append_rendered(
    ColumnBuffers* c, Py_ssize_t index, const Slice* value, int rendering
) noexcept nogil:
    """Write a value after the bytes so far; return its length, or -1 if the row is marked."""
    cdef int32_t size
    cdef int64_t most = most_bytes(rendering, value.p, value.length)
    if column_reserve_bytes(c, c.length + index, most):
        return -1
    size = render(rendering, value.p, value.length, c.bytes + c.used)
    if unlikely(size < 0):
        column_mark(c, index, value, DEFERRED)
    return size


# Kernels.


cdef inline int32_t copy_overlapping(
    const Slice* values, Py_ssize_t n, int32_t width, uint8_t* bytes, int32_t used,
    int32_t* offsets,
) noexcept nogil:
    """Copy `width` bytes for each value, of which the next one overwrites what is too much."""
    cdef Py_ssize_t i
    for i in range(n):
        memcpy(bytes + used, values[i].p, width)
        used += values[i].length
        offsets[i] = used
    return used


cdef inline bint fast_strings(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    """Copy values of up to 64 ASCII characters; return False if any row is something else."""
    cdef int32_t* offsets = <int32_t*> c.values + c.length + 1
    cdef uint64_t head, widest = 0, total = 0
    cdef int64_t past = 0
    cdef int32_t used = <int32_t> c.used
    cdef Py_ssize_t i
    for i in range(n):
        head = length_and_form(&values[i])
        widest |= head
        total += head
        past |= c.end - WIDEST - values[i].p
    if widest & AS_BINARY and c.binary_rendering == UTF8:
        # All values are then in this form: another total has no such number of them.
        widest ^= AS_BINARY
        total -= <uint64_t> n * AS_BINARY
    if widest > WIDEST or total > <uint64_t> n * WIDEST or past < 0:
        return fast_path_fits(c, 1)
    # At least one byte, so that there is slack even if all values are empty.
    if <int64_t> total >= MAX_BYTES - c.used or column_reserve_bytes(c, c.length, total + 1):
        return False
    if widest < 8:
        used = copy_overlapping(values, n, 8, c.bytes, used, offsets)
    elif widest < 16:
        used = copy_overlapping(values, n, 16, c.bytes, used, offsets)
    elif widest < 32:
        used = copy_overlapping(values, n, 32, c.bytes, used, offsets)
    else:
        used = copy_overlapping(values, n, WIDEST, c.bytes, used, offsets)
    if not is_ascii(c.bytes + c.used, total):
        return fast_path_fits(c, 1)
    c.used = used
    return True


cdef inline void decode_utf8(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    """Copy text that passes through, in both forms if they are the same."""
    if tries_fast_path(c) and fast_strings(c, values, n):
        return
    cdef int32_t* offsets = <int32_t*> c.values + c.length + 1
    cdef int last_plain = BINARY if c.binary_rendering == UTF8 else TEXT
    # Locals, because to the compiler every store of a byte may be one into the column.
    cdef uint8_t* out = c.bytes + c.used
    cdef Py_ssize_t left = c.bytes_capacity - c.used
    cdef Py_ssize_t i
    cdef int32_t size
    for i in range(n):
        size = values[i].length
        if likely(<uint32_t> values[i].form <= <uint32_t> last_plain):
            if unlikely(size > left):
                if column_reserve_bytes(c, c.length + i, size):
                    size = 0
                out = c.bytes + c.used
                left = c.bytes_capacity - c.used
            if unlikely(copy_value(values[i].p, size, out)) and not is_utf8(values[i].p, size):
                column_mark(c, i, &values[i], DEFERRED)
                size = 0
        elif values[i].form == BINARY:
            c.any_binary = True
            size = max(append_rendered(c, i, &values[i], c.binary_rendering), 0)
            out = c.bytes + c.used
            left = c.bytes_capacity - c.used
        else:
            column_mark(c, i, &values[i], MISSING)
            size = 0
        out += size
        left -= size
        c.used += size
        offsets[i] = <int32_t> c.used


cdef inline void decode_rendered(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n
) noexcept nogil:
    cdef int32_t* offsets = <int32_t*> c.values + c.length + 1
    cdef Py_ssize_t i
    cdef int32_t size
    for i in range(n):
        if likely(values[i].form == TEXT):
            size = append_rendered(c, i, &values[i], c.text_rendering)
        elif values[i].form == BINARY:
            size = append_rendered(c, i, &values[i], c.binary_rendering)
        else:
            column_mark(c, i, &values[i], MISSING)
            size = 0
        if likely(size > 0):
            c.used += size
        offsets[i] = <int32_t> c.used


cdef inline void put_view(
    int32_t* view, const uint8_t* p, int32_t size, int64_t buffer, int64_t offset
) noexcept nogil:
    view[0] = size
    if size <= INLINE:
        if size:
            memcpy(view + 1, p, size)
        return
    memcpy(view + 1, p, 4)
    view[2] = <int32_t> buffer
    view[3] = <int32_t> offset


cdef inline bint passes(const ColumnBuffers* c, const Slice* value) noexcept nogil:
    """Return whether text can be viewed where it is."""
    if c.text_rendering == NUMERIC_TEXT:
        return is_numeric(value.p, value.length)
    return is_utf8(value.p, value.length)


cdef inline void decode_views(ColumnBuffers* c, const Slice* values, Py_ssize_t n) noexcept nogil:
    cdef int32_t* view = <int32_t*> c.values + 4 * c.length
    cdef int64_t offset
    cdef Py_ssize_t i
    cdef int32_t size
    for i in range(n):
        memset(view, 0, 16)
        if likely(values[i].form == TEXT):
            if likely(passes(c, &values[i])):
                offset = values[i].p - c.start
                put_view(
                    view, values[i].p, values[i].length,
                    offset >> CHUNK_BITS, offset & ((1 << CHUNK_BITS) - 1),
                )
            else:
                column_mark(c, i, &values[i], DEFERRED)
        elif values[i].form == BINARY:
            c.any_binary = True
            size = append_rendered(c, i, &values[i], c.binary_rendering)
            if likely(size >= 0):
                put_view(view, c.bytes + c.used, size, c.high, c.used)
            if size > INLINE:
                c.used += size
        else:
            column_mark(c, i, &values[i], MISSING)
        view += 4

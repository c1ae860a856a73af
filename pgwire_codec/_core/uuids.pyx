# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=True
"""uuid as 16 bytes, in both forms."""

from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from pgwire_codec._core.block cimport (
    BINARY,
    FINE,
    HARD,
    MISSING,
    TEXT,
    Column,
    Kernel,
    Slot,
    column_odd,
    likely,
    unlikely,
)
from pgwire_codec._core.bytes_text cimport read_uuid


cdef Kernel uuid_kernel(Column* c):
    """Set the column up."""
    c.width = 16
    return run_uuid


cdef void run_uuid(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    cdef uint8_t* out = c.values + c.length * 16
    cdef Py_ssize_t i
    cdef int odd
    for i in range(n):
        odd = HARD
        if likely(slots[i].kind == TEXT):
            if likely(read_uuid(slots[i].p, slots[i].length, out)):
                odd = FINE
        elif slots[i].kind != BINARY:
            odd = MISSING
        elif likely(slots[i].length == 16):
            odd = FINE
            memcpy(out, slots[i].p, 16)
        if unlikely(odd):
            memset(out, 0, 16)
            column_odd(c, i, &slots[i], odd)
        out += 16

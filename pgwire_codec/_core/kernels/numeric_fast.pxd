"""Blocks of ordinary numeric values to decimal128, without a branch for each value.

Of the column, the parameters are those that numeric.pxd documents.
"""

from libc.stdint cimport UINT64_MAX, int16_t, int64_t, uint8_t, uint32_t, uint64_t

from pgwire_codec._core.kernels.column cimport (
    AS_BINARY, ColumnBuffers, Slice, length_and_form,
)
from pgwire_codec._core.kernels.digits cimport LAST_BYTES, TENS, ZEROS, number_of, strays, word
from pgwire_codec._core.kernels.numeric_render cimport NUMERIC_HEAD
from pgwire_codec._core.kernels.skeleton cimport TwoWords, fast_path_fits
from pgwire_codec._core.wire.primitives cimport PGWIRE_SWAP64, load_u64

cdef extern from *:
    """
    static const uint64_t PGWIRE_INVERSES[5] = {
        1, UINT64_C(0xCCCCCCCCCCCCCCCD), UINT64_C(0x8F5C28F5C28F5C29),
        UINT64_C(0x1CAC083126E978D5), UINT64_C(0xD288CE703AFB7E91)};
    """
    const uint64_t INVERSES "PGWIRE_INVERSES"[5]  # of the powers of five, modulo 2**64


cdef inline bint fast_decimals(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n, TwoWords* out
) noexcept nogil:
    """Read text of up to eight digits, exactly `scale` of them after a point, without a sign.

    Return False if any row is something else.
    """
    cdef uint64_t mask = c.mask
    cdef Py_ssize_t point = -1 - c.scale
    cdef uint64_t stray = 0, w, before, length
    cdef int64_t outside = 0, least = c.scale + 2
    cdef const uint8_t* end
    cdef Py_ssize_t i
    for i in range(n):
        length = length_and_form(&values[i])
        end = values[i].p + values[i].length
        before = word(end - 9)
        w = ((before ^ ((before ^ word(end - 8)) & mask)) ^ ZEROS) & LAST_BYTES[(length - 1) & 15]
        # A value that is too short may lie at the start: then the byte at `point` is before it, no
        # further than a slice promises.
        stray |= strays(w) | (end[point] ^ 0x2E)
        outside |= (<int64_t> length - least) | (9 - <int64_t> length)
        out[i].words[0] = number_of(w)
        out[i].words[1] = 0
    return fast_path_fits(c, stray | (outside < 0))


cdef inline uint64_t group_strays(uint64_t groups) noexcept nogil:
    """Return 0 if all four 16-bit numbers are below 10,000, else some bits."""
    return (groups | (groups + <uint64_t> 0x58F058F058F058F0)) & <uint64_t> 0x8000800080008000


cdef inline uint64_t number_of_groups(uint64_t groups) noexcept nogil:
    """Return the number whose base-10000 digits the 16-bit numbers are, the first highest."""
    groups = (
        (groups & <uint64_t> 0x0000FFFF0000FFFF)
        + (groups >> 16 & <uint64_t> 0x0000FFFF0000FFFF) * 10_000
    )
    return <uint32_t> groups + (groups >> 32) * 100_000_000


cdef inline bint fast_binary_decimals(
    ColumnBuffers* c, const Slice* values, Py_ssize_t n, TwoWords* out
) noexcept nogil:
    """Read at most four base-10000 digits, of numbers below 10**12 that show `scale` decimals.

    Return False if any row is something else.
    """
    cdef int spare = 4 - c.scale
    cdef uint64_t inverse = INVERSES[spare], most = UINT64_MAX // TENS[spare]
    cdef uint64_t high = <uint64_t> c.high, scale = <uint64_t> c.scale
    cdef uint64_t stray = 0, head, size, groups, value, fill
    cdef int64_t outside = 0, count, power
    cdef const uint8_t* end
    cdef Py_ssize_t i
    for i in range(n):
        size = length_and_form(&values[i]) - (AS_BINARY | NUMERIC_HEAD)
        end = values[i].p + values[i].length
        groups = PGWIRE_SWAP64(word(end - 8) & LAST_BYTES[size & 15])
        # A value that is too short may lie at the end.
        head = load_u64(values[i].p - (NUMERIC_HEAD if values[i].length < NUMERIC_HEAD else 0))
        count = size >> 1
        power = <int16_t> (head >> 32) - count + 2
        # The number of groups is the declared one and four at most; one of them is of decimals.
        stray |= group_strays(groups) | ((head >> 48) ^ <uint64_t> count) | (size & ~<uint64_t> 14)
        stray |= (head & <uint64_t> 0xBFFF0000) | ((head & 0xFFFF) ^ scale)
        outside |= (8 - <int64_t> size) | power | (4 - count - power)
        value = number_of_groups(groups) * TENS[4 * power & 15]
        # Exactly divisible numbers, times the inverse, are the quotients, which are small.
        value *= inverse
        value = value >> spare | value << (64 - spare & 63)
        stray |= (value > most) | (value > high)
        fill = 0 - (head >> 30 & 1)
        out[i].words[0] = (value ^ fill) - fill
        out[i].words[1] = fill if value else 0
    return fast_path_fits(c, stray | (outside < 0))

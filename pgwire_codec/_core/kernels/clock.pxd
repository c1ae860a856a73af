"""Parts of ISO dates and times as text: ``2024-02-29``, ``12:34:56.789``, ``+05:30``."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from pgwire_codec._core.kernels.calendar cimport date_strays
from pgwire_codec._core.kernels.column cimport DEFERRED, FINE
from pgwire_codec._core.kernels.digits cimport (
    ZEROS, are_digits, last_digits_of, number_of, strays, word,
)

cdef extern from *:
    """
    static const int32_t PGWIRE_MICROS[7] = {0, 100000, 10000, 1000, 100, 10, 1};
    """
    const int32_t MICROS "PGWIRE_MICROS"[7]  # of the last of so many decimals of a second


cdef inline uint64_t pairs_of(uint64_t w) noexcept nogil:
    """Return the four two-digit numbers of eight digits, in 16 bits each, the first lowest."""
    return (w * 10 + (w >> 8)) & <uint64_t> 0x00FF00FF00FF00FF


cdef inline uint64_t iso_date_strays(const uint8_t* p, int32_t* days) noexcept nogil:
    """Read ten bytes; return 0 if they are a date such as ``2024-02-29``."""
    cdef uint64_t year_first = word(p), day_last = word(p + 2), w, pairs
    w = (
        (year_first & <uint64_t> 0x00000000FFFFFFFF)
        | ((day_last << 8) & <uint64_t> 0x0000FFFF00000000)
        | (day_last & <uint64_t> 0xFFFF000000000000)
    ) ^ ZEROS
    pairs = pairs_of(w)
    return (
        ((year_first & <uint64_t> 0xFF0000FF00000000) ^ <uint64_t> 0x2D00002D00000000)
        | strays(w)
        | date_strays(
            pairs & 0xFF, (pairs >> 16) & 0xFF, (pairs >> 32) & 0xFF, (pairs >> 48) & 0xFF, days
        )
    )


cdef inline int parse_date_unchecked(const uint8_t* p, int32_t* days) noexcept nogil:
    """Read ``2024-02-29``; the caller has checked that there are ten bytes."""
    return DEFERRED if iso_date_strays(p, days) else FINE


cdef inline int parse_clock_unchecked(const uint8_t* p, int32_t n, int64_t* micros) noexcept nogil:
    """Read ``12:34:56`` and up to six decimals, n bytes of which the caller has checked eight.

    The hours are not limited.
    """
    cdef uint64_t w = word(p)
    cdef int32_t decimals = n - 9
    cdef uint64_t fraction
    if w & <uint64_t> 0x0000FF0000FF0000 != <uint64_t> 0x00003A00003A0000:
        return DEFERRED
    # Zeros in place of the colons; the pairs are hours, tens of minutes, and so on.
    w = (w ^ ZEROS) & <uint64_t> 0xFFFF00FFFF00FFFF
    if not are_digits(w):
        return DEFERRED
    w = w * 10 + (w >> 8)
    if ((w >> 24) & 0xFF) > 59 or ((w >> 48) & 0xFF) > 59:
        return DEFERRED
    micros[0] = (
        ((w & 0xFF) * 60 + ((w >> 24) & 0xFF)) * 60 + ((w >> 48) & 0xFF)
    ) * <uint64_t> 1_000_000
    if n != 8:
        if decimals < 1 or decimals > 6 or p[8] != 0x2E:
            return DEFERRED
        fraction = last_digits_of(word(p + n - 8), decimals)
        if not are_digits(fraction):
            return DEFERRED
        micros[0] += number_of(fraction) * MICROS[decimals]
    return FINE


cdef inline int two_digits(const uint8_t* p, int32_t* out) noexcept nogil:
    out[0] = (p[0] - 0x30) * 10 + (p[1] - 0x30)
    if p[0] - <unsigned int> 0x30 > 9 or p[1] - <unsigned int> 0x30 > 9:
        return DEFERRED
    return FINE


cdef inline int32_t zone_length(const uint8_t* p, int32_t n) noexcept nogil:
    """Return the length of the offset at the end of n bytes: 3, 6 or 9, or 0 for none."""
    cdef int32_t length
    for length in range(3, 10, 3):
        if length < n and (p[n - length] == 0x2B or p[n - length] == 0x2D):
            return length
    return 0


cdef inline int parse_zone_unchecked(const uint8_t* p, int32_t n, int64_t* micros) noexcept nogil:
    """Read ``+05``, ``+05:30`` or ``+05:30:20``, n (3, 6 or 9) bytes from zone_length."""
    cdef int32_t hours = 0, minutes = 0, seconds = 0
    if two_digits(p + 1, &hours):
        return DEFERRED
    if n > 3 and (p[3] != 0x3A or two_digits(p + 4, &minutes)):
        return DEFERRED
    if n > 6 and (p[6] != 0x3A or two_digits(p + 7, &seconds)):
        return DEFERRED
    if minutes > 59 or seconds > 59:
        return DEFERRED
    micros[0] = ((hours * 60 + minutes) * 60 + seconds) * <int64_t> 1_000_000
    if p[0] == 0x2D:
        micros[0] = -micros[0]
    return FINE

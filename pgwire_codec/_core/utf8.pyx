# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=True
"""Telling UTF-8: ASCII by words, the rest by an automaton that takes a byte without a branch.

A state is a shift. The 64-bit word of a byte holds, at each state's shift, the six bits of the
state that follows, so that a step is one load, which waits for no step before it, and one shift.
"""

from libc.stdint cimport uint8_t, uint64_t

from pgwire_codec._core.digits cimport HIGH_BITS, word

cdef enum:
    STEP = 32  # bytes between two looks for a run of ASCII
    GOOD = 0
    BAD = 6
    ONE_MORE = 12
    TWO_MORE = 18
    THREE_MORE = 24
    AFTER_E0 = 30
    AFTER_ED = 36
    AFTER_F0 = 42
    AFTER_F4 = 48
    STATE_BITS = 63

cdef uint64_t STEPS[256]


cdef int successor(int state, int byte):
    """Give the state after a byte: Unicode, table 3-7, well-formed byte sequences."""
    cdef int low = 0x80, high = 0xBF
    if state == GOOD:
        if byte < 0x80:
            return GOOD
        if byte < 0xC2 or byte > 0xF4:
            return BAD
        if byte < 0xE0:
            return ONE_MORE
        if byte < 0xF0:
            return {0xE0: AFTER_E0, 0xED: AFTER_ED}.get(byte, TWO_MORE)
        return {0xF0: AFTER_F0, 0xF4: AFTER_F4}.get(byte, THREE_MORE)
    if state == BAD:
        return BAD
    if state == AFTER_E0:  # shorter forms
        low = 0xA0
    elif state == AFTER_ED:  # surrogates
        high = 0x9F
    elif state == AFTER_F0:
        low = 0x90
    elif state == AFTER_F4:  # past U+10FFFF
        high = 0x8F
    if not low <= byte <= high:
        return BAD
    if state == ONE_MORE:
        return GOOD
    return ONE_MORE if state in (TWO_MORE, AFTER_E0, AFTER_ED) else TWO_MORE


cdef void fill_steps():
    for byte in range(256):
        STEPS[byte] = sum(
            successor(state, byte) << state for state in range(GOOD, AFTER_F4 + 1, 6)
        )


fill_steps()


cdef bint is_utf8(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """Agree with Python's strict decoder."""
    cdef const uint8_t* end = p + n
    cdef const uint8_t* stop
    cdef uint64_t state = GOOD
    while p != end:
        if state & STATE_BITS == GOOD:
            while end - p >= 16 and not (word(p) | word(p + 8)) & HIGH_BITS:
                p += 16
        stop = p + min(end - p, <Py_ssize_t> STEP)
        while p != stop:
            state = STEPS[p[0]] >> (state & STATE_BITS)
            p += 1
    return state & STATE_BITS == GOOD

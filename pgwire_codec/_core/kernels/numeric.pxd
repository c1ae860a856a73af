"""numeric to decimal128, decimal256 and float64, in both forms.

Of text, what numeric(p,s) always has is quick: exactly s digits behind the point and at most 16 in
all. Of the binary form, at most four base-10000 digits. Any other goes digit by digit.
"""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from pgwire_codec._core.kernels.column cimport (
    FINE,
    HARD,
    NOWHERE,
    OUTSIDE,
    MISSING,
    TEXT,
    Column,
    Kernel,
    Slot,
    column_odd,
    hurried,
    hurries,
    likely,
    unlikely,
)
from pgwire_codec._core.kernels.decimal_float cimport parse_float, special_float
from pgwire_codec._core.kernels.digits cimport (
    LAST_BYTES,
    ZEROS,
    are_digits,
    last_digits_of,
    number_of,
    parse_digits,
    strays,
    word,
)
from pgwire_codec._core.wire.primitives cimport load_i16, load_u16

cdef extern from *:
    """
    static uint64_t PGWIRE_TENS[20];
    """
    ctypedef unsigned long long uint128 "unsigned __int128"
    uint64_t TENS "PGWIRE_TENS"[20]

cdef enum:
    LIMBS = 4  # 64-bit words of the widest decimal
    DIGIT_ROOM = 160  # of a decimal's digits, 76 at most, with space before them
    TEXT_ROOM = 512  # of a binary numeric's text; a longer one is HARD

cdef enum:
    # numeric_send: digit count, weight, sign and display scale, before the base-10000 digits
    NUMERIC_HEAD = 8
    NEGATIVE = 0x4000
    NOT_A_NUMBER = 0xC000
    POSITIVE_INFINITY = 0xD000
    NEGATIVE_INFINITY = 0xF000
    MAX_DISPLAY_SCALE = 0x3FFF


cdef inline void fill_tens():
    for power in range(20):
        TENS[power] = 10 ** power


cdef inline bint is_numeric(const uint8_t* p, int32_t n) noexcept nogil:
    """Say whether the text is plain decimal notation, NaN or Infinity."""
    cdef int32_t i = 0, start
    cdef bint negative = n > 0 and p[0] == 0x2D
    i = negative
    start = i
    while i < n and p[i] - <unsigned int> 0x30 <= 9:
        i += 1
    if i == start:
        if n == 8 + negative:
            return memcmp(p + negative, b"Infinity", 8) == 0
        return n == 3 and memcmp(p, b"NaN", 3) == 0
    if i < n and p[i] == 0x2E:
        i += 1
        start = i
        while i < n and p[i] - <unsigned int> 0x30 <= 9:
            i += 1
        if i == start:
            return False
    return i == n


cdef inline bint is_binary_numeric(const uint8_t* p, int32_t n) noexcept nogil:
    """Say whether the binary form is whole; NaN and the infinities are, too."""
    cdef int32_t i
    cdef uint16_t sign
    if n < NUMERIC_HEAD or load_u16(p) * 2 != n - NUMERIC_HEAD:
        return False
    sign = load_u16(p + 4)
    if sign != 0 and sign != NEGATIVE and sign != NOT_A_NUMBER:
        if sign != POSITIVE_INFINITY and sign != NEGATIVE_INFINITY:
            return False
    if load_u16(p + 6) > MAX_DISPLAY_SCALE:
        return False
    for i in range(NUMERIC_HEAD, n, 2):
        if load_u16(p + i) > 9999:
            return False
    return True


cdef inline uint8_t numeric_digit_unchecked(
    const uint8_t* groups, int32_t count, int32_t at
) noexcept nogil:
    """Give the character of one decimal digit; is_binary_numeric has checked the groups."""
    cdef uint16_t group
    if at < 0 or at >= count * 4:
        return 0x30
    group = load_u16(groups + (at >> 2) * 2)
    if at & 3 == 0:
        group //= 1000
    elif at & 3 == 1:
        group //= 100
    elif at & 3 == 2:
        group //= 10
    return 0x30 + group % 10


cdef inline int32_t write_numeric(
    const uint8_t* p, int32_t n, uint8_t* out, int32_t room
) noexcept nogil:
    """Write the server's text of a binary form; its length, or -1 for none, or no room.

    `room` is at least 16."""
    cdef int32_t count, point, scale, at, length = 0
    cdef bint nonzero = False
    cdef uint8_t digit
    cdef uint16_t sign
    if not is_binary_numeric(p, n):
        return -1
    count = load_u16(p)
    point = (load_i16(p + 2) + 1) * 4
    sign = load_u16(p + 4)
    scale = load_u16(p + 6)
    if sign & ~NEGATIVE:
        if sign == NOT_A_NUMBER:
            memcpy(out, b"NaN", 3)
            return 3
        memcpy(out, b"-Infinity" if sign == NEGATIVE_INFINITY else b"Infinity", 9)
        return 9 if sign == NEGATIVE_INFINITY else 8
    if (point if point > 0 else 1) + scale + 2 > room:
        return -1
    out[0] = 0x2D
    for at in range(point):
        digit = numeric_digit_unchecked(p + NUMERIC_HEAD, count, at)
        if nonzero or digit != 0x30:
            nonzero = True
            length += 1
            out[length] = digit
    if length == 0:
        length = 1
        out[1] = 0x30
    if scale:
        length += 1
        out[length] = 0x2E
        for at in range(point, point + scale):
            digit = numeric_digit_unchecked(p + NUMERIC_HEAD, count, at)
            nonzero = nonzero or digit != 0x30
            length += 1
            out[length] = digit
    if sign == NEGATIVE and nonzero:
        return length + 1
    for at in range(length):  # no sign: close up
        out[at] = out[at + 1]
    return length


cdef inline Kernel decimal_kernel(Column* c, str arrow):
    """Set the column up for a numeric stored as Arrow's "d:15,2", "d:76,9,256" or "g"."""
    if arrow == "g":
        c.width = 8
        return run_double
    precision, scale, *bits = [int(part) for part in arrow[2:].split(",")]
    c.precision = precision
    c.scale = scale
    # Characters of the last eight that stand behind the point.
    c.mask = (0xFFFFFFFFFFFFFFFF << (64 - 8 * min(scale, 8))) & 0xFFFFFFFFFFFFFFFF
    c.high = 10 ** precision - 1 if precision <= 16 else INT64_MAX
    c.hurry = 0 < scale < 7 and precision >= 8
    c.width = 32 if bits else 16
    return run_decimal256 if bits else run_decimal128


cdef inline int quick_text(
    const uint8_t* p, int32_t n, Column* c, bint* negative, uint64_t* out
) noexcept nogil:
    """Read exactly `scale` (0 to 7) digits behind the point and at most 16 in all, or say HARD."""
    cdef const uint8_t* end = p + n
    cdef uint64_t low, high
    cdef int32_t scale = c.scale, digits
    cdef bint point = scale > 0
    negative[0] = n > 0 and p[0] == 0x2D
    digits = n - negative[0] - point
    if unlikely(scale > 7 or digits <= scale or digits > 16):
        return HARD
    if point:
        if unlikely(end[-1 - scale] != 0x2E):
            return HARD
        # Seven or eight characters up to the end; those before the point moved over it.
        low = (word(end - 8) & c.mask) | (word(end - 9) & ~c.mask)
    else:
        low = word(end - 8)
    if digits <= 8:
        low = last_digits_of(low, digits)
        out[0] = number_of(low)
        return FINE if likely(are_digits(low)) else HARD
    low = last_digits_of(low, 8)
    high = last_digits_of(word(end - 16 - point), digits - 8)
    out[0] = number_of(high) * 100_000_000 + number_of(low)
    return FINE if likely(are_digits(low) and are_digits(high)) else HARD


cdef inline void multiply_add(uint64_t* limbs, uint64_t factor, uint64_t addend) noexcept nogil:
    cdef uint128 product
    cdef int i
    for i in range(LIMBS):
        product = <uint128> limbs[i] * factor + addend
        limbs[i] = <uint64_t> product
        addend = <uint64_t> (product >> 64)


cdef inline int any_text(const uint8_t* p, int32_t n, Column* c, uint64_t* limbs) noexcept nogil:
    """Read any text of a numeric into limbs, two's complement, the lowest first."""
    cdef uint8_t room[DIGIT_ROOM]
    cdef uint8_t* digits = room + 16
    cdef bint negative = n > 0 and p[0] == 0x2D, inexact = False
    cdef int32_t whole = 0, fraction = 0, first = 0, count, chunk, i
    cdef uint64_t part, carry
    p += negative
    n -= negative
    while whole < n and p[whole] - <unsigned int> 0x30 <= 9:
        whole += 1
    if whole == 0:
        if n == 8 and memcmp(p, b"Infinity", 8) == 0:
            return OUTSIDE
        return NOWHERE if n == 3 and not negative and memcmp(p, b"NaN", 3) == 0 else HARD
    if whole < n:
        fraction = n - whole - 1
        if p[whole] != 0x2E or fraction == 0:
            return HARD
        for i in range(whole + 1, n):
            if not p[i] - <unsigned int> 0x30 <= 9:
                return HARD
            inexact = inexact or (i > whole + c.scale and p[i] != 0x30)
    while first < whole and p[first] == 0x30:
        first += 1
    count = whole - first + c.scale
    if inexact or (whole > first and count > c.precision):
        return OUTSIDE
    memset(room, 0x30, DIGIT_ROOM)
    for i in range(first, whole):
        digits[i - first] = p[i]
    for i in range(min(fraction, c.scale)):
        digits[whole - first + i] = p[whole + 1 + i]
    memset(limbs, 0, LIMBS * sizeof(uint64_t))
    i = 0
    while i < count:
        chunk = (count - i - 1) % 16 + 1
        parse_digits(digits + i, chunk, &part)
        multiply_add(limbs, TENS[chunk], part)
        i += chunk
    if negative:
        carry = 1
        for i in range(LIMBS):
            limbs[i] = ~limbs[i] + carry
            carry = carry and limbs[i] == 0
    return FINE


cdef inline int quick_binary(
    const uint8_t* p, int32_t n, Column* c, bint* negative, uint64_t* out
) noexcept nogil:
    """Read at most four base-10000 digits whose value has at most 18 digits, or say HARD."""
    cdef int32_t count, weight, shown, power, i
    cdef uint64_t value = 0
    cdef uint16_t group, sign
    if unlikely(n < NUMERIC_HEAD):
        return HARD
    count = load_u16(p)
    weight = load_i16(p + 2)
    sign = load_u16(p + 4)
    shown = load_u16(p + 6)
    if unlikely(
        count > 4
        or count * 2 != n - NUMERIC_HEAD
        or sign & ~NEGATIVE
        or shown > MAX_DISPLAY_SCALE
        or weight < -5
        or 4 * (weight + 1) + c.scale > 18
    ):
        return HARD
    for i in range(count):
        group = load_u16(p + NUMERIC_HEAD + 2 * i)
        if unlikely(group > 9999):
            return HARD
        value = value * 10_000 + group
    negative[0] = sign != 0
    # Of the decimals that are shown the column has place for `scale`; the others must be zeros,
    # and so must what is not shown.
    shown = min(shown, c.scale)
    power = 4 * (weight - count + 1) + shown
    if power < 0:
        if unlikely(power < -19 or value % TENS[-power]):
            return HARD
        value //= TENS[-power]
    else:
        value *= TENS[power]
    out[0] = value * TENS[c.scale - shown]
    return FINE


cdef inline int any_binary(const uint8_t* p, int32_t n, Column* c, uint64_t* limbs) noexcept nogil:
    cdef uint8_t text[TEXT_ROOM]
    cdef int32_t length
    length = write_numeric(p, n, text, TEXT_ROOM)
    return HARD if length < 0 else any_text(text, length, c, limbs)


cdef inline void into_decimal(
    Column* c, const Slot* slots, Py_ssize_t n, int words
) noexcept nogil:
    cdef uint64_t* out = <uint64_t*> c.values + c.length * words
    cdef uint64_t limbs[LIMBS]
    cdef uint64_t value = 0, fill
    cdef uint64_t high = <uint64_t> c.high
    cdef bint negative = False
    cdef Py_ssize_t i
    cdef int odd, k
    for i in range(n):
        if likely(slots[i].kind == TEXT):
            odd = quick_text(slots[i].p, slots[i].length, c, &negative, &value)
        elif likely(slots[i].kind >= 0):
            odd = quick_binary(slots[i].p, slots[i].length, c, &negative, &value)
        else:
            odd = MISSING
        if likely(odd == FINE and value <= high):
            fill = 0 - <uint64_t> negative
            value = (value ^ fill) + negative
            out[0] = value
            # The negative of zero is zero.
            fill = fill if value else 0
            for k in range(1, words):
                out[k] = fill
        else:
            if odd != MISSING:
                if slots[i].kind == TEXT:
                    odd = any_text(slots[i].p, slots[i].length, c, limbs)
                else:
                    odd = any_binary(slots[i].p, slots[i].length, c, limbs)
            if odd:
                memset(limbs, 0, LIMBS * sizeof(uint64_t))
                column_odd(c, i, &slots[i], odd)
            for k in range(words):
                out[k] = limbs[k]
        out += words


cdef inline bint hurry_decimals(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    """Read text of up to eight digits, exactly `scale` of them behind a point, without a sign.

    False if any row is something else.
    """
    cdef uint64_t* out = <uint64_t*> c.values + c.length * 2
    cdef uint64_t mask = c.mask
    cdef Py_ssize_t point = -1 - c.scale
    cdef uint32_t least = c.scale + 2, span = 9 - least
    cdef uint64_t strange = 0, w, before
    cdef int32_t length
    cdef const uint8_t* end
    cdef Py_ssize_t i
    for i in range(n):
        length = slots[i].length
        end = slots[i].p + length
        before = word(end - 9)
        w = ((before ^ ((before ^ word(end - 8)) & mask)) ^ ZEROS) & LAST_BYTES[(length - 1) & 15]
        # A value too short may lie at the start: the byte at `point` is before it, no further off
        # than a slot's promise.
        strange |= strays(w) | <uint32_t> slots[i].kind
        strange |= <uint64_t> (end[point] ^ 0x2E) | (<uint32_t> length - least > span)
        out[2 * i] = number_of(w)
        out[2 * i + 1] = 0
    return hurried(c, strange)


cdef inline void run_decimal128(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    if hurries(c) and hurry_decimals(c, slots, n):
        return
    into_decimal(c, slots, n, 2)


cdef inline void run_decimal256(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    into_decimal(c, slots, n, 4)


cdef inline int text_double(const uint8_t* p, int32_t n, uint64_t* bits) noexcept nogil:
    if likely(parse_float(p, n, True, False, bits) == FINE):
        return FINE
    return special_float(p, n, True, bits)


cdef inline int binary_double(const uint8_t* p, int32_t n, uint64_t* bits) noexcept nogil:
    cdef uint8_t text[TEXT_ROOM]
    cdef int32_t length
    length = write_numeric(p, n, text, TEXT_ROOM)
    return HARD if length < 0 else text_double(text, length, bits)


cdef inline void run_double(Column* c, const Slot* slots, Py_ssize_t n) noexcept nogil:
    cdef uint64_t* out = <uint64_t*> c.values + c.length
    cdef Py_ssize_t i
    cdef uint64_t bits
    cdef int odd
    for i in range(n):
        bits = 0
        if slots[i].kind == TEXT:
            odd = text_double(slots[i].p, slots[i].length, &bits)
        elif slots[i].kind >= 0:
            odd = binary_double(slots[i].p, slots[i].length, &bits)
        else:
            odd = MISSING
        if unlikely(odd):
            bits = 0
            column_odd(c, i, &slots[i], odd)
        out[i] = bits

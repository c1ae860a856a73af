"""The loop that all kernels of fixed-width values share, and the decision to try a fast path."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pgwire_codec._core.kernels.column cimport (
    ABOVE, BELOW, BINARY, MISSING, TEXT, ColumnBuffers, Slice, column_mark, likely, unlikely,
)

cdef enum:
    BACKOFF = 16  # blocks without a fast path after one that it did not fit


cdef struct TwoWords:
    uint64_t words[2]

cdef struct FourWords:
    uint64_t words[4]


ctypedef fused Stored:
    uint8_t
    int16_t
    int32_t
    uint32_t
    int64_t
    TwoWords
    FourWords


#: Readers read n bytes as the words of a value, the lowest first, and return a Status. They write
#: the words only if it is FINE. The order of arguments differs by form: otherwise clang merges the
#: two calls of the loop into one through a pointer, which it cannot inline.
ctypedef int (*TextReader)(
    const ColumnBuffers* c, const uint8_t* p, int32_t n, uint64_t* words
) noexcept nogil
ctypedef int (*BinaryReader)(
    const ColumnBuffers* c, uint64_t* words, const uint8_t* p, int32_t n
) noexcept nogil


cdef inline void decode_fixed(
    ColumnBuffers* c,
    const Slice* values,
    Py_ssize_t n,
    Stored* out,
    TextReader read_text,
    BinaryReader read_binary,
) noexcept nogil:
    """Decode a block into `out`.

    The readers are constants wherever this is called: it is inlined there, and they are inlined
    into it.
    """
    cdef uint64_t words[4]
    cdef Py_ssize_t i
    cdef int status
    words[0] = 0
    for i in range(n):
        if likely(values[i].form == TEXT):
            status = read_text(c, values[i].p, values[i].length, words)
        elif values[i].form == BINARY:
            status = read_binary(c, words, values[i].p, values[i].length)
        else:
            status = MISSING
        if unlikely(status):
            words[0] = replacement(c, i, &values[i], status)
            words[1] = words[2] = words[3] = 0
        if Stored is TwoWords:
            out[i].words[0] = words[0]
            out[i].words[1] = words[1]
        elif Stored is FourWords:
            out[i] = FourWords(words)
        else:
            out[i] = <Stored> words[0]


cdef inline uint64_t replacement(
    ColumnBuffers* c, Py_ssize_t index, const Slice* value, int status
) noexcept nogil:
    """Mark a row that is not ordinary, and return what is stored for it."""
    status = column_mark(c, index, value, status)
    if status == BELOW:
        return <uint64_t> c.low
    return <uint64_t> c.high if status == ABOVE else 0


cdef inline bint tries_fast_path(ColumnBuffers* c) noexcept nogil:
    if not c.all_values:  # then some slices point nowhere
        return False
    if c.backoff:
        c.backoff -= 1
        return False
    return c.has_fast_path


cdef inline bint fast_path_fits(ColumnBuffers* c, uint64_t strays) noexcept nogil:
    """Return whether a fast path has decoded the block, that is, found no stray bits."""
    if strays:
        c.backoff = BACKOFF
    return strays == 0

"""Decoding of the tuples of many rows, for modules that have columns of their own."""

from pgwire_codec._core.columns.slices cimport Slices
from pgwire_codec._core.wire.tuple_data cimport TupleSource

cdef enum:
    DONE = 0
    TRUNCATED = -1
    NO_MEMORY = -2


cdef int decode_blocks(TupleSource* source, Slices* slices, int which) noexcept nogil
cdef unchanged_of(const Slices* slices)

"""A column while it is being decoded; for the walker, which hands over the blocks."""

from pgwire_codec._core.kernels.column cimport Column


cdef class ColumnDecoder:
    cdef Column c
    cdef readonly object column_type
    cdef readonly object data  # the array that slots point into, kept alive
    cdef const unsigned char[::1] view
    cdef str policy

    cpdef object finish(self)
    cdef object patch(self, hard)


cpdef bint has_kernel(column_type)

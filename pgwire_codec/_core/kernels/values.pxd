"""ColumnDecoder, for modules that decode blocks of slices into columns."""

from pgwire_codec._core.kernels.column cimport ColumnBuffers

cdef dict POLICIES  # by the option unrepresentable


cdef class ColumnDecoder:
    cdef ColumnBuffers c
    cdef readonly object column_type
    cdef readonly object data  # the array that slices point into, kept alive
    cdef str policy

    cpdef object finish(self)
    cdef object patch(self, deferred)


cdef class Setup:
    """A column without rows, set up for a type."""

    cdef ColumnBuffers c


cdef Setup setup_of(column_type)
cpdef bint has_kernel(column_type)

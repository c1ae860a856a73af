"""Metadata columns, for a module that exports them."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pgwire_codec._core.columns.c_data cimport ArrowArray


cdef class RowMetadata:
    cdef const uint8_t[::1] kind
    cdef const int64_t[::1] rows, seq, transaction
    cdef const uint64_t[:] lsns
    cdef const uint32_t[:] xids
    cdef const uint64_t[:] commit_lsns
    cdef const int64_t[:] commit_times
    cdef bint has_lsns
    cdef list edges
    cdef int32_t* op_ends
    cdef uint8_t* op
    cdef int64_t* xid
    cdef int64_t* lsn
    cdef int64_t* commit_lsn
    cdef int64_t* commit_time
    cdef int64_t* changes

    cdef int open(self, ArrowArray** to) except -1
    cdef void fill_lsns(self, Py_ssize_t first, Py_ssize_t stop)

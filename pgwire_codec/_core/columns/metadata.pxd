"""Metadata columns, for a module that exports them."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef int gather_transactions(
    const uint32_t[:] xids,
    const uint64_t[:] lsns,
    const int64_t[:] times,
    const int64_t[::1] numbers,
    int64_t* xid,
    int64_t* lsn,
    int64_t* time,
) except -1

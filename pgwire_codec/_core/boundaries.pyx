# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, freethreading_compatible=True
"""boundaries: what Begin and Commit messages say, as arrays.

The twin of :mod:`pgwire_codec.reference.boundaries`.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

import numpy as np

from pgwire_codec._core.wire cimport load_i64, load_u32, load_u64
from pgwire_codec.codec.tables import Boundaries

cdef enum:
    BEGIN_SIZE = 21  # of the whole message
    COMMIT_SIZE = 26


def boundaries(messages, begin, commit):
    """Read the fields of Begin and Commit messages that ``scan`` accepted; see the twin."""
    cdef const uint8_t[::1] data = messages.data
    cdef const int64_t[::1] offsets = messages.offsets
    cdef const int64_t[::1] begins = np.ascontiguousarray(begin, np.int64)
    cdef const int64_t[::1] commits = np.ascontiguousarray(commit, np.int64)
    cdef Py_ssize_t count = begins.shape[0]
    cdef Py_ssize_t row
    cdef const uint8_t* p
    cdef bint good = True
    found = Boundaries(
        xid=np.empty(count, np.uint32),
        final_lsn=np.empty(count, np.uint64),
        commit_lsn=np.empty(count, np.uint64),
        end_lsn=np.empty(count, np.uint64),
        commit_time=np.empty(count, np.int64),
    )
    cdef uint32_t[::1] xid = found.xid
    cdef uint64_t[::1] final_lsn = found.final_lsn
    cdef uint64_t[::1] commit_lsn = found.commit_lsn
    cdef uint64_t[::1] end_lsn = found.end_lsn
    cdef int64_t[::1] commit_time = found.commit_time
    if commits.shape[0] != count:
        raise ValueError("as many Commits as Begins")
    with nogil:
        for row in range(count):
            good = is_whole(begins[row], BEGIN_SIZE, offsets, data.shape[0])
            if not good or not is_whole(commits[row], COMMIT_SIZE, offsets, data.shape[0]):
                good = False
                break
            p = &data[offsets[begins[row]]]
            final_lsn[row] = load_u64(p + 1)
            xid[row] = load_u32(p + 17)
            p = &data[offsets[commits[row]]]
            commit_lsn[row] = load_u64(p + 2)
            end_lsn[row] = load_u64(p + 10)
            commit_time[row] = load_i64(p + 18)
    if not good:
        raise ValueError("begin and commit must be Begins and Commits that scan() accepted")
    return found


cdef inline bint is_whole(
    int64_t index, Py_ssize_t size, const int64_t[::1] offsets, Py_ssize_t end
) noexcept nogil:
    """Whether a message is there, in the data, and of that size."""
    if not 0 <= index < offsets.shape[0] - 1:
        return False
    if not 0 <= offsets[index] <= offsets[index + 1] <= end:
        return False
    return offsets[index + 1] - offsets[index] == size

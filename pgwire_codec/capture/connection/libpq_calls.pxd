"""Calls of libpq and of the system that compiled readers of a connection need.

They are not linked with libpq: they call its functions by their addresses in the library that
psycopg2 has loaded.
"""

cdef extern from "<poll.h>" nogil:
    ctypedef unsigned long nfds_t
    struct pollfd:
        int fd
        short events
        short revents
    short POLLIN
    int poll(pollfd*, nfds_t, int)

ctypedef int (*GetCopyData)(void*, char**, int) noexcept nogil
ctypedef int (*ConsumeInput)(void*) noexcept nogil
ctypedef void (*FreeMemory)(void*) noexcept nogil

cdef enum:  # as in frames.ReadOutcome
    EMPTY = 0
    FULL = 1
    REACHED = 2
    CONTROL = 3
    ENDED = 4
    BROKEN = 5
    WOKEN = 6

"""The frames of a stream taken apart, without an object a message.

The twin of :class:`pgwire_codec.capture.frames.PythonFrames`. libpq is not linked with: its
functions come as addresses, from the libpq that psycopg2 has loaded.

Waiting is done here, too, and without the GIL. A walsender sends each message by itself, into a
socket that holds but a few hundred: one whose client has to wait for another thread's Python, or is
woken for every message, stands still.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, nanosleep, timespec

import numpy as np

from pgwire_codec._core.wire.primitives cimport load_i64, load_u64

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

cdef enum:
    HEAD = 25  # of an XLogData frame: tag, WAL start, WAL end, send time
    FIRST_MESSAGES = 1024
    FIRST_BYTES = 1 << 18
    FEW_BYTES = 8 << 10  # half of the buffer that libpq begins with
    MANY_BYTES = 16 << 20  # of one read, before Python may look after its signals
    GATHER_NANOSECONDS = 100_000

cdef enum:  # as frames.Outcome
    EMPTY = 0
    FULL = 1
    REACHED = 2
    CONTROL = 3
    ENDED = 4
    BROKEN = 5


cdef class FrameBuffer:
    """See :class:`pgwire_codec.capture.frames.Frames`."""

    cdef void* _connection
    cdef int _socket
    cdef GetCopyData _get
    cdef ConsumeInput _consume
    cdef FreeMemory _free
    cdef object _arrays  # data, offsets, lsn, time: what the pointers point into
    cdef uint8_t* _data
    cdef int32_t* _offsets
    cdef uint64_t* _lsns
    cdef int64_t* _times
    cdef Py_ssize_t _room  # for bytes
    cdef Py_ssize_t _places  # for messages
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t nbytes
    cdef readonly bytes control

    def __init__(
        self, size_t connection, int socket, size_t get_copy_data, size_t consume_input,
        size_t free_memory
    ):
        self._connection = <void*>connection
        self._socket = socket
        self._get = <GetCopyData>get_copy_data
        self._consume = <ConsumeInput>consume_input
        self._free = <FreeMemory>free_memory
        self.control = b""
        self._clear(FIRST_BYTES, FIRST_MESSAGES)

    def read(
        self, Py_ssize_t max_messages, Py_ssize_t max_bytes, uint64_t stop_lsn, double seconds
    ):
        cdef char* frame = NULL
        cdef int length
        cdef bint is_message
        cdef int64_t deadline = now() + <int64_t>(seconds * 1e9)
        cdef bint had_none = self.count == 0
        while self.count < max_messages and self.nbytes < max_bytes:
            with nogil:
                length = self._wait_and_run(
                    max_messages, max_bytes, stop_lsn, deadline, had_none, &frame
                )
            if frame == NULL:
                return length  # the outcome
            # A frame that _run left: there is no room for it, or it is none of a message.
            is_message = length > HEAD and frame[0] == c"w"
            try:
                if is_message:
                    self._grow(length - HEAD)
                    self._append_unchecked(<const uint8_t*>frame, length)
                else:
                    self.control = frame[:length]
            finally:
                self._free(frame)
            if not is_message:
                return CONTROL
            if self._stops(stop_lsn):
                return REACHED
        return FULL

    def since(self, Py_ssize_t first):
        data, offsets, lsn, _ = self._arrays
        return data[offsets[first:self.count]], lsn[first:self.count]

    def take(self):
        from pgwire_codec.capture.frames import Taken

        data, offsets, lsn, time = self._arrays
        taken = Taken(
            data[:self.nbytes], offsets[:self.count + 1], lsn[:self.count], time[:self.count]
        )
        self._clear(max(FIRST_BYTES, self.nbytes), max(FIRST_MESSAGES, self.count))
        return taken

    cdef int _wait_and_run(
        self, Py_ssize_t max_messages, Py_ssize_t max_bytes, uint64_t stop_lsn, int64_t deadline,
        bint had_none, char** left
    ) noexcept nogil:
        """Take in frames, as _run does, and wait for what has not arrived."""
        cdef int outcome
        cdef bint looked = False
        cdef int64_t remaining
        cdef Py_ssize_t first = self.nbytes
        cdef Py_ssize_t before
        while True:
            before = self.nbytes
            outcome = self._run(max_messages, max_bytes, stop_lsn, left)
            if left[0] != NULL or outcome != EMPTY:
                return outcome
            remaining = deadline - now()
            if (
                (looked and remaining <= 0)
                or (had_none and self.count)
                or self.nbytes - first >= MANY_BYTES
            ):
                return EMPTY
            if self.nbytes == before:
                if not is_readable(self._socket, remaining):
                    return EMPTY
            elif self.nbytes - before < FEW_BYTES and not gather():
                return EMPTY
            if not self._consume(self._connection):
                return BROKEN
            looked = True

    cdef int _run(
        self, Py_ssize_t max_messages, Py_ssize_t max_bytes, uint64_t stop_lsn, char** left
    ) noexcept nogil:
        """Take in frames until something else is to be done.

        Gives the outcome; or, with ``left`` set to a frame that the caller has to see to and to
        free, its length.
        """
        cdef char* frame = NULL
        cdef int length
        left[0] = NULL
        while self.count < max_messages and self.nbytes < max_bytes:
            length = self._get(self._connection, &frame, 1)
            if length <= 0:
                if length == 0:
                    return EMPTY
                return ENDED if length == -1 else BROKEN
            if (
                length <= HEAD
                or frame[0] != c"w"
                or length - HEAD > self._room - self.nbytes
                or self.count >= self._places
            ):
                left[0] = frame
                return length
            self._append_unchecked(<const uint8_t*>frame, length)
            self._free(frame)
            if self._stops(stop_lsn):
                return REACHED
        return FULL

    cdef void _append_unchecked(self, const uint8_t* frame, int length) noexcept nogil:
        """Append a message; _run has seen that there is room, or _grow has made it."""
        cdef Py_ssize_t size = length - HEAD
        memcpy(self._data + self.nbytes, frame + HEAD, size)
        self._lsns[self.count] = load_u64(frame + 1)
        self._times[self.count] = load_i64(frame + 17)
        self.nbytes += size
        self.count += 1
        self._offsets[self.count] = <int32_t>self.nbytes

    cdef bint _stops(self, uint64_t stop_lsn) noexcept nogil:
        """Whether the last message may reach the position; see ``frames._STOPS``."""
        cdef uint8_t tag
        if self._lsns[self.count - 1] < stop_lsn:
            return False
        tag = self._data[self._offsets[self.count - 1]]
        return tag in (c"C", c"P", c"E", c"c", c"p", c"K", c"r", c"M")

    cdef _grow(self, Py_ssize_t size):
        """Make room for one more message of this size."""
        cdef Py_ssize_t count = self.count
        cdef Py_ssize_t nbytes = self.nbytes
        data, offsets, lsn, time = self._arrays
        self._allocate(
            self._room if size <= self._room - nbytes else max(2 * self._room, nbytes + size),
            self._places if count < self._places else 2 * self._places,
        )
        new_data, new_offsets, new_lsn, new_time = self._arrays
        new_data[:nbytes] = data[:nbytes]
        new_offsets[:count + 1] = offsets[:count + 1]
        new_lsn[:count] = lsn[:count]
        new_time[:count] = time[:count]

    cdef _clear(self, Py_ssize_t room, Py_ssize_t places):
        self._allocate(room, places)
        self.count = 0
        self.nbytes = 0
        self._offsets[0] = 0

    cdef _allocate(self, Py_ssize_t room, Py_ssize_t places):
        data = np.empty(room, np.uint8)
        offsets = np.empty(places + 1, np.int32)
        lsn = np.empty(places, np.uint64)
        time = np.empty(places, np.int64)
        cdef uint8_t[::1] data_view = data
        cdef int32_t[::1] offsets_view = offsets
        cdef uint64_t[::1] lsn_view = lsn
        cdef int64_t[::1] time_view = time
        self._arrays = (data, offsets, lsn, time)
        self._data = &data_view[0]
        self._offsets = &offsets_view[0]
        self._lsns = &lsn_view[0]
        self._times = &time_view[0]
        self._room = room
        self._places = places


cdef int64_t now() noexcept nogil:
    """The time of a clock that only goes forward, in nanoseconds."""
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <int64_t>time.tv_sec * 1_000_000_000 + time.tv_nsec


cdef bint is_readable(int socket, int64_t nanoseconds) noexcept nogil:
    """Wait until something has arrived; False when nothing has in time, or a signal came."""
    cdef pollfd asked
    asked.fd = socket
    asked.events = POLLIN
    asked.revents = 0
    return poll(&asked, 1, <int>((max(nanoseconds, 0) + 999_999) // 1_000_000)) > 0


cdef bint gather() noexcept nogil:
    """Let a little more arrive; False when a signal came.

    Nobody is in ``poll`` meanwhile, whom the walsender would have to wake.
    """
    cdef timespec time
    time.tv_sec = 0
    time.tv_nsec = GATHER_NANOSECONDS
    return nanosleep(&time, NULL) == 0

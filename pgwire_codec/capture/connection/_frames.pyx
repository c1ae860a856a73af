"""FrameBuffer: the frames of a stream split into messages and control frames.

The counterpart is :class:`pgwire_codec.capture.connection.frames.PythonFrames`, which makes an
object for each message.

It also waits for frames, without the GIL. A walsender sends each message by itself, into a socket
buffer for a few hundred of them. It blocks if its client waits for the GIL, or wakes up for every
message.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, nanosleep, timespec

import numpy as np

from pgwire_codec._core.protocol cimport (
    XLOG_DATA, XLOG_DATA_SEND_TIME, XLOG_DATA_SIZE, XLOG_DATA_WAL_START, may_reach_position,
)
from pgwire_codec._core.wire.primitives cimport load_i64, load_u64
from pgwire_codec.capture.connection.libpq_calls cimport (
    BROKEN, CONTROL, EMPTY, ENDED, FULL, POLLIN, REACHED, WOKEN, ConsumeInput, FreeMemory,
    GetCopyData, poll, pollfd,
)

cdef enum:
    FIRST_MESSAGES = 1024
    FIRST_BYTES = 1 << 18
    FEW_BYTES = 8 << 10  # half of the first buffer of libpq
    MANY_BYTES = 16 << 20  # of one read, before Python handles its signals
    GATHER_NANOSECONDS = 100_000

cdef enum Waited:
    TIMED_OUT
    READABLE
    IS_WOKEN


cdef class FrameBuffer:
    """See :class:`pgwire_codec.capture.connection.frames.Frames`."""

    cdef void* _connection
    cdef int _socket
    cdef int _waker  # readable when read has to return
    cdef GetCopyData _get
    cdef ConsumeInput _consume
    cdef FreeMemory _free
    cdef object _arrays  # data, offsets, lsn, time: owners of the memory below
    cdef uint8_t* _data
    cdef int32_t* _offsets
    cdef uint64_t* _lsns
    cdef int64_t* _times
    cdef Py_ssize_t _capacity  # in bytes
    cdef Py_ssize_t _max_count  # of messages
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t nbytes
    cdef readonly bytes control

    def __init__(
        self, size_t connection, int socket, int waker, size_t get_copy_data,
        size_t consume_input, size_t free_memory
    ):
        self._connection = <void*>connection
        self._socket = socket
        self._waker = waker
        self._get = <GetCopyData>get_copy_data
        self._consume = <ConsumeInput>consume_input
        self._free = <FreeMemory>free_memory
        self.control = b""
        self._allocate(FIRST_BYTES, FIRST_MESSAGES)

    def read(
        self, Py_ssize_t max_messages, Py_ssize_t max_bytes, uint64_t stop_lsn, double seconds
    ):
        cdef char* frame = NULL
        cdef int length
        cdef bint is_message
        cdef int64_t deadline = now() + <int64_t>(seconds * 1e9)
        cdef bint had_none = self.count == 0
        cdef bint looked = False
        while self.count < max_messages and self.nbytes < max_bytes:
            with nogil:
                length = self._wait_and_run(
                    max_messages, max_bytes, stop_lsn, deadline, had_none, &looked, &frame
                )
            if frame == NULL:
                return length  # the outcome
            # A frame that _run left: the buffer is full, or it contains no message.
            is_message = length > XLOG_DATA_SIZE and frame[0] == XLOG_DATA
            try:
                if is_message:
                    self._grow(length - XLOG_DATA_SIZE)
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

    def cut(self, Py_ssize_t count):
        if 0 <= count < self.count:
            self.count = count
            self.nbytes = self._offsets[count]

    def take(self):
        from pgwire_codec.capture.connection.frames import Taken

        cdef bint is_small = 2 * self.nbytes < self._capacity
        data, offsets, lsn, time = self._arrays
        taken = Taken(
            data[:self.nbytes], offsets[:self.count + 1], lsn[:self.count], time[:self.count]
        )
        if is_small:
            # As views, they would keep the whole buffer as long as somebody has one of them.
            taken = Taken(*[each.copy() for each in taken])
        if not is_small or self._capacity > FIRST_BYTES:
            self._allocate(max(FIRST_BYTES, self.nbytes), max(FIRST_MESSAGES, self.count))
        self.count = 0
        self.nbytes = 0
        return taken

    cdef int _wait_and_run(
        self, Py_ssize_t max_messages, Py_ssize_t max_bytes, uint64_t stop_lsn, int64_t deadline,
        bint had_none, bint* looked, char** left
    ) noexcept nogil:
        """Read frames, as _run does, and wait for those that have not arrived.

        ``looked`` is set once more frames were asked for, at least once before the deadline counts.
        """
        cdef int outcome
        cdef int waited
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
                (looked[0] and remaining <= 0)
                or (had_none and self.count)
                or self.nbytes - first >= MANY_BYTES
            ):
                return EMPTY
            if self.nbytes == before:
                waited = wait_for(self._socket, self._waker, remaining)
                if waited != READABLE:
                    return WOKEN if waited == IS_WOKEN else EMPTY
            elif self.nbytes - before < FEW_BYTES and not gather():
                return EMPTY
            if not self._consume(self._connection):
                return BROKEN
            looked[0] = True

    cdef int _run(
        self, Py_ssize_t max_messages, Py_ssize_t max_bytes, uint64_t stop_lsn, char** left
    ) noexcept nogil:
        """Read frames until something else has to be done, and return the outcome.

        If ``left`` is set to a frame, which the caller handles and frees, return its length.
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
                length <= XLOG_DATA_SIZE
                or frame[0] != XLOG_DATA
                or length - XLOG_DATA_SIZE > self._capacity - self.nbytes
                or self.count >= self._max_count
            ):
                left[0] = frame
                return length
            self._append_unchecked(<const uint8_t*>frame, length)
            self._free(frame)
            if self._stops(stop_lsn):
                return REACHED
        return FULL

    cdef void _append_unchecked(self, const uint8_t* frame, int length) noexcept nogil:
        """Append a message; _run has checked the capacity, or _grow has increased it."""
        cdef Py_ssize_t size = length - XLOG_DATA_SIZE
        memcpy(self._data + self.nbytes, frame + XLOG_DATA_SIZE, size)
        self._lsns[self.count] = load_u64(frame + XLOG_DATA_WAL_START)
        self._times[self.count] = load_i64(frame + XLOG_DATA_SEND_TIME)
        self.nbytes += size
        self.count += 1
        self._offsets[self.count] = <int32_t>self.nbytes

    cdef bint _stops(self, uint64_t stop_lsn) noexcept nogil:
        """Return whether the last message may be the last one before the position."""
        if self._lsns[self.count - 1] < stop_lsn:
            return False
        return may_reach_position(self._data[self._offsets[self.count - 1]])

    cdef _grow(self, Py_ssize_t size):
        """Increase the capacity for one more message of this size."""
        cdef Py_ssize_t count = self.count
        cdef Py_ssize_t nbytes = self.nbytes
        cdef Py_ssize_t capacity = self._capacity
        cdef Py_ssize_t max_count = self._max_count
        data, offsets, lsn, time = self._arrays
        self._allocate(
            capacity if size <= capacity - nbytes else max(2 * capacity, nbytes + size),
            max_count if count < max_count else 2 * max_count,
        )
        new_data, new_offsets, new_lsn, new_time = self._arrays
        new_data[:nbytes] = data[:nbytes]
        new_offsets[:count + 1] = offsets[:count + 1]
        new_lsn[:count] = lsn[:count]
        new_time[:count] = time[:count]

    cdef _allocate(self, Py_ssize_t capacity, Py_ssize_t max_count):
        data = np.empty(capacity, np.uint8)
        offsets = np.empty(max_count + 1, np.int32)
        lsn = np.empty(max_count, np.uint64)
        time = np.empty(max_count, np.int64)
        cdef uint8_t[::1] data_view = data
        cdef int32_t[::1] offsets_view = offsets
        cdef uint64_t[::1] lsn_view = lsn
        cdef int64_t[::1] time_view = time
        self._arrays = (data, offsets, lsn, time)
        self._data = &data_view[0]
        self._offsets = &offsets_view[0]
        self._lsns = &lsn_view[0]
        self._times = &time_view[0]
        self._capacity = capacity
        self._max_count = max_count
        self._offsets[0] = 0


cdef int64_t now() noexcept nogil:
    """Return the time of a monotonic clock in nanoseconds."""
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return <int64_t>time.tv_sec * 1_000_000_000 + time.tv_nsec


cdef Waited wait_for(int socket, int waker, int64_t nanoseconds) noexcept nogil:
    """Wait for data or the waker; return TIMED_OUT after that time, or after a signal."""
    cdef pollfd[2] asked
    asked[0].fd = socket
    asked[1].fd = waker
    asked[0].events = asked[1].events = POLLIN
    asked[0].revents = asked[1].revents = 0
    if poll(asked, 2, <int>((max(nanoseconds, 0) + 999_999) // 1_000_000)) <= 0:
        return TIMED_OUT
    return IS_WOKEN if asked[1].revents else READABLE


cdef bint gather() noexcept nogil:
    """Wait for a little more data; return False after a signal.

    Unlike ``poll``, this does not have to be woken up by the walsender.
    """
    cdef timespec time
    time.tv_sec = 0
    time.tv_nsec = GATHER_NANOSECONDS
    return nanosleep(&time, NULL) == 0

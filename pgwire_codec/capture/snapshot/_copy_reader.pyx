"""CopyBuffer: rows of a COPY, read and converted into Insert messages without the GIL.

The counterpart is :class:`pgwire_codec.capture.snapshot.copy_reader.PythonCopyReader`. A thread
that takes the GIL back for each row would wait for other threads as often, and those for it.
"""

from libc.stdint cimport INT32_MAX, int32_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

import numpy as np

from pgwire_codec._core.kernels.memory cimport array_of, pool_free, pool_realloc
from pgwire_codec._core.protocol cimport KIND_NULL, KIND_TEXT
from pgwire_codec._core.wire.primitives cimport load_i32, store_u32
from pgwire_codec.capture.connection.libpq_calls cimport (
    BROKEN, ENDED, FULL, POLLIN, ConsumeInput, FreeMemory, GetCopyData, poll, pollfd,
)

from pgwire_codec.capture.snapshot.copy_to_inserts import not_a_copy, not_these_columns

UINT8, INT32 = np.dtype(np.uint8), np.dtype(np.int32)

cdef enum:
    HEAD = 8  # bytes of an Insert before its columns
    VALUE_HEAD = 5  # of a value: its kind and its length
    FIRST_BYTES = 64 << 10
    FIRST_ROWS = 1024
    TAB = 0x09
    NEWLINE = 0x0A
    BACKSLASH = 0x5C
    LETTER_N = 0x4E
    SIGNATURE_SIZE = 11
    HEADER_SIZE = 19  # with flags and the extension's length

cdef enum Result:
    FINE
    OTHER_COLUMNS
    NO_SIGNATURE
    NO_MEMORY

cdef const uint8_t* SIGNATURE = b"PGCOPY\n\xff\r\n\0"
#: Byte that a backslash and this one stand for.
cdef uint8_t[256] ESCAPED
for byte in range(256):
    ESCAPED[byte] = byte
for byte, control in zip(b"bfnrtv", b"\b\f\n\r\t\v"):
    ESCAPED[byte] = control


cdef class CopyBuffer:
    """See :class:`pgwire_codec.capture.snapshot.copy_reader.CopyReader`."""

    cdef void* _connection
    cdef int _socket
    cdef GetCopyData _get
    cdef ConsumeInput _consume
    cdef FreeMemory _free
    cdef bytes _head
    cdef bytes _kinds  # of the values in the binary format, one a column
    cdef bint _is_binary
    cdef bint _is_first
    cdef uint8_t* _data
    cdef int32_t* _offsets
    cdef Py_ssize_t _used, _capacity, _enough  # in bytes
    cdef Py_ssize_t _rows, _most_rows

    def __init__(
        self, size_t connection, int socket, size_t get_copy_data, size_t consume_input,
        size_t free_memory, bytes head, bytes kinds, bint binary
    ):
        self._connection = <void*> connection
        self._socket = socket
        self._get = <GetCopyData> get_copy_data
        self._consume = <ConsumeInput> consume_input
        self._free = <FreeMemory> free_memory
        if len(head) != HEAD:
            raise ValueError(f"the head of an Insert has {HEAD} bytes, not {len(head)}")
        self._head, self._kinds, self._is_binary = head, kinds, binary
        self._is_first = True

    def __dealloc__(self):
        self._clear()

    def read(self, Py_ssize_t max_bytes):
        cdef int outcome = FULL
        cdef Result result
        cdef const uint8_t* head = <const uint8_t*> <const char*> self._head
        cdef const uint8_t* kinds = <const uint8_t*> <const char*> self._kinds
        cdef Py_ssize_t columns = len(self._kinds)
        # A block that is not much larger than its rows stays as it is, and is taken again.
        self._enough = max_bytes + max_bytes // 8
        with nogil:
            result = self._read(max_bytes, head, kinds, columns, &outcome)
        if result == NO_MEMORY:
            raise MemoryError
        if result == NO_SIGNATURE:
            raise not_a_copy()
        if result == OTHER_COLUMNS:
            raise not_these_columns(columns)
        if self._rows == 0:
            return outcome, np.zeros(0, UINT8), np.zeros(1, INT32)
        offsets = array_of(<uint8_t**> &self._offsets, (self._rows + 1) * 4, INT32)
        data = array_of(&self._data, self._used, UINT8)
        self._clear()
        return outcome, data, offsets

    cdef void _clear(self) noexcept:
        pool_free(self._data)
        pool_free(self._offsets)
        self._data, self._offsets = NULL, NULL
        self._used = self._capacity = self._rows = self._most_rows = 0

    cdef Result _read(
        self, Py_ssize_t max_bytes, const uint8_t* head, const uint8_t* kinds, Py_ssize_t columns,
        int* outcome
    ) noexcept nogil:
        cdef char* row = NULL
        cdef int size
        cdef Result result
        while self._used < max_bytes:
            size = self._get(self._connection, &row, 1)
            if size < 0:
                outcome[0] = ENDED if size == -1 else BROKEN
                return FINE
            if size == 0:
                wait_for(self._socket)
                if not self._consume(self._connection):
                    outcome[0] = BROKEN
                    return FINE
                continue
            result = self._append(<const uint8_t*> row, size, head, kinds, columns)
            self._free(row)
            if result != FINE:
                return result
        return FINE

    cdef Result _append(
        self, const uint8_t* row, Py_ssize_t size, const uint8_t* head, const uint8_t* kinds,
        Py_ssize_t columns
    ) noexcept nogil:
        """Append the Insert of a row."""
        cdef Py_ssize_t skipped
        cdef uint8_t* end
        if self._is_binary:
            if self._is_first:
                self._is_first = False
                skipped = header_size(row, size)
                if skipped < 0:
                    return NO_SIGNATURE
                row, size = row + skipped, size - skipped
            if size == 0 or (size == 2 and row[0] == 0xFF and row[1] == 0xFF):
                return FINE  # the header alone, or the trailer
        if not self._reserve(HEAD + VALUE_HEAD * columns + size):
            return NO_MEMORY
        memcpy(self._data + self._used, head, HEAD)
        end = self._data + self._used + HEAD
        if self._is_binary:
            end = write_binary(end, row, size, kinds, columns)
        else:
            end = write_text(end, row, size, columns)
        if end == NULL:
            return OTHER_COLUMNS
        self._used = end - self._data
        self._rows += 1
        self._offsets[self._rows] = <int32_t> self._used
        return FINE

    cdef bint _reserve(self, Py_ssize_t size) noexcept nogil:
        """Make room for one more row; return False if out of memory."""
        cdef void* memory
        cdef Py_ssize_t needed = self._used + size
        if needed > INT32_MAX:
            return False
        if needed > self._capacity:
            needed = max(
                needed, max(<Py_ssize_t> FIRST_BYTES, min(2 * self._capacity, self._enough))
            )
            memory = pool_realloc(self._data, <size_t> needed)
            if memory == NULL:
                return False
            self._data = <uint8_t*> memory
            self._capacity = needed
        if self._rows >= self._most_rows:
            needed = max(<Py_ssize_t> FIRST_ROWS, 2 * self._most_rows)
            memory = pool_realloc(self._offsets, <size_t> (needed + 1) * 4)
            if memory == NULL:
                return False
            self._offsets = <int32_t*> memory
            self._offsets[0] = 0
            self._most_rows = needed
        return True


cdef uint8_t* write_text(
    uint8_t* to, const uint8_t* p, Py_ssize_t size, Py_ssize_t columns
) noexcept nogil:
    """Write the values of a row in the text format; return their end, or NULL for other columns.

    Each value ends with a tab, the last with a newline; both are escaped within values.
    """
    cdef const uint8_t* end = p + size
    cdef Py_ssize_t column
    cdef uint8_t* value
    cdef uint8_t byte
    if size == 0 or (end - 1)[0] != NEWLINE:
        return NULL
    for column in range(columns):
        if p == end:
            return NULL
        if p[0] == BACKSLASH and p[1] == LETTER_N and (p[2] == TAB or p[2] == NEWLINE):
            to[0] = KIND_NULL
            to += 1
            p += 2
        else:
            value = to + VALUE_HEAD
            byte = p[0]
            while byte != TAB and byte != NEWLINE:  # which the last byte is
                if byte == BACKSLASH:
                    p += 1
                    byte = ESCAPED[p[0]]
                value[0] = byte
                value += 1
                p += 1
                if p >= end:
                    return NULL
                byte = p[0]
            to[0] = KIND_TEXT
            store_u32(to + 1, <uint32_t> (value - to - VALUE_HEAD))
            to = value
        if (p[0] == NEWLINE) != (column == columns - 1):
            return NULL
        p += 1
    return to if p == end or columns == 0 else NULL


cdef uint8_t* write_binary(
    uint8_t* to, const uint8_t* p, Py_ssize_t size, const uint8_t* kinds, Py_ssize_t columns
) noexcept nogil:
    """Write the values of a row in the binary format; return their end, or NULL for other columns.

    A row is its number of columns, and for each column its length, -1 of NULL, and its bytes.
    """
    cdef const uint8_t* end = p + size
    cdef Py_ssize_t column
    cdef int32_t length
    if size < 2:
        return NULL
    p += 2
    for column in range(columns):
        if end - p < 4:
            return NULL
        length = load_i32(p)
        if length < 0:
            to[0] = KIND_NULL
            to += 1
            p += 4
            continue
        if length > end - p - 4:
            return NULL
        to[0] = kinds[column]
        memcpy(to + 1, p, <size_t> length + 4)
        to += VALUE_HEAD + length
        p += 4 + length
    return to if p == end else NULL


cdef Py_ssize_t header_size(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    """Return the bytes of the header of the binary format; -1 without one."""
    cdef Py_ssize_t extension
    if size < HEADER_SIZE or memcmp(p, SIGNATURE, SIGNATURE_SIZE) != 0:
        return -1
    extension = load_i32(p + HEADER_SIZE - 4)
    return HEADER_SIZE + extension if 0 <= extension <= size - HEADER_SIZE else -1


cdef void wait_for(int socket) noexcept nogil:
    """Wait until the socket is readable. A signal, or an error of the socket, ends it, too."""
    cdef pollfd asked
    asked.fd = socket
    asked.events = POLLIN
    asked.revents = 0
    poll(&asked, 1, -1)

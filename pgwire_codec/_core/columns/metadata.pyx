"""Metadata columns of many changes at once.

The counterpart is :mod:`pgwire_codec.reference.metadata`.
"""

from cpython.buffer cimport PyBUF_STRIDED_RO, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

import numpy as np

from pgwire_codec._core.columns.c_arrays cimport Buffers, export_buffers, new_memory
from pgwire_codec._core.columns.c_data cimport ArrowArray, export_array
from pgwire_codec._core.kernels.column cimport MAX_BYTES
from pgwire_codec._core.kernels.memory cimport new_array

from pgwire_codec.arrow.layout import ArrowBuffers, shared_nulls

INT64 = np.dtype(np.int64)

cdef struct Names:
    const uint8_t* bytes  # of all names, one after the other
    const int64_t* starts  # of each name, and the end of the last one


def transaction_columns(transaction, xid, commit_lsn, commit_time):
    """Gather columns of transactions; see ``reference.metadata.transaction_columns``."""
    cdef const int64_t[::1] numbers = np.ascontiguousarray(transaction, np.int64)
    columns = new_array((3, numbers.shape[0]), INT64)
    cdef int64_t[:, ::1] out = columns
    if numbers.shape[0]:
        gather_transactions(
            xid, commit_lsn, commit_time.view(INT64), numbers, 0, numbers.shape[0],
            &out[0, 0], &out[1, 0], &out[2, 0],
        )
    return tuple(columns)


cdef int gather_transactions(
    const uint32_t[:] xids,
    const uint64_t[:] lsns,
    const int64_t[:] times,
    const int64_t[::1] numbers,
    Py_ssize_t first,
    Py_ssize_t stop,
    int64_t* xid,
    int64_t* lsn,
    int64_t* time,
) except -1:
    """Write xid, commit LSN and commit time of the transactions of some of the rows."""
    cdef Py_ssize_t count = min(xids.shape[0], lsns.shape[0], times.shape[0])
    cdef Py_ssize_t row
    cdef int64_t number
    with nogil:
        for row in range(first, stop):
            number = numbers[row]
            if not 0 <= number < count:
                break
            xid[row] = xids[number]
            lsn[row] = <int64_t> lsns[number]
            time[row] = times[number]
        else:
            row = stop
    if row < stop:
        raise IndexError(f"transaction {numbers[row]} of {count}")
    return 0


cdef class RowMetadata:
    """The metadata columns of changes from _op to _seq, of which threads fill in shares."""

    def __cinit__(self, source, rows, seq, transactions, transaction, list edges):
        self.kind = source.kind
        self.rows, self.seq, self.transaction = rows, seq, transaction
        self.xids, self.commit_lsns = transactions.xid, transactions.commit_lsn
        self.commit_times = transactions.commit_time.view(INT64)
        self.has_lsns = source.lsn is not None
        if self.has_lsns:
            self.lsns = source.lsn
            if len(source.lsn) < len(source.body):
                raise ValueError(f"{len(source.lsn)} LSNs of {len(source.body)} messages")
        self.edges = edges

    cdef int open(self, ArrowArray** to) except -1:
        """Allocate the memory of the columns, which the arrays own."""
        cdef Py_ssize_t rows = self.rows.shape[0]
        cdef Buffers* op = export_buffers(to[0], rows, 3)
        self.op_ends = <int32_t*> new_memory(op, 1, (rows + 1) * 4)
        self.op = <uint8_t*> new_memory(op, 2, rows)
        self.op_ends[0] = 0
        self.xid = new_numbers(to[1], rows)
        if self.has_lsns:
            self.lsn = new_numbers(to[2], rows)
        else:
            export_array(to[2], shared_nulls("l", rows), True)
        self.commit_lsn = new_numbers(to[3], rows)
        self.commit_time = new_numbers(to[4], rows)
        self.changes = new_numbers(to[5], rows)
        return 0

    def fill(self, Py_ssize_t share):
        """Fill in the rows of a share, whose messages `scan` accepted."""
        cdef Py_ssize_t first = self.edges[share], stop = self.edges[share + 1]
        cdef Py_ssize_t row
        cdef const int64_t[::1] rows = self.rows, seq = self.seq
        cdef const uint8_t[::1] kind = self.kind
        cdef uint8_t* op = self.op
        cdef int32_t* op_ends = self.op_ends
        cdef int64_t* changes = self.changes
        with nogil:
            for row in range(first, stop):
                op[row] = kind[rows[row]]
                op_ends[row + 1] = <int32_t> (row + 1)
                changes[row] = seq[row]
        if self.has_lsns:
            self.fill_lsns(first, stop)
        gather_transactions(
            self.xids, self.commit_lsns, self.commit_times, self.transaction, first, stop,
            self.xid, self.commit_lsn, self.commit_time,
        )

    cdef void fill_lsns(self, Py_ssize_t first, Py_ssize_t stop):
        """Fill in the LSN of each row's message."""
        cdef Py_ssize_t row
        cdef const int64_t[::1] rows = self.rows
        cdef const uint64_t[:] lsns = self.lsns
        cdef int64_t* lsn = self.lsn
        with nogil:
            for row in range(first, stop):
                lsn[row] = <int64_t> lsns[rows[row]]


cdef int64_t* new_numbers(ArrowArray* to, Py_ssize_t rows) except NULL:
    """Return memory for the values of an array of int64."""
    return <int64_t*> new_memory(export_buffers(to, rows, 2), 1, rows * 8)


def strings_at(values, rows):
    """Gather strings; see ``reference.metadata.strings_at``."""
    cdef const int64_t[::1] numbers = np.ascontiguousarray(rows, np.int64)
    cdef Py_ssize_t count = numbers.shape[0]
    cdef Py_ssize_t row, size
    cdef Py_ssize_t total = 0, nulls = 0
    cdef Py_buffer view
    cdef object value
    PyObject_GetBuffer(values, &view, PyBUF_STRIDED_RO)
    try:
        check_numbers(numbers, view.shape[0])
        # A call of many tables has more transactions than a batch has rows.
        if view.shape[0] <= count and not any_string(&view):
            return shared_nulls("u", count)
        for row in range(count):
            value = object_at(&view, numbers[row])
            if value is None:
                nulls += 1
            else:
                PyUnicode_AsUTF8AndSize(value, &size)
                total += size
        if nulls == count:
            return shared_nulls("u", count)
        return gather_strings(&view, numbers, nulls, total)
    finally:
        PyBuffer_Release(&view)


cdef int check_numbers(const int64_t[::1] numbers, Py_ssize_t count) except -1:
    cdef Py_ssize_t row
    with nogil:
        for row in range(numbers.shape[0]):
            if not 0 <= numbers[row] < count:
                break
        else:
            return 0
    raise IndexError(f"string {numbers[row]} of {count}")


cdef bint any_string(Py_buffer* view):
    """Return whether any of the objects is not None."""
    cdef Py_ssize_t number
    for number in range(view.shape[0]):
        if object_at(view, number) is not None:
            return True
    return False


cdef gather_strings(
    Py_buffer* view, const int64_t[::1] numbers, Py_ssize_t nulls, Py_ssize_t total
):
    cdef Py_ssize_t count = numbers.shape[0]
    cdef Py_ssize_t row, size
    cdef const char* text
    check_size(total)
    validity = np.zeros((count + 7) >> 3, np.uint8)
    offsets = new_array((count + 1,), np.int32)
    data = new_array((total,), np.uint8)
    cdef uint8_t[::1] bits = validity
    cdef int32_t[::1] ends = offsets
    cdef uint8_t[::1] to = data
    cdef object value
    total = ends[0] = 0
    for row in range(count):
        value = object_at(view, numbers[row])
        if value is not None:
            text = PyUnicode_AsUTF8AndSize(value, &size)
            if size:
                memcpy(&to[total], text, <size_t> size)
            total += size
            bits[row >> 3] |= <uint8_t> (1 << (row & 7))
        ends[row + 1] = <int32_t> total
    return ArrowBuffers("u", count, nulls, validity if nulls else None, [offsets, data])


cdef object object_at(Py_buffer* view, Py_ssize_t number):
    return <object> (<PyObject**> (<uint8_t*> view.buf + number * view.strides[0]))[0]


# Lists of names.


def name_lists(rows_by_name, names, Py_ssize_t rows):
    """Return lists of the names of each row; see ``reference.metadata.name_lists``."""
    named = [
        (np.ascontiguousarray(which, np.int64), name.encode())
        for which, name in zip(rows_by_name, names, strict=True)
        if len(which)
    ]
    if not named:
        return shared_nulls("+l", rows)
    bits, ends = np.zeros((rows + 7) >> 3, np.uint8), np.zeros(rows + 1, np.int32)
    cdef uint8_t[::1] validity = bits
    cdef int32_t[::1] offsets = ends
    cdef Py_ssize_t count = 0, valid = 0, row
    for which, _ in named:
        count += len(which)
        check_size(count)
        count_rows(which, offsets)
    for row in range(rows):
        if offsets[row + 1]:
            validity[row >> 3] |= <uint8_t> (1 << (row & 7))
            valid += 1
        offsets[row + 1] += offsets[row]
    nulls = rows - valid
    return ArrowBuffers(
        "+l", rows, nulls, bits if nulls else None, [ends],
        children=[listed_names(named, offsets, count)],
    )


cdef int count_rows(const int64_t[::1] which, int32_t[::1] counts) except -1:
    """Add one to the element after each of the rows."""
    cdef Py_ssize_t at
    for at in range(which.shape[0]):
        if not 0 <= which[at] < counts.shape[0] - 1:
            raise IndexError(f"row {which[at]} of {counts.shape[0] - 1}")
        counts[which[at] + 1] += 1
    return 0


cdef listed_names(list named, const int32_t[::1] offsets, Py_ssize_t count):
    """Return the elements of the lists, which are as long as the offsets require."""
    texts = b"".join([name for _, name in named])
    places = np.cumsum([0, *[len(name) for _, name in named]])
    cdef Py_ssize_t total = sum([len(which) * len(name) for which, name in named])
    check_size(total)
    cdef const uint8_t[::1] text = texts or b"\0"
    cdef const int64_t[::1] starts = places
    cdef Names all_names = Names(&text[0], &starts[0])
    # The number of the name of each element, row by row.
    cdef int32_t[::1] numbers = new_array((count,), np.int32)
    cdef int32_t[::1] next_element = np.array(offsets, np.int32)
    cdef const int64_t[::1] rows
    cdef Py_ssize_t at
    cdef int32_t number
    for number in range(<int32_t> len(named)):
        rows = named[number][0]
        with nogil:
            for at in range(rows.shape[0]):
                numbers[next_element[rows[at]]] = number
                next_element[rows[at]] += 1
    ends, data = new_array((count + 1,), np.int32), new_array((total,), np.uint8)
    cdef int32_t[::1] out = ends
    cdef uint8_t[::1] to = data
    with nogil:
        write_names(&all_names, numbers, &out[0], &to[0] if total else NULL)
    return ArrowBuffers("u", count, 0, None, [ends, data])


cdef void write_names(
    const Names* names, const int32_t[::1] numbers, int32_t* ends, uint8_t* to
) noexcept nogil:
    """Write the names with these numbers, and where each begins and ends."""
    cdef Py_ssize_t at
    cdef int64_t start, size
    cdef int32_t done = 0
    ends[0] = 0
    for at in range(numbers.shape[0]):
        start = names.starts[numbers[at]]
        size = names.starts[numbers[at] + 1] - start
        if size:
            memcpy(to + done, names.bytes + start, <size_t> size)
        done += <int32_t> size
        ends[at + 1] = done


cdef int check_size(Py_ssize_t size) except -1:
    if size > MAX_BYTES:
        raise OverflowError(f"metadata column of more than {MAX_BYTES} bytes")
    return 0

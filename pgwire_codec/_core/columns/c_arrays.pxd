"""Arrays in Arrow's C data interface that own their memory."""

from libc.stdint cimport uint8_t

from pgwire_codec._core.columns.c_data cimport ArrowArray
from pgwire_codec._core.kernels.column cimport ColumnBuffers

cdef enum:
    MOST_BUFFERS = 3

cdef enum Layout:
    # Of a column's values.
    FIXED
    BITS
    OFFSETS


cdef struct Buffers:
    # Buffers of an exported array, and the memory that it owns.
    const void* pointers[MOST_BUFFERS]
    void* memory[MOST_BUFFERS]


cdef int export_struct(ArrowArray* to, Py_ssize_t rows, Py_ssize_t fields) except -1
cdef Buffers* export_buffers(ArrowArray* to, Py_ssize_t rows, int count) except NULL
cdef void* new_memory(Buffers* block, int at, Py_ssize_t size) except NULL
cdef int export_column(ArrowArray* to, ColumnBuffers* c, int layout) except -1
cdef void pack_bits(uint8_t* bits, const uint8_t* flags, Py_ssize_t count) noexcept nogil

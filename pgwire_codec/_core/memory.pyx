# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, freethreading_compatible=True
"""Memory of a kernel's as the base of a numpy array: nothing is copied."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t

import numpy as np

from pgwire_codec._core.pool cimport pool_expect, pool_free, pool_realloc


cdef class Memory:
    """Raw memory that is freed with the last array over it."""

    cdef void* p
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.p, self.size, 0, flags)

    def __dealloc__(self):
        pool_free(self.p)


cdef object array_of(uint8_t** p, Py_ssize_t size, object dtype):
    """Give the first `size` bytes at p as an array, and leave p NULL; the rest is given back."""
    cdef Memory memory
    cdef void* shrunk
    if size == 0:
        return np.empty(0, dtype)
    memory = Memory()
    memory.p = p[0]
    memory.size = size
    p[0] = NULL
    shrunk = pool_realloc(memory.p, <size_t> size)
    if shrunk is not NULL:
        memory.p = shrunk
    return np.frombuffer(memory, dtype)


cdef object new_array(tuple shape, object dtype):
    """Give an array, like ``numpy.empty``."""
    cdef Memory memory
    cdef Py_ssize_t size = np.dtype(dtype).itemsize
    for length in shape:
        size *= length
    if size == 0:
        return np.empty(shape, dtype)
    memory = Memory()
    memory.p = pool_realloc(NULL, <size_t> size)
    if memory.p is NULL:
        raise MemoryError
    memory.size = size
    pool_expect(memory.p, <size_t> size, True)
    return np.frombuffer(memory, dtype).reshape(shape)

# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, freethreading_compatible=True
"""Memory of a kernel's as the base of a numpy array: nothing is copied."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t

import numpy as np

cdef extern from "Python.h" nogil:
    void* PyMem_RawRealloc(void* p, size_t n)
    void PyMem_RawFree(void* p)


cdef class Memory:
    """Raw memory that is freed with the last array over it."""

    cdef void* p
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.p, self.size, 0, flags)

    def __dealloc__(self):
        PyMem_RawFree(self.p)


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
    shrunk = PyMem_RawRealloc(memory.p, <size_t> size)
    if shrunk is not NULL:
        memory.p = shrunk
    return np.frombuffer(memory, dtype)

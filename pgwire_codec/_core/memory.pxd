# cython: language_level=3
"""Memory of a kernel's as the base of a numpy array."""

from libc.stdint cimport uint8_t

cdef object array_of(uint8_t** p, Py_ssize_t size, object dtype)
cdef object new_array(tuple shape, object dtype)

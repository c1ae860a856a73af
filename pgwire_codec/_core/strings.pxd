# cython: language_level=3
"""Kernels of strings and bytes: copied, or as views of where they lie."""

from pgwire_codec._core.block cimport Column, Kernel

cdef Kernel string_kernel(Column* c, str family, str arrow, bint numeric, Py_ssize_t data_size)

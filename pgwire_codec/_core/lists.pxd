# cython: language_level=3
"""The kernel of one-dimensional arrays as lists."""

from pgwire_codec._core.block cimport Column, Kernel

cdef Kernel list_kernel(Column* c, str delimiter, element_oid)

# cython: language_level=3
"""The kernel of uuid as 16 bytes."""

from pgwire_codec._core.block cimport Column, Kernel

cdef Kernel uuid_kernel(Column* c)

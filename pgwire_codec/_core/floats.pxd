# cython: language_level=3
"""Kernels of float4 and float8."""

from pgwire_codec._core.block cimport Column, Kernel

cdef Kernel float_kernel(Column* c, str family)

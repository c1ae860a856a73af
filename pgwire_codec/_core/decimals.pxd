# cython: language_level=3
"""Kernels of numeric as a decimal or a float64."""

from pgwire_codec._core.block cimport Column, Kernel

cdef Kernel decimal_kernel(Column* c, str arrow)

# cython: language_level=3
"""Kernels of booleans and integers."""

from pgwire_codec._core.block cimport Column, Kernel

cdef Kernel integer_kernel(Column* c, str family, str arrow)

# cython: language_level=3
"""Kernels of date, time, timestamp and interval."""

from pgwire_codec._core.block cimport Column, Kernel

cdef Kernel time_kernel(Column* c, str family)

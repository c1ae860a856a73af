# cython: language_level=3
"""Readers of messages; each gives None where the bytes are not what it reads."""

from pgwire_codec._core.wire cimport Cursor

cdef object read_any_message(Cursor* c, bint streaming)
cdef object read_flag(Cursor* c)

# cython: language_level=3
"""Memory for columns: as realloc and free, but large blocks are kept for the next batch."""


cdef void* pool_realloc(void* p, size_t size) noexcept nogil
cdef void pool_free(void* p) noexcept nogil
cdef void pool_expect(void* p, size_t size, bint will) noexcept nogil

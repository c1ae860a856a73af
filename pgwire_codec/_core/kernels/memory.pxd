"""Memory for columns: realloc and free that keep large blocks for the next batch, and arrays."""

from libc.stdint cimport uint8_t

cdef void* pool_realloc(void* p, size_t size) noexcept nogil
cdef void pool_free(void* p) noexcept nogil
cdef void pool_expect(void* p, size_t size, bint will) noexcept nogil
cdef object array_of(uint8_t** p, Py_ssize_t size, object dtype)
cdef object new_array(tuple shape, object dtype)

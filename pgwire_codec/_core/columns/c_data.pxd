"""Arrow's C data interface, for modules that export arrays of their own."""

from libc.stdint cimport int64_t


cdef struct ArrowArray:
    # As https://arrow.apache.org/docs/format/CDataInterface.html defines it.
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept nogil
    void* private_data


cdef int export_array(ArrowArray* to, array, bint takes_views) except -1
cdef import_record_batch(ArrowArray* exported, schema)

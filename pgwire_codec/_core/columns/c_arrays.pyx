"""Arrays in Arrow's C data interface that own their memory, of columns and of other values.

Each has a block of its own, because a consumer may move a child of a struct away and release it
after the struct. No array refers to an object: any thread releases it, with or without the GIL.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from pgwire_codec._core.columns.c_data cimport ArrowArray
from pgwire_codec._core.kernels.column cimport ColumnBuffers, column_validity_size
from pgwire_codec._core.kernels.memory cimport pool_free, pool_realloc

cdef uint8_t NOTHING = 0


cdef int export_struct(ArrowArray* to, Py_ssize_t rows, Py_ssize_t fields) except -1:
    """Fill in a struct whose fields are arrays of zeros, which `release_array` passes over."""
    cdef Py_ssize_t size = <Py_ssize_t> sizeof(Buffers)
    cdef Buffers* block
    cdef ArrowArray* child
    cdef Py_ssize_t at
    size += fields * <Py_ssize_t> (sizeof(ArrowArray*) + sizeof(ArrowArray))
    block = <Buffers*> pool_realloc(NULL, <size_t> size)
    if block == NULL:
        raise MemoryError
    memset(block, 0, <size_t> size)
    to.length = rows
    to.n_buffers = 1
    to.buffers = block.pointers
    to.n_children = fields
    to.children = <ArrowArray**> (block + 1)
    child = <ArrowArray*> (to.children + fields)
    for at in range(fields):
        to.children[at] = child + at
    to.private_data = block
    to.release = release_array
    return 0


cdef Buffers* export_buffers(ArrowArray* to, Py_ssize_t rows, int count) except NULL:
    """Fill in an array without nulls, but for its buffers after the bitmap."""
    cdef Buffers* block = <Buffers*> pool_realloc(NULL, sizeof(Buffers))
    if block == NULL:
        raise MemoryError
    memset(block, 0, sizeof(Buffers))
    to.length = rows
    to.n_buffers = count
    to.buffers = block.pointers
    to.private_data = block
    to.release = release_array
    return block


cdef void* new_memory(Buffers* block, int at, Py_ssize_t size) except NULL:
    """Return memory for a buffer."""
    cdef void* memory = pool_realloc(NULL, <size_t> max(size, 1))
    if memory == NULL:
        raise MemoryError
    block.memory[at] = memory
    block.pointers[at] = memory
    return memory


cdef int export_column(ArrowArray* to, ColumnBuffers* c, int layout) except -1:
    """Move the memory of a decoded column into an array."""
    cdef Py_ssize_t rows = c.length
    cdef Buffers* block = export_buffers(to, rows, 3 if layout == OFFSETS else 2)
    if c.nulls:
        to.null_count = c.nulls
        take_memory(block, 0, &c.validity, column_validity_size(c))
    if layout == BITS:
        pack_bits(<uint8_t*> new_memory(block, 1, (rows + 7) >> 3), c.values, rows)
    elif layout == OFFSETS:
        take_memory(block, 1, &c.values, (rows + 1) * 4)
        take_memory(block, 2, &c.bytes, c.used)
    else:
        take_memory(block, 1, &c.values, rows * c.width)
    return 0


cdef void take_memory(Buffers* block, int at, uint8_t** memory, Py_ssize_t size) noexcept:
    """Move memory of a column to the block; `size` bytes of it are used."""
    cdef void* shrunk = memory[0]
    if size == 0:
        block.pointers[at] = &NOTHING
        return
    shrunk = pool_realloc(memory[0], <size_t> size)
    if shrunk is NULL:
        shrunk = memory[0]
    block.memory[at] = shrunk
    block.pointers[at] = shrunk
    memory[0] = NULL


cdef void pack_bits(uint8_t* bits, const uint8_t* flags, Py_ssize_t count) noexcept nogil:
    """Write a bitmap: a bit for each byte, set unless the byte is zero."""
    cdef Py_ssize_t at
    memset(bits, 0, <size_t> ((count + 7) >> 3))
    for at in range(count):
        bits[at >> 3] |= <uint8_t> ((flags[at] != 0) << (at & 7))


cdef void release_array(ArrowArray* array) noexcept nogil:
    """Release an array, by any thread, with or without the GIL."""
    cdef Buffers* block = <Buffers*> array.private_data
    cdef int64_t at
    for at in range(array.n_children):
        if array.children[at].release != NULL:  # else it was moved, or never filled in
            array.children[at].release(array.children[at])
    for at in range(MOST_BUFFERS):
        pool_free(block.memory[at])
    pool_free(block)
    array.release = NULL

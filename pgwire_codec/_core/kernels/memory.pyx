"""Memory for columns: realloc and free that keep large blocks for the next batch, and arrays.

A page that is touched for the first time costs more than decoding what fills it, and the allocator
returns large blocks to the system at once.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy, memmove
from libc.time cimport time, time_t

import numpy as np

cdef extern from "Python.h" nogil:
    ctypedef void* PyThread_type_lock
    PyThread_type_lock PyThread_allocate_lock()
    int PyThread_acquire_lock(PyThread_type_lock lock, int wait)
    void PyThread_release_lock(PyThread_type_lock lock)
    void* PyMem_RawMalloc(size_t n)
    void* PyMem_RawRealloc(void* p, size_t n)
    void PyMem_RawFree(void* p)

cdef extern from *:
    """
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    #define PGWIRE_PAGE 4096
    #define PGWIRE_HUGE ((size_t) 4 << 20)
    #define PGWIRE_FEW ((size_t) 64 << 10)
    /* Large pages from the size at which numpy requests them too; below it all pages at once, if
       they `will` be filled. A refusal changes nothing. */
    static void pgwire_expect(void* p, size_t n, int will) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        size_t skipped = PGWIRE_PAGE - (size_t) p % PGWIRE_PAGE;
        char* pages = (char*) p + skipped;
        size_t size = n < skipped ? 0 : (n - skipped) / PGWIRE_PAGE * PGWIRE_PAGE;
        if (n >= PGWIRE_HUGE)
            madvise(pages, size, MADV_HUGEPAGE);
    #if defined(MADV_POPULATE_WRITE)
        else if (will && n >= PGWIRE_FEW)
            madvise(pages, size, MADV_POPULATE_WRITE);
    #endif
    #endif
        (void) p, (void) n, (void) will;
    }
    /* Sanitizers see a use after free only in memory that is freed. */
    #if defined(__SANITIZE_ADDRESS__)
    #define PGWIRE_KEEPS 0
    #else
    #define PGWIRE_KEEPS 1
    #endif
    """
    void pgwire_expect(void* p, size_t n, bint will) noexcept nogil
    bint PGWIRE_KEEPS

cdef enum:
    HEADER_SIZE = 64  # bytes before each block; it stays aligned as Arrow recommends
    LARGE = 64 << 10  # bytes from which a block is kept
    MOST_BLOCKS = 512
    MOST_BYTES = 128 << 20  # of all blocks that are kept
    MOST_SECONDS = 10  # for which a block is kept; sizes that are not needed again would add up


cdef struct Header:
    uint64_t capacity  # bytes after the header
    bint is_kept  # whether it was kept once: its pages were touched


cdef struct Kept:
    Header* header
    uint64_t number  # of the call that kept it
    time_t second  # in which that was

cdef Kept kept[MOST_BLOCKS]  # by capacity
cdef int kept_blocks = 0
cdef uint64_t kept_bytes = 0
cdef uint64_t calls = 0
cdef time_t swept = 0  # the second in which old blocks were last freed
cdef PyThread_type_lock lock = PyThread_allocate_lock()


cdef inline Header* header_of(void* p) noexcept nogil:
    return <Header*> (<uint8_t*> p - HEADER_SIZE)


cdef inline void* block_of(Header* header) noexcept nogil:
    return <uint8_t*> header + HEADER_SIZE


cdef void* pool_realloc(void* p, size_t size) noexcept nogil:
    """Return a block of at least that many bytes with the contents of p; NULL if out of memory.

    p is NULL or a block, which is unchanged after NULL. Much that it shrinks by is freed.
    """
    cdef Header* header
    cdef size_t old
    if p == NULL:
        return take(size)
    header = header_of(p)
    old = header.capacity
    if old - old // 4 <= size <= old or (old < LARGE and size <= old):
        return p
    if size < LARGE or size < old:
        header = <Header*> PyMem_RawRealloc(header, HEADER_SIZE + size)
        if header == NULL:
            return NULL
        header.capacity = size
        return block_of(header)
    grown = take(size)
    if grown != NULL:
        memcpy(grown, p, old)
        pool_free(p)
    return grown


cdef void pool_free(void* p) noexcept nogil:
    """Free a block, or keep it; p may be NULL."""
    cdef Header* header
    if p == NULL:
        return
    header = header_of(p)
    if header.capacity < LARGE:
        discard_old()
        PyMem_RawFree(header)
    elif not keep(header):
        PyMem_RawFree(header)


cdef void pool_expect(void* p, size_t size, bint will) noexcept nogil:
    """Prepare the memory of a block for writing, of all of it if `will` is set."""
    if not header_of(p).is_kept:
        pgwire_expect(p, size, will)


cdef void* take(size_t size) noexcept nogil:
    cdef Header* header = NULL
    if size >= LARGE:
        header = take_kept(size)
    if header == NULL:
        header = <Header*> PyMem_RawMalloc(HEADER_SIZE + size)
        if header == NULL:
            return NULL
        header.capacity = size
        header.is_kept = False
    return block_of(header)


cdef Header* take_kept(size_t size) noexcept nogil:
    """Return the smallest kept block that fits and is not much too large, or NULL."""
    cdef int at
    cdef Header* header = NULL
    # Without waiting: another thread, or a process that was forked, may never release it.
    if not PyThread_acquire_lock(lock, 0):
        return NULL
    at = first_of(size)
    if at < kept_blocks and kept[at].header.capacity <= size + size // 4:
        header = kept[at].header
        forget(at)
    PyThread_release_lock(lock)
    return header


cdef bint keep(Header* header) noexcept nogil:
    """Keep a block, and free the oldest ones for it; return False if it cannot be kept."""
    global kept_blocks, kept_bytes, calls
    cdef int at, oldest
    cdef time_t now
    if not PGWIRE_KEEPS or header.capacity > MOST_BYTES or not PyThread_acquire_lock(lock, 0):
        return False
    now = time(NULL)
    if now != swept:
        sweep(now)
    while kept_blocks == MOST_BLOCKS or kept_bytes + header.capacity > MOST_BYTES:
        oldest = 0
        for at in range(1, kept_blocks):
            if kept[at].number < kept[oldest].number:
                oldest = at
        discard(oldest)
    header.is_kept = True
    calls += 1
    at = first_of(header.capacity)
    memmove(&kept[at + 1], &kept[at], <size_t> (kept_blocks - at) * sizeof(Kept))
    kept[at] = Kept(header, calls, now)
    kept_blocks += 1
    kept_bytes += header.capacity
    PyThread_release_lock(lock)
    return True


cdef void discard_old() noexcept nogil:
    """Free the blocks that are kept for too long, also while no block is large enough to keep."""
    cdef time_t now
    if not kept_blocks:
        return
    now = time(NULL)
    if now != swept and PyThread_acquire_lock(lock, 0):
        sweep(now)
        PyThread_release_lock(lock)


cdef void sweep(time_t now) noexcept nogil:
    """Free the blocks that are kept for too long."""
    global swept
    cdef int at
    swept = now
    for at in range(kept_blocks - 1, -1, -1):
        if now - kept[at].second > MOST_SECONDS:
            discard(at)


cdef void discard(int at) noexcept nogil:
    """Free a kept block."""
    cdef Header* header = kept[at].header
    forget(at)
    PyMem_RawFree(header)


cdef void forget(int at) noexcept nogil:
    """Remove a block from the list."""
    global kept_blocks, kept_bytes
    kept_bytes -= kept[at].header.capacity
    kept_blocks -= 1
    memmove(&kept[at], &kept[at + 1], <size_t> (kept_blocks - at) * sizeof(Kept))


cdef int first_of(size_t capacity) noexcept nogil:
    """Return the number of the first kept block of at least that capacity."""
    cdef int low = 0, high = kept_blocks, middle
    while low < high:
        middle = (low + high) // 2
        if kept[middle].header.capacity < capacity:
            low = middle + 1
        else:
            high = middle
    return low


# Arrays.


cdef class Memory:
    """Raw memory that is freed with the last array over it."""

    cdef void* p
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.p, self.size, 0, flags)

    def __dealloc__(self):
        pool_free(self.p)


cdef object array_of(uint8_t** p, Py_ssize_t size, object dtype):
    """Return the first `size` bytes at p as an array, set p to NULL, and free the rest."""
    cdef Memory memory
    cdef void* shrunk
    if size == 0:
        return np.empty(0, dtype)
    memory = Memory()
    memory.p = p[0]
    memory.size = size
    p[0] = NULL
    shrunk = pool_realloc(memory.p, <size_t> size)
    if shrunk is not NULL:
        memory.p = shrunk
    return np.frombuffer(memory, dtype)


cdef object new_array(tuple shape, object dtype):
    """Return an array, like ``numpy.empty``."""
    cdef Memory memory
    cdef Py_ssize_t size = np.dtype(dtype).itemsize
    for length in shape:
        size *= length
    if size < LARGE:  # it would not be kept
        discard_old()
        return np.empty(shape, dtype)
    memory = Memory()
    memory.p = pool_realloc(NULL, <size_t> size)
    if memory.p is NULL:
        raise MemoryError
    memory.size = size
    pool_expect(memory.p, <size_t> size, True)
    return np.frombuffer(memory, dtype).reshape(shape)

"""Memory for columns: as realloc and free, but large blocks are kept for the next batch.

A page that is touched for the first time costs more than decoding what fills it, and the allocator
gives large blocks back to the system at once. Blocks that are kept are the system's to take when
it runs short (MADV_FREE).
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

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
    /* Large pages where numpy asks for them, too; below that all pages at once, if they `will` be
       filled. A refusal changes nothing. */
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
    /* What is in these bytes will not be read any more. */
    static void pgwire_may_take(void* p, size_t n) {
    #if defined(__linux__) && defined(MADV_FREE)
        size_t skipped = PGWIRE_PAGE - (size_t) p % PGWIRE_PAGE;
        if (n >= skipped + PGWIRE_PAGE)
            madvise((char*) p + skipped, (n - skipped) / PGWIRE_PAGE * PGWIRE_PAGE, MADV_FREE);
    #endif
        (void) p, (void) n;
    }
    /* Sanitizers see a use after free only in memory that is freed. */
    #if defined(__SANITIZE_ADDRESS__)
    #define PGWIRE_KEEPS 0
    #else
    #define PGWIRE_KEEPS 1
    #endif
    """
    void pgwire_expect(void* p, size_t n, bint will) noexcept nogil
    void pgwire_may_take(void* p, size_t n) noexcept nogil
    bint PGWIRE_KEEPS

cdef enum:
    HEAD = 64  # bytes before each block, which tell its size; keeps it as Arrow wants it aligned
    LARGE = 64 << 10  # bytes from which a block is kept
    MOST_BLOCKS = 512
    MOST_BYTES = 128 << 20  # of all blocks that are kept


cdef struct Head:
    uint64_t room  # bytes behind the head
    bint is_kept  # whether it was kept once: its pages were touched


cdef struct Kept:
    Head* head
    uint64_t age  # when it was kept

cdef Kept kept[MOST_BLOCKS]
cdef int kept_blocks = 0
cdef uint64_t kept_bytes = 0
cdef uint64_t clock = 0
cdef PyThread_type_lock lock = PyThread_allocate_lock()


cdef inline Head* head_of(void* p) noexcept nogil:
    return <Head*> (<uint8_t*> p - HEAD)


cdef inline void* block_of(Head* head) noexcept nogil:
    return <uint8_t*> head + HEAD


cdef void* pool_realloc(void* p, size_t size) noexcept nogil:
    """Give a block of at least so many bytes, with what p holds; NULL, and p as it was, if none.

    p is NULL or a block. Its memory is given back where the block shrinks by much.
    """
    cdef Head* head
    cdef size_t old
    if p == NULL:
        return take(size)
    head = head_of(p)
    old = head.room
    if old - old // 4 <= size <= old or (old < LARGE and size <= old):
        return p
    if old < LARGE or size < old:
        head = <Head*> PyMem_RawRealloc(head, HEAD + size)
        if head == NULL:
            return NULL
        head.room = size
        return block_of(head)
    grown = take(size)
    if grown != NULL:
        memcpy(grown, p, old)
        pool_free(p)
    return grown


cdef void pool_free(void* p) noexcept nogil:
    """Give a block back; p may be NULL."""
    cdef Head* head
    if p == NULL:
        return
    head = head_of(p)
    if head.room < LARGE or not keep(head):
        PyMem_RawFree(head)


cdef void pool_expect(void* p, size_t size, bint will) noexcept nogil:
    """Prepare a block's memory for being written; `will`: all of it."""
    if not head_of(p).is_kept:
        pgwire_expect(p, size, will)


cdef void* take(size_t size) noexcept nogil:
    cdef Head* head = NULL
    if size >= LARGE:
        head = take_kept(size)
    if head == NULL:
        head = <Head*> PyMem_RawMalloc(HEAD + size)
        if head == NULL:
            return NULL
        head.room = size
        head.is_kept = False
    return block_of(head)


cdef Head* take_kept(size_t size) noexcept nogil:
    """Give the smallest kept block that fits, and is not much too large; NULL if there is none."""
    global kept_blocks, kept_bytes
    cdef int at, best = -1
    cdef Head* head = NULL
    # Without waiting: another thread, or a process that was forked, may never release it.
    if not PyThread_acquire_lock(lock, 0):
        return NULL
    for at in range(kept_blocks):
        if size <= kept[at].head.room <= size + size // 4:
            if best < 0 or kept[at].head.room < kept[best].head.room:
                best = at
    if best >= 0:
        head = kept[best].head
        forget(best)
    PyThread_release_lock(lock)
    return head


cdef bint keep(Head* head) noexcept nogil:
    """Keep a block, for which the oldest ones make room; False where it is to be freed."""
    global kept_blocks, kept_bytes, clock
    cdef int at, oldest
    cdef Head* gone
    if not PGWIRE_KEEPS or head.room > MOST_BYTES or not PyThread_acquire_lock(lock, 0):
        return False
    while kept_blocks == MOST_BLOCKS or kept_bytes + head.room > MOST_BYTES:
        oldest = 0
        for at in range(1, kept_blocks):
            if kept[at].age < kept[oldest].age:
                oldest = at
        gone = kept[oldest].head
        forget(oldest)
        PyMem_RawFree(gone)
    head.is_kept = True
    clock += 1
    kept[kept_blocks] = Kept(head, clock)
    kept_blocks += 1
    kept_bytes += head.room
    PyThread_release_lock(lock)
    return True


cdef void forget(int at) noexcept nogil:
    """Take a block off the list."""
    global kept_blocks, kept_bytes
    kept_bytes -= kept[at].head.room
    kept_blocks -= 1
    kept[at] = kept[kept_blocks]


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
    """Give the first `size` bytes at p as an array, and leave p NULL; the rest is given back."""
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
    """Give an array, like ``numpy.empty``."""
    cdef Memory memory
    cdef Py_ssize_t size = np.dtype(dtype).itemsize
    for length in shape:
        size *= length
    if size == 0:
        return np.empty(shape, dtype)
    memory = Memory()
    memory.p = pool_realloc(NULL, <size_t> size)
    if memory.p is NULL:
        raise MemoryError
    memory.size = size
    pool_expect(memory.p, <size_t> size, True)
    return np.frombuffer(memory, dtype).reshape(shape)

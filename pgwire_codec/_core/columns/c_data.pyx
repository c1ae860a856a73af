"""Export of columns through Arrow's C data interface, without copying their buffers.

The counterpart is :mod:`pgwire_codec.reference.c_data`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset

from pgwire_codec._core.kernels.memory cimport pool_free, pool_realloc

from pgwire_codec.arrow.export import import_pyarrow
from pgwire_codec.arrow.layout import without_views

cdef extern from "Python.h":
    bint Py_IsInitialized() noexcept nogil


cdef struct Exported:
    # Before the arrays that an ArrowArray points to, in one block. A consumer may move a child
    # away and release it after its parent: so each array has a block and an owner of its own.
    PyObject* owner  # of the buffers


# Arrays.


def array_capsule(array):
    """Return an array as a capsule; see ``reference.c_data.array_capsule``."""
    cdef ArrowArray* exported = <ArrowArray*> pool_realloc(NULL, sizeof(ArrowArray))
    if exported == NULL:
        raise MemoryError
    memset(exported, 0, sizeof(ArrowArray))
    capsule = PyCapsule_New(exported, "arrow_array", release_capsule)
    export_array(exported, array, False)
    return capsule


def record_batch(array, schema):
    """Return a struct as a record batch; see ``reference.c_data.record_batch``."""
    cdef ArrowArray exported
    memset(&exported, 0, sizeof(ArrowArray))
    try:
        export_array(&exported, array, True)
        return import_record_batch(&exported, schema)
    finally:
        if exported.release != NULL:  # else it was moved
            exported.release(&exported)


cdef import_record_batch(ArrowArray* exported, schema):
    """Move an array into a pyarrow.RecordBatch with that schema."""
    return import_pyarrow().RecordBatch._import_from_c(<uintptr_t> exported, schema)


cdef int export_array(ArrowArray* to, array, bint takes_views) except -1:
    """Fill in an ArrowArray of zeros. After an error it can be released like any other."""
    cdef bint is_view = array.format in ("vu", "vz")
    if is_view and not takes_views:
        array, is_view = without_views(array), False
    cdef list buffers = array.buffers
    cdef Py_ssize_t viewed = len(buffers) - 1 if is_view else 0
    cdef Py_ssize_t n_buffers = 1 + len(buffers) + is_view
    cdef Py_ssize_t n_children = len(array.children)
    cdef Py_ssize_t size = <Py_ssize_t> sizeof(Exported)
    cdef Exported* block
    cdef ArrowArray* child
    cdef int64_t* sizes
    cdef Py_ssize_t at
    size += n_buffers * <Py_ssize_t> sizeof(void*) + viewed * <Py_ssize_t> sizeof(int64_t)
    size += n_children * <Py_ssize_t> (sizeof(ArrowArray*) + sizeof(ArrowArray))
    block = <Exported*> pool_realloc(NULL, <size_t> size)
    if block == NULL:
        raise MemoryError
    memset(block, 0, <size_t> size)
    to.length, to.null_count = array.length, array.null_count
    to.buffers = <const void**> (block + 1)
    sizes = <int64_t*> (to.buffers + n_buffers)
    to.children = <ArrowArray**> (sizes + viewed)
    child = <ArrowArray*> (to.children + n_children)
    Py_INCREF(array)
    block.owner = <PyObject*> array
    to.private_data = block
    to.release = release_array

    to.n_buffers = n_buffers
    if array.validity is not None:
        to.buffers[0] = address(array.validity, NULL)
    for at in range(len(buffers)):
        to.buffers[1 + at] = address(buffers[at], &sizes[at - 1] if 0 < at <= viewed else NULL)
    if is_view:
        to.buffers[n_buffers - 1] = sizes
    for part in array.children:
        to.children[to.n_children] = child
        to.n_children += 1
        export_array(child, part, takes_views)
        child += 1
    return 0


cdef const void* address(buffer, int64_t* size) except? NULL:
    """Return the address of a contiguous array, which the caller keeps, and set its size."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    if size != NULL:
        size[0] = view.len
    PyBuffer_Release(&view)
    return view.buf


# Release: by any thread, with or without the GIL, and even after the interpreter's end.


cdef void release_array(ArrowArray* array) noexcept nogil:
    cdef Exported* block = <Exported*> array.private_data
    cdef int64_t at
    for at in range(array.n_children):
        if array.children[at].release != NULL:  # else it was moved
            array.children[at].release(array.children[at])
    if Py_IsInitialized():
        forget(block.owner)
    pool_free(block)
    array.release = NULL


cdef void forget(PyObject* owner) noexcept with gil:
    Py_XDECREF(owner)


cdef void release_capsule(object capsule) noexcept:
    cdef ArrowArray* exported = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    if exported.release != NULL:  # else a consumer moved it
        exported.release(exported)
    pool_free(exported)

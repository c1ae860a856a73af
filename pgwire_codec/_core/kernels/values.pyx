"""ColumnDecoder, which decodes a column by its kernel, and decode_values.

The fallback for deferred rows is the reference. The counterpart of decode_values is in
:mod:`pgwire_codec.reference.values`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np

from pgwire_codec._core.kernels.arrays cimport array_kernel
from pgwire_codec._core.kernels.calendar cimport fill_years
from pgwire_codec._core.kernels.column cimport (
    BINARY, BLOCK, CLAMPED, NO_VALUE, NULLED, RAISE, TEXT, ColumnBuffers, Deferred, Kernel, Policy,
    Slice, column_borrow, column_clear, column_init, column_reserve, column_run,
    column_validity_size,
)
from pgwire_codec._core.kernels.datetime cimport datetime_kernel
from pgwire_codec._core.kernels.decimal_float cimport fill_powers
from pgwire_codec._core.kernels.floats cimport float_kernel
from pgwire_codec._core.kernels.integers cimport integer_kernel
from pgwire_codec._core.kernels.memory cimport array_of, pool_realloc
from pgwire_codec._core.kernels.numeric cimport numeric_kernel
from pgwire_codec._core.kernels.strings cimport string_kernel
from pgwire_codec._core.kernels.utf8 cimport fill_steps
from pgwire_codec._core.kernels.uuids cimport uuid_kernel
from pgwire_codec._core.protocol cimport STATE_VALUE

from pgwire_codec._core.kernels.patch import patch_rows
from pgwire_codec.arrow.layout import DTYPES, ArrowBuffers
from pgwire_codec.codec.value_buffers import chunks_of, overflow
from pgwire_codec.codec.values import Decoded, ValueProblem
from pgwire_codec.types import element_oid

__all__ = ["ColumnDecoder", "Decoded", "ValueProblem", "decode_values", "has_kernel"]

# Tables that the kernels read.
fill_years()
fill_powers()
fill_steps()

cdef uint8_t NOTHING = 0
UINT8, INT32, INT64 = np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.int64)
NO_ROWS = np.empty(0, INT64)
NO_ROWS.flags.writeable = False  # many columns share it
POLICIES = {"raise": RAISE, "null": NULLED, "clamp": CLAMPED}
cdef frozenset INTEGERS = frozenset(
    ("bool", "int2", "int4", "int8", "uint4", "uint8", "pg_lsn")
)
cdef frozenset TIMES = frozenset(("date", "time", "timestamp", "timestamptz", "interval"))


cpdef bint has_kernel(column_type):
    """Return whether a column of this type is decoded here; the reference decodes any other."""
    cdef str family = column_type.pg.family
    if column_type.format == "+l":
        child = column_type.child
        return child.format != "+l" and child.pg.family != "unknown" and has_kernel(child)
    if column_type.format in ("u", "vu") or family in ("unknown", "bytea", "numeric", "uuid"):
        return True
    return family in INTEGERS or family in TIMES or family in ("float4", "float8")


cdef class Setup:
    pass


cdef dict SETUPS = {}  # by family, Arrow type and whether strings are numerics


cdef Setup setup_of(column_type):
    """Return what `kernel_of` makes of an empty column; None if it depends on more than the type.

    Batches of few rows spend a good part of their time on this.
    """
    cdef str arrow = column_type.format
    cdef Setup setup
    if arrow in ("+l", "vu", "vz"):
        return None
    key = (column_type.pg.family, arrow, column_type.numeric)
    setup = SETUPS.get(key)
    if setup is None:
        setup = Setup()
        column_init(&setup.c)
        setup.c.kernel = kernel_of(&setup.c, column_type, 0)
        SETUPS[key] = setup
    return setup


cdef Kernel kernel_of(ColumnBuffers* c, column_type, Py_ssize_t data_size):
    """Set the column up for a type that `has_kernel` accepts; return its kernel."""
    cdef str family = column_type.pg.family
    cdef str arrow = column_type.format
    if arrow in ("u", "vu") or family in ("unknown", "bytea"):
        return string_kernel(c, family, arrow, column_type.numeric, data_size)
    if arrow == "+l":
        c.child = <ColumnBuffers*> pool_realloc(NULL, sizeof(ColumnBuffers))
        if c.child is NULL:
            raise MemoryError
        column_init(c.child)
        c.child.start = c.start
        c.child.end = c.end
        c.child.policy = c.policy
        c.child.has_offsets = column_type.child.format in ("u", "z")
        c.child.kernel = kernel_of(c.child, column_type.child, data_size)
        if column_reserve(c.child, 1):
            raise MemoryError
        return array_kernel(c, column_type.pg.delimiter, element_oid(column_type))
    if family == "numeric":
        return numeric_kernel(c, arrow)
    if family == "uuid":
        return uuid_kernel(c)
    if family in INTEGERS:
        return integer_kernel(c, family, arrow)
    if family in TIMES:
        return datetime_kernel(c, family, arrow)
    return float_kernel(c, family)


cdef class ColumnDecoder:
    """Decode a column block by block: ``column_run(&decoder.c, slices, n, all_values)``.

    Parameters
    ----------
    column_type : ColumnType
        One that `has_kernel` accepts.
    rows : int
        Number of rows that will be decoded, or a guess.
    data : numpy.ndarray of uint8
        The contiguous array that all slices lie in.
    unrepresentable : {"raise", "null", "clamp"}
        As for ``reference.values.decode_values``.
    place_in : ColumnDecoder, optional
        The decoder that the rows will be appended to. It has the capacity for them, from row
        `first` on, and lives at least as long.
    """

    def __cinit__(self):
        column_init(&self.c)

    def __init__(
        self,
        column_type,
        Py_ssize_t rows,
        data,
        str unrepresentable="raise",
        ColumnDecoder place_in=None,
        Py_ssize_t first=0,
    ):
        cdef Py_buffer view
        cdef Setup setup = setup_of(column_type)
        if self.c.kernel is not NULL:
            raise RuntimeError("a ColumnDecoder cannot be set up twice")
        self.column_type = column_type
        self.data = data
        self.policy = unrepresentable
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        PyBuffer_Release(&view)  # the array keeps the memory
        if setup is not None:
            self.c = setup.c
        # Not NULL even without bytes: memcpy does not accept NULL for an empty value either.
        self.c.start = <const uint8_t*> view.buf if view.len else &NOTHING
        self.c.end = self.c.start + view.len
        self.c.policy = <Policy> <int> POLICIES[unrepresentable]
        self.c.has_offsets = column_type.format in ("u", "z", "+l")
        if setup is None:
            self.c.kernel = kernel_of(&self.c, column_type, view.len)
        if place_in is not None and not self.c.has_offsets:
            column_borrow(&self.c, &place_in.c, first, rows)
        elif column_reserve(&self.c, max(rows, 1)):
            raise MemoryError

    def __dealloc__(self):
        column_clear(&self.c)

    cpdef object finish(self):
        """Return all rows so far as a Decoded, and empty the decoder.

        Raises
        ------
        ValueProblem
            As from ``reference.values.decode_values``, for the first row without a value.
        """
        patch = rows = None
        if self.c.out_of_memory:
            raise MemoryError
        if self.c.deferred_count:
            deferred = array_of(
                <uint8_t**> &self.c.deferred,
                self.c.deferred_count * <Py_ssize_t> sizeof(Deferred),
                DEFERRED_DTYPE,
            )
            rows = deferred["row"]
            patch = self.patch(deferred)
        if self.c.overflow_row >= 0:
            raise overflow(self.c.overflow_row)
        array = array_from(&self.c, self.column_type, self.data)
        invalid = NO_ROWS
        if self.c.invalid_count:
            invalid = array_of(<uint8_t**> &self.c.invalid, self.c.invalid_count * 8, INT64)
        if patch is not None:
            patch_rows(array, rows, patch.array, len(chunks_of(self.data)))
            invalid = np.sort(np.concatenate([invalid, rows[patch.invalid]]))
        column_clear(&self.c)
        return Decoded(array, invalid)

    cdef object patch(self, deferred):
        """Decode the deferred rows by the reference."""
        from pgwire_codec.reference import values as reference
        count = len(deferred)
        try:
            return reference.decode_values(
                self.column_type,
                self.data,
                (deferred["p"] - <size_t> self.c.start).astype(np.int64),
                deferred["length"],
                np.ones(count, np.uint8),
                deferred["form"].astype(np.uint8),
                unrepresentable=self.policy,
            )
        except ValueProblem as problem:
            problem.row = int(deferred["row"][problem.row])
            raise


DEFERRED_DTYPE = np.dtype(
    [("row", np.int64), ("p", np.uintp), ("length", np.int32), ("form", np.int32)]
)
assert DEFERRED_DTYPE.itemsize == sizeof(Deferred)


cdef object array_from(ColumnBuffers* c, column_type, data):
    """Return the memory of the column as Arrow buffers."""
    cdef Py_ssize_t rows = c.length
    cdef str arrow = column_type.format
    if column_type.pg.family == "unknown" and not c.any_binary:
        arrow = arrow.replace("z", "u")
    children = []
    validity = None
    if c.nulls:
        validity = array_of(&c.validity, column_validity_size(c), UINT8)
    if arrow in ("u", "z", "+l"):
        buffers = [array_of(&c.values, (rows + 1) * 4, INT32)]
        if arrow == "+l":
            children.append(array_from(c.child, column_type.child, data))
        else:
            buffers.append(array_of(&c.bytes, c.used, UINT8))
    elif arrow in ("vu", "vz"):
        buffers = [array_of(&c.values, rows * 16, INT32), *chunks_of(data)]
        if c.used:
            buffers.append(array_of(&c.bytes, c.used, UINT8))
    elif arrow == "b":
        buffers = [np.packbits(array_of(&c.values, rows, UINT8), bitorder="little")]
    else:
        buffers = [array_of(&c.values, rows * c.width, DTYPES.get(arrow, UINT8))]
    return ArrowBuffers(
        arrow, rows, c.nulls, validity, buffers, children, [], column_type.extension,
        column_type.numeric,
    )


# Values anywhere in the data.

cdef enum:
    BEFORE = 12  # bytes before a value, as a slice promises


cdef struct Rows:
    const uint8_t* data
    const int64_t* offsets
    const int32_t* lengths
    const uint8_t* state
    const uint8_t* formats


def decode_values(
    column, data, offsets, lengths, state, formats, *, str unrepresentable="raise"
):
    """Read a column's values into Arrow's layout; see ``reference.values.decode_values``."""
    cdef Py_ssize_t count = len(state)
    cdef ColumnDecoder decoder
    cdef Rows rows
    if not has_kernel(column):
        from pgwire_codec.reference import values as reference

        return reference.decode_values(
            column, data, offsets, lengths, state, formats, unrepresentable=unrepresentable
        )
    cdef const uint8_t[::1] states = np.ascontiguousarray(state, np.uint8)
    cdef const uint8_t[::1] forms = np.ascontiguousarray(formats, np.uint8)
    cdef const int64_t[::1] starts = np.ascontiguousarray(offsets, np.int64)
    cdef const int32_t[::1] sizes = np.ascontiguousarray(lengths, np.int32)
    if not len(forms) == len(starts) == len(sizes) == count:
        raise ValueError("offsets, lengths, state and formats differ in length")
    data = np.ascontiguousarray(data, np.uint8)
    values = np.flatnonzero(np.asarray(states) == STATE_VALUE)
    low = starts_within(np.asarray(starts)[values], np.asarray(sizes)[values], len(data))
    if low < BEFORE and not column.format.startswith("v"):
        # No message begins with a value, but here the data may.
        data = np.concatenate([np.zeros(BEFORE, np.uint8), data])
        starts = np.asarray(starts) + BEFORE
    decoder = ColumnDecoder(column, count, data, unrepresentable)
    if count:
        rows = Rows(decoder.c.start, &starts[0], &sizes[0], &states[0], &forms[0])
        with nogil:
            failed = run(decoder, &rows, count)
        if failed:
            raise MemoryError
    return decoder.finish()


cdef object starts_within(starts, sizes, Py_ssize_t end):
    """Return the least offset, after checking that all values lie within the data."""
    if len(starts) == 0:
        return BEFORE
    if starts.min() < 0 or sizes.min() < 0 or (sizes > end - starts).any():
        raise ValueError("a value lies outside the data")
    return starts.min()


cdef int run(ColumnDecoder decoder, const Rows* rows, Py_ssize_t count) noexcept nogil:
    cdef Slice slices[BLOCK]
    cdef Py_ssize_t at = 0, i, n
    cdef bint all_values
    while at < count:
        n = min(count - at, <Py_ssize_t> BLOCK)
        all_values = True
        for i in range(n):
            if rows.state[at + i] == STATE_VALUE:
                slices[i].p = rows.data + rows.offsets[at + i]
                slices[i].length = rows.lengths[at + i]
                slices[i].form = BINARY if rows.formats[at + i] == 1 else TEXT
            else:
                all_values = False
                slices[i].p = rows.data
                slices[i].length = 0
                slices[i].form = NO_VALUE
        if column_run(&decoder.c, slices, n, all_values):
            return -1
        at += n
    return 0

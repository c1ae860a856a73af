"""encode_batch: Arrow columns as messages, the counterpart of :mod:`pgwire_codec.reference.encode`.

A row is written column by column into one growing buffer, without the GIL. The reference writes a
row with a value that is not ordinary, or raises; columns without a writer here it writes first,
value by value.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from pgwire_codec._core.kernels.column cimport DEFERRED
from pgwire_codec._core.kernels.datetime cimport (
    write_date_binary, write_date_text, write_time_binary, write_time_text,
    write_timestamp_binary, write_timestamp_text,
)
from pgwire_codec._core.kernels.floats cimport write_float_binary, write_float_text
from pgwire_codec._core.kernels.integers cimport (
    write_bool_binary, write_bool_text, write_integer_binary, write_integer_text,
)
from pgwire_codec._core.kernels.numeric cimport write_decimal_binary, write_decimal_text
from pgwire_codec._core.kernels.shortest cimport fill_powers, u128
from pgwire_codec._core.kernels.strings cimport write_bytea_text, write_versioned_binary
from pgwire_codec._core.kernels.uuids cimport write_uuid_text
from pgwire_codec._core.kernels.writer cimport (
    NO_MEMORY, WRITTEN, ArrowBuffer, ArrowColumn, Output, Writer, load_i64_native, reserve,
    write_stored_bytes,
)
from pgwire_codec._core.protocol cimport KIND_BINARY, KIND_NULL, KIND_TEXT, KIND_UNCHANGED
from pgwire_codec._core.wire.primitives cimport store_bytes, store_u8, store_u16

import numpy as np

from pgwire_codec.errors import EncodeError
from pgwire_codec.reference import encode as reference
from pgwire_codec.reference.stored_values import BINARIES, STRINGS, stored_values
from pgwire_codec.reference.encode_plan import prepare
from pgwire_codec.reference.families.datetime import UNITS
from pgwire_codec.reference.families.numeric import numeric_digits
from pgwire_codec.types import default_registry

fill_powers()

# Bytes of the integers of a family, the largest, and how far below zero they go.
_INTEGERS = {
    "int2": (2, 2**15 - 1, 2**15),
    "int4": (4, 2**31 - 1, 2**31),
    "int8": (8, 2**63 - 1, 2**63),
    "uint4": (4, 2**32 - 1, 0),
    "reg": (4, 2**32 - 1, 0),
    "uint8": (8, 2**64 - 1, 0),
}
_WIDTHS = {"c": 1, "C": 1, "s": 2, "S": 2, "i": 4, "I": 4, "f": 4, "tts": 4, "ttm": 4}


cdef int write_prepared(const ArrowColumn* v, int64_t row, Output* out) noexcept nogil:
    """Copy a value that the reference wrote, with kind and length; it refused one that is empty."""
    cdef int64_t low = load_i64_native(v.data + 8 * row)
    cdef int64_t length = load_i64_native(v.data + 8 * row + 8) - low
    if length == 0:
        return DEFERRED
    if reserve(out, length):
        return NO_MEMORY
    out.p = store_bytes(out.p, v.bytes + low, length)
    return WRITTEN


cdef class TupleWriter:
    """The columns of a tuple, as the writers read them."""

    cdef ArrowColumn* values
    cdef int count
    cdef uint8_t marker
    cdef list kept  # owns what the pointers point to

    def __cinit__(self, part, each):
        self.count = len(each.sources)
        self.marker = each.marker[0]
        self.kept = []
        self.values = <ArrowColumn*> PyMem_Calloc(max(self.count, 1), sizeof(ArrowColumn))
        if self.values is NULL:
            raise MemoryError()
        for index, source in enumerate(each.sources):
            if source is not None:
                self.fill(&self.values[index], part, source)

    def __dealloc__(self):
        cdef int index
        if self.values is not NULL:
            for index in range(self.count):
                PyMem_Free(self.values[index].buffers)
        PyMem_Free(self.values)

    cdef int fill(self, ArrowColumn* v, part, source) except -1:
        view = source.array.view()
        v.kind = KIND_BINARY if source.binary else KIND_TEXT
        v.start = source.array.offset + source.start
        v.write = self.choose(v, source, view)
        if v.write is NULL:
            self.write_beforehand(v, part, source)
            return 0
        if source.array.null_count:
            v.valid = self.keep(view.buffer(0)).data
        if source.unchanged is not None:
            v.unchanged = self.keep(np.ascontiguousarray(source.unchanged)).data
        return 0

    cdef ArrowBuffer keep(self, buffer) except *:
        """Return the address of a buffer, which is kept alive."""
        cdef const uint8_t[::1] data = np.frombuffer(buffer, np.uint8)
        cdef ArrowBuffer piece
        self.kept.append(data)
        piece.length = data.shape[0]
        piece.data = &data[0] if piece.length else NULL
        return piece

    cdef Writer choose(self, ArrowColumn* v, source, view) except *:
        """Return the writer of the column, and set its parameters; NULL without one."""
        cdef bint binary = source.binary
        family, arrow = source.column.pg.family, source.formats[0]
        if arrow in STRINGS and not binary and source.family.is_text_checked:
            return NULL  # text that has to be checked
        if arrow in STRINGS or arrow in BINARIES or arrow[0] == "w":
            self.strings(v, arrow, view)
            if family == "uuid":
                return write_stored_bytes if binary else write_uuid_text
            if family == "bytea":
                return write_stored_bytes if binary else write_bytea_text
            if binary and source.family.text_prefix:
                return write_versioned_binary
            return write_stored_bytes
        if family == "array" or family == "interval" or family == "pg_lsn":
            return NULL
        v.data = self.keep(view.buffer(1)).data
        v.width = _WIDTHS.get(arrow, 8)
        if family == "numeric":
            return self.decimals(v, source)
        if family in _INTEGERS:
            v.is_signed = arrow.islower()
            v.out_width, v.most, v.least = _INTEGERS[family]
            return write_integer_binary if binary else write_integer_text
        if family == "float4" or family == "float8":
            v.single = family == "float4"
            return write_float_binary if binary else write_float_text
        if family == "bool":
            return write_bool_binary if binary else write_bool_text
        if family == "date":
            return write_date_binary if binary else write_date_text
        v.multiply = max(UNITS[arrow[2]] // 1000, 1)
        v.divide = max(1000 // UNITS[arrow[2]], 1)
        v.with_zone = family == "timestamptz"
        if family == "time":
            return write_time_binary if binary else write_time_text
        return write_timestamp_binary if binary else write_timestamp_text

    cdef int strings(self, ArrowColumn* v, str arrow, view) except -1:
        cdef ArrowBuffer piece = self.keep(view.buffer(1))
        v.data = piece.data
        if arrow[0] == "w":
            v.out_width = int(arrow[2:])
            v.bytes = piece.data
            v.bytes_length = piece.length
        elif arrow[0] == "v":
            v.width = 16
            v.n_buffers = view.n_buffers - 3  # after validity and views; the last contains lengths
            v.buffers = <ArrowBuffer*> PyMem_Calloc(max(v.n_buffers, 1), sizeof(ArrowBuffer))
            if v.buffers is NULL:
                raise MemoryError()
            for index in range(v.n_buffers):
                v.buffers[index] = self.keep(view.buffer(2 + index))
        else:
            v.width = 4 if arrow in "uz" else 8
            piece = self.keep(view.buffer(2))
            v.bytes = piece.data
            v.bytes_length = piece.length
        return 0

    cdef Writer decimals(self, ArrowColumn* v, source) except *:
        parts = source.formats[0][2:].split(",")
        precision, scale = numeric_digits(source.column.typmod)
        # Other widths, and changes of the scale, are rare.
        if len(parts) != 2 or (scale is not None and scale != int(parts[1])):
            return NULL
        v.scale = int(parts[1])
        if precision is not None and precision <= 38:
            limit = 10**precision
            v.limit = (<u128> <uint64_t> (limit >> 64)) << 64 | <uint64_t> (limit & 2**64 - 1)
        return write_decimal_binary if source.binary else write_decimal_text

    cdef int write_beforehand(self, ArrowColumn* v, part, source) except -1:
        """Write the column by the reference."""
        cells = []
        values = stored_values(source.array, source.start, part.rows)
        try:
            for row, value in enumerate(values):
                kind, form = reference.encode_cell(part, source, row, value)
                cells.append(kind if form is None else kind + len(form).to_bytes(4, "big") + form)
        except EncodeError:
            pass  # raised again at the row, unless another column raises before
        offsets = np.zeros(part.rows + 1, np.int64)
        offsets[1:].fill(sum(map(len, cells)))
        np.cumsum([len(cell) for cell in cells], out=offsets[1 : len(cells) + 1])
        v.start = 0
        v.data = self.keep(offsets).data
        v.bytes = self.keep(b"".join(cells)).data
        v.write = write_prepared
        return 0


# Rows.


cdef int write_tuple(
    const ArrowColumn* values, int count, uint8_t marker, int64_t row, Output* out
) noexcept nogil:
    cdef const ArrowColumn* v
    cdef int index, code
    cdef int64_t at
    if reserve(out, 3):
        return NO_MEMORY
    out.p = store_u8(out.p, marker)
    out.p = store_u16(out.p, count)
    for index in range(count):
        v = &values[index]
        at = v.start + row
        if v.unchanged is not NULL and v.unchanged[row]:
            if reserve(out, 1):
                return NO_MEMORY
            out.p = store_u8(out.p, KIND_UNCHANGED)
        elif v.write is NULL or (v.valid is not NULL and not v.valid[at >> 3] >> (at & 7) & 1):
            if reserve(out, 1):
                return NO_MEMORY
            out.p = store_u8(out.p, KIND_NULL)
        else:
            code = v.write(v, at, out)
            if code:
                return code
    return WRITTEN


cdef class MessageBuffer:
    """The growing bytes of the messages; a buffer of bytes once they are complete."""

    cdef Output out

    def __cinit__(self):
        memset(&self.out, 0, sizeof(Output))
        self.add(b"")  # start is not NULL even without messages

    def __dealloc__(self):
        PyMem_RawFree(self.out.start)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.out.start, self.out.p - self.out.start, 1, flags)

    cdef int add(self, bytes data) except -1:
        if reserve(&self.out, PyBytes_GET_SIZE(data) + 1):
            raise MemoryError()
        self.out.p = store_bytes(self.out.p, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return 0

    cdef int shrink(self) except -1:
        """Free the capacity that was not needed."""
        cdef int64_t used = self.out.p - self.out.start
        cdef uint8_t* smaller = <uint8_t*> PyMem_RawRealloc(self.out.start, max(used, 1))
        if smaller is not NULL:
            self.out.start = smaller
            self.out.p = self.out.end = smaller + used
        return 0

    cdef int add_part(self, plan, part, int64_t[::1] ends) except -1:
        """Write the messages of a part, and the end of each."""
        cdef bytes head = plan.head
        cdef TupleWriter first = TupleWriter(part, part.tuples[0])
        cdef TupleWriter second = None
        cdef int64_t row = 0, rows = part.rows
        cdef int code
        if len(part.tuples) == 2:
            second = TupleWriter(part, part.tuples[1])
        while row < rows:
            code = self.add_rows(&row, rows, head, first, second, &ends[0])
            if code == NO_MEMORY:
                raise MemoryError()
            if code == DEFERRED:
                (data,) = reference.encode_rows(plan, part, row, row + 1)
                self.add(data)
                ends[row] = self.out.p - self.out.start
                row += 1
        return 0

    cdef int add_rows(
        self,
        int64_t* row,
        int64_t rows,
        bytes head,
        TupleWriter first,
        TupleWriter second,
        int64_t* ends,
    ) except -1:
        """Write rows up to the first that is not ordinary."""
        cdef Output* out = &self.out
        cdef const char* head_data = PyBytes_AS_STRING(head)
        cdef Py_ssize_t head_length = PyBytes_GET_SIZE(head)
        cdef const ArrowColumn* values = first.values
        cdef int count = first.count
        cdef uint8_t marker = first.marker
        cdef const ArrowColumn* values_2 = NULL if second is None else second.values
        cdef int count_2 = 0 if second is None else second.count
        cdef uint8_t marker_2 = 0 if second is None else second.marker
        cdef int64_t start
        cdef int code = WRITTEN
        with nogil:
            while row[0] < rows:
                start = out.p - out.start
                code = reserve(out, head_length)
                if code == WRITTEN:
                    out.p = store_bytes(out.p, head_data, head_length)
                    code = write_tuple(values, count, marker, row[0], out)
                if code == WRITTEN and values_2 is not NULL:
                    code = write_tuple(values_2, count_2, marker_2, row[0], out)
                if code:
                    out.p = out.start + start
                    break
                ends[row[0]] = out.p - out.start
                row[0] += 1
        return code


def encode_batch(
    relation,
    columns,
    *,
    op="I",
    old=None,
    unchanged=None,
    xid=None,
    binary=False,
    registry=None,
):
    cdef MessageBuffer written = MessageBuffer()
    plan = prepare(
        relation, columns, op, old, unchanged, xid, binary, registry or default_registry
    )
    offsets = np.zeros(sum(part.rows for part in plan.parts) + 1, np.int64)
    for part in plan.parts:
        written.add_part(plan, part, offsets[part.first_row + 1 :])
    written.shrink()
    return reference.to_array(offsets, np.frombuffer(written, np.uint8))


encode_batch.__doc__ = reference.encode_batch.__doc__

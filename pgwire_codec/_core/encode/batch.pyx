"""Encode Arrow columns: the compiled twin of :mod:`pgwire_codec.reference.encode`.

A row is written column by column into one growing buffer, the GIL released. A row with a value
that is not an ordinary one is written by the reference, which raises where it cannot be. Columns
that no writer here is for are written by the reference beforehand, value by value.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from pgwire_codec._core.encode.encode_binary cimport (
    send_bool, send_bytes, send_date, send_decimal, send_float, send_integer, send_time,
    send_timestamp, send_versioned,
)
from pgwire_codec._core.encode.cells cimport (
    HARD, NO_MEMORY, WRITTEN, Out, Piece, Values, Writer, load_i64_native, room,
)
from pgwire_codec._core.encode.encode_text cimport (
    text_bool, text_bytea, text_date, text_decimal, text_float, text_integer, text_time,
    text_timestamp, text_uuid,
)
from pgwire_codec._core.kernels.shortest cimport MAX_POWER, MIN_POWER, Power, u128
from pgwire_codec._core.wire.primitives cimport store_bytes, store_u8, store_u16

import numpy as np

from pgwire_codec.errors import EncodeError
from pgwire_codec.reference import encode as reference
from pgwire_codec.reference.encode_arrow import BINARIES, STRINGS, stored_values
from pgwire_codec.reference.encode_plan import prepare
from pgwire_codec.reference.families.datetime import UNITS
from pgwire_codec.reference.families.numeric import numeric_digits
from pgwire_codec.types import default_registry

# Powers of ten, for floats.

cdef Power POWERS[MAX_POWER - MIN_POWER + 1]


cdef int fill_powers() except -1:
    for k in range(MIN_POWER, MAX_POWER + 1):
        shift = ((k * 1741647) >> 19) - 127
        over, under = 10 ** max(k, 0) << max(-shift, 0), 10 ** max(-k, 0) << max(shift, 0)
        scaled = -(-over // under)
        POWERS[k - MIN_POWER].high = scaled >> 64
        POWERS[k - MIN_POWER].low = scaled & 0xFFFFFFFFFFFFFFFF
    return 0


fill_powers()

# Families, and how wide their integers are: bytes, the most, and how far below zero.
_INTEGERS = {
    "int2": (2, 2**15 - 1, 2**15),
    "int4": (4, 2**31 - 1, 2**31),
    "int8": (8, 2**63 - 1, 2**63),
    "uint4": (4, 2**32 - 1, 0),
    "reg": (4, 2**32 - 1, 0),
    "uint8": (8, 2**64 - 1, 0),
}
_WIDTHS = {"c": 1, "C": 1, "s": 2, "S": 2, "i": 4, "I": 4, "f": 4, "tts": 4, "ttm": 4}


cdef int write_prepared(const Values* v, int64_t row, Out* out) noexcept nogil:
    """Copy what the reference wrote, with kind and length; an empty one it has refused."""
    cdef int64_t low = load_i64_native(v.data + 8 * row)
    cdef int64_t length = load_i64_native(v.data + 8 * row + 8) - low
    if length == 0:
        return HARD
    if room(out, length):
        return NO_MEMORY
    out.p = store_bytes(out.p, v.bytes + low, length)
    return WRITTEN


cdef class Columns:
    """The columns of a tuple of a part, as the writers read them."""

    cdef Values* values
    cdef int count
    cdef uint8_t marker
    cdef list kept  # owns what the pointers point to

    def __cinit__(self, part, each):
        self.count = len(each.sources)
        self.marker = each.marker[0]
        self.kept = []
        self.values = <Values*> PyMem_Calloc(max(self.count, 1), sizeof(Values))
        if self.values is NULL:
            raise MemoryError()
        for index, source in enumerate(each.sources):
            if source is not None:
                self.fill(&self.values[index], part, source)

    def __dealloc__(self):
        cdef int index
        if self.values is not NULL:
            for index in range(self.count):
                PyMem_Free(self.values[index].pieces)
        PyMem_Free(self.values)

    cdef int fill(self, Values* v, part, source) except -1:
        view = source.array.view()
        v.kind = b"b" if source.binary else b"t"
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

    cdef Piece keep(self, buffer) except *:
        """Give where a buffer lies, which is kept."""
        cdef const uint8_t[::1] data = np.frombuffer(buffer, np.uint8)
        cdef Piece piece
        self.kept.append(data)
        piece.length = data.shape[0]
        piece.data = &data[0] if piece.length else NULL
        return piece

    cdef Writer choose(self, Values* v, source, view) except *:
        """Set the parameters of the writer that is for the column, and give it, or NULL."""
        cdef bint binary = source.binary
        family, arrow = source.column.pg.family, source.formats[0]
        if arrow in STRINGS and not binary and source.family.is_text_checked:
            return NULL  # text that is to be checked
        if arrow in STRINGS or arrow in BINARIES or arrow[0] == "w":
            self.strings(v, arrow, view)
            if family == "uuid":
                return send_bytes if binary else text_uuid
            if family == "bytea":
                return send_bytes if binary else text_bytea
            return send_versioned if binary and source.family.text_prefix else send_bytes
        if family == "array" or family == "interval" or family == "pg_lsn":
            return NULL
        v.data = self.keep(view.buffer(1)).data
        v.width = _WIDTHS.get(arrow, 8)
        if family == "numeric":
            return self.decimals(v, source)
        if family in _INTEGERS:
            v.is_signed = arrow.islower()
            v.out_width, v.most, v.least = _INTEGERS[family]
            return send_integer if binary else text_integer
        if family == "float4" or family == "float8":
            v.single = family == "float4"
            v.powers = POWERS
            return send_float if binary else text_float
        if family == "bool":
            return send_bool if binary else text_bool
        if family == "date":
            return send_date if binary else text_date
        v.multiply = max(UNITS[arrow[2]] // 1000, 1)
        v.divide = max(1000 // UNITS[arrow[2]], 1)
        v.with_zone = family == "timestamptz"
        if family == "time":
            return send_time if binary else text_time
        return send_timestamp if binary else text_timestamp

    cdef int strings(self, Values* v, str arrow, view) except -1:
        cdef Piece piece = self.keep(view.buffer(1))
        v.data = piece.data
        if arrow[0] == "w":
            v.out_width = int(arrow[2:])
            v.bytes = piece.data
            v.bytes_length = piece.length
        elif arrow[0] == "v":
            v.width = 16
            v.n_pieces = view.n_buffers - 3  # behind validity and views; the last has lengths
            v.pieces = <Piece*> PyMem_Calloc(max(v.n_pieces, 1), sizeof(Piece))
            if v.pieces is NULL:
                raise MemoryError()
            for index in range(v.n_pieces):
                v.pieces[index] = self.keep(view.buffer(2 + index))
        else:
            v.width = 4 if arrow in "uz" else 8
            piece = self.keep(view.buffer(2))
            v.bytes = piece.data
            v.bytes_length = piece.length
        return 0

    cdef Writer decimals(self, Values* v, source) except *:
        parts = source.formats[0][2:].split(",")
        precision, scale = numeric_digits(source.column.typmod)
        # Other widths, and scales to be changed, are rare.
        if len(parts) != 2 or (scale is not None and scale != int(parts[1])):
            return NULL
        v.scale = int(parts[1])
        if precision is not None and precision <= 38:
            limit = 10**precision
            v.limit = (<u128> <uint64_t> (limit >> 64)) << 64 | <uint64_t> (limit & 2**64 - 1)
        return send_decimal if source.binary else text_decimal

    cdef int write_beforehand(self, Values* v, part, source) except -1:
        """Let the reference write the column."""
        cells = []
        values = stored_values(source.array, source.start, part.rows)
        try:
            for row, value in enumerate(values):
                kind, form = reference.encode_cell(part, source, row, value)
                cells.append(kind if form is None else kind + len(form).to_bytes(4, "big") + form)
        except EncodeError:
            pass  # raised again at the row, unless another column's comes first
        offsets = np.zeros(part.rows + 1, np.int64)
        offsets[1:].fill(sum(map(len, cells)))
        np.cumsum([len(cell) for cell in cells], out=offsets[1 : len(cells) + 1])
        v.start = 0
        v.data = self.keep(offsets).data
        v.bytes = self.keep(b"".join(cells)).data
        v.write = write_prepared
        return 0


# Rows.


cdef int write_tuple(const Values* values, int count, uint8_t marker, int64_t row, Out* out) \
        noexcept nogil:
    cdef const Values* v
    cdef int index, code
    cdef int64_t at
    if room(out, 3):
        return NO_MEMORY
    out.p = store_u8(out.p, marker)
    out.p = store_u16(out.p, count)
    for index in range(count):
        v = &values[index]
        at = v.start + row
        if v.unchanged is not NULL and v.unchanged[row]:
            if room(out, 1):
                return NO_MEMORY
            out.p = store_u8(out.p, b"u")
        elif v.write is NULL or (v.valid is not NULL and not v.valid[at >> 3] >> (at & 7) & 1):
            if room(out, 1):
                return NO_MEMORY
            out.p = store_u8(out.p, b"n")
        else:
            code = v.write(v, at, out)
            if code:
                return code
    return WRITTEN


cdef class Written:
    """The messages' bytes, which grow; a buffer of bytes once they are all there."""

    cdef Out out

    def __cinit__(self):
        memset(&self.out, 0, sizeof(Out))
        self.add(b"")  # not even no messages lie nowhere

    def __dealloc__(self):
        PyMem_RawFree(self.out.start)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.out.start, self.out.p - self.out.start, 1, flags)

    cdef int add(self, bytes data) except -1:
        if room(&self.out, PyBytes_GET_SIZE(data) + 1):
            raise MemoryError()
        self.out.p = store_bytes(self.out.p, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return 0

    cdef int shrink(self) except -1:
        """Give back what was not needed."""
        cdef int64_t used = self.out.p - self.out.start
        cdef uint8_t* smaller = <uint8_t*> PyMem_RawRealloc(self.out.start, max(used, 1))
        if smaller is not NULL:
            self.out.start = smaller
            self.out.p = self.out.end = smaller + used
        return 0

    cdef int add_part(self, plan, part, int64_t[::1] ends) except -1:
        """Write the part's messages, and where each ends."""
        cdef bytes head = plan.head
        cdef Columns first = Columns(part, part.tuples[0])
        cdef Columns second = Columns(part, part.tuples[1]) if len(part.tuples) == 2 else None
        cdef int64_t row = 0, rows = part.rows
        cdef int code
        while row < rows:
            code = self.add_rows(&row, rows, head, first, second, &ends[0])
            if code == NO_MEMORY:
                raise MemoryError()
            if code == HARD:
                (data,) = reference.encode_rows(plan, part, row, row + 1)
                self.add(data)
                ends[row] = self.out.p - self.out.start
                row += 1
        return 0

    cdef int add_rows(
        self, int64_t* row, int64_t rows, bytes head, Columns first, Columns second, int64_t* ends
    ) except -1:
        """Write rows up to the first that is not ordinary, which is left out."""
        cdef Out* out = &self.out
        cdef const char* head_data = PyBytes_AS_STRING(head)
        cdef Py_ssize_t head_length = PyBytes_GET_SIZE(head)
        cdef const Values* values = first.values
        cdef int count = first.count
        cdef uint8_t marker = first.marker
        cdef const Values* values_2 = NULL if second is None else second.values
        cdef int count_2 = 0 if second is None else second.count
        cdef uint8_t marker_2 = 0 if second is None else second.marker
        cdef int64_t start
        cdef int code = WRITTEN
        with nogil:
            while row[0] < rows:
                start = out.p - out.start
                code = room(out, head_length)
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
    cdef Written written = Written()
    plan = prepare(
        relation, columns, op, old, unchanged, xid, binary, registry or default_registry
    )
    offsets = np.zeros(sum(part.rows for part in plan.parts) + 1, np.int64)
    for part in plan.parts:
        written.add_part(plan, part, offsets[part.first_row + 1 :])
    written.shrink()
    return reference.to_array(offsets, np.frombuffer(written, np.uint8))


encode_batch.__doc__ = reference.encode_batch.__doc__

"""change_batch: a record batch of ordinary changes in one step, without an object a column.

The counterpart, for batches of any kind, is :mod:`pgwire_codec.changes.record_batch`. Small batches
spend their time on objects: here columns and metadata columns are written where Arrow takes them.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

import numpy as np

from pgwire_codec._core.columns.c_arrays cimport (
    BITS, FIXED, OFFSETS, Buffers, export_column, export_struct, new_memory, pack_bits,
)
from pgwire_codec._core.columns.c_data cimport ArrowArray, export_array, import_record_batch
from pgwire_codec._core.columns.columns cimport (
    NO_MEMORY, TRUNCATED, decode_blocks, unchanged_of,
)
from pgwire_codec._core.columns.metadata cimport RowMetadata
from pgwire_codec._core.columns.slices cimport (
    Slices, add_wanted, append_unchanged, close_slices, open_slices,
)
from pgwire_codec._core.kernels.column cimport (
    BLOCK, MAX_BYTES, ColumnBuffers, Policy, column_append, column_borrow, column_clear,
    column_reserve,
)
from pgwire_codec._core.kernels.memory cimport pool_free, pool_realloc
from pgwire_codec._core.kernels.values cimport POLICIES, Setup, has_kernel, setup_of
from pgwire_codec._core.protocol cimport MARKER_KEY
from pgwire_codec._core.wire.tuple_data cimport CURRENT, OLD, TupleSource

from pgwire_codec._core.columns.metadata import name_lists, strings_at
from pgwire_codec._core.shares import in_threads, shares_of
from pgwire_codec.arrow.layout import shared_nulls

INT64 = np.dtype(np.int64)

cdef enum:
    METADATA = 8  # columns from _op to _unchanged
    MOST_SHARES = 64

# Plans.


cdef class Selection:
    """Columns that are decoded: their numbers, and their kernels' setups."""

    cdef Py_ssize_t count
    cdef list numbers
    cdef list setups
    cdef list layouts
    cdef readonly bint is_ordinary  # whether all have a kernel and a layout that is known here

    def __init__(self, columns):
        self.numbers = [number for number, _ in columns]
        self.count = len(self.numbers)
        self.setups, self.layouts = [], []
        self.is_ordinary = len(set(self.numbers)) == self.count
        for _, kind in columns:
            setup = setup_of(kind) if has_kernel(kind) and kind.pg.family != "unknown" else None
            self.setups.append(setup)
            self.layouts.append(
                BITS if kind.format == "b" else OFFSETS if kind.format in ("u", "z") else FIXED
            )
            self.is_ordinary &= setup is not None


cdef class Compiled:
    """A RecordPlan in the form that is read here."""

    cdef Selection current, before
    cdef bint is_ordinary
    cdef bint reads_old  # whether old tuples are wanted
    cdef list key  # places of the key's columns in `before`

    def __init__(self, plan):
        self.current, self.before = Selection(plan.current.columns), Selection(plan.before.columns)
        self.reads_old = plan.option_before != "none"
        self.key = plan.key
        self.is_ordinary = self.current.is_ordinary and self.before.is_ordinary


# Columns.


cdef class Columns:
    """The columns of one tuple a row."""

    cdef ColumnBuffers* c
    cdef Py_ssize_t count  # of those that were set up
    cdef Slices slices
    cdef uint8_t* marker
    cdef Selection selection

    def __cinit__(self, Selection selection, Py_ssize_t width, Py_ssize_t rows):
        cdef Py_ssize_t size = selection.count * <Py_ssize_t> sizeof(ColumnBuffers)
        memset(&self.slices, 0, sizeof(Slices))
        self.selection = selection
        self.marker = <uint8_t*> pool_realloc(NULL, <size_t> max(rows, 1))
        self.c = <ColumnBuffers*> pool_realloc(NULL, <size_t> max(size, 1))
        if self.marker is NULL or self.c is NULL:
            raise MemoryError
        if open_slices(&self.slices, width, selection.count):
            raise MemoryError
        memset(self.marker, 0, <size_t> rows)
        self.slices.marker = self.marker

    def __dealloc__(self):
        cdef Py_ssize_t at
        for at in range(self.count):
            column_clear(&self.c[at])
        pool_free(self.c)
        pool_free(self.marker)
        close_slices(&self.slices)

    cdef int open(
        self, const TupleSource* source, Policy policy, Columns whole=None, Py_ssize_t first=0
    ) except -1:
        """Set the columns up for the rows of a source.

        Those of a share of the rows write what has a fixed width into the `whole` columns, from row
        `first` on: these must outlive them.
        """
        cdef ColumnBuffers* c
        cdef Setup setup
        cdef Py_ssize_t at, number
        for at in range(self.selection.count):
            c = &self.c[at]
            setup = self.selection.setups[at]
            number = self.selection.numbers[at]
            if not 0 <= number < self.slices.columns:
                raise IndexError(f"column {number} of {self.slices.columns}")
            c[0] = setup.c
            self.count += 1
            c.start, c.end = source.data, source.data + source.size
            c.policy = policy
            c.has_offsets = self.selection.layouts[at] == OFFSETS
            if whole is not None and not c.has_offsets:
                column_borrow(c, &whole.c[at], first, source.count)
            elif column_reserve(c, source.count):
                raise MemoryError
            add_wanted(&self.slices, number, c)
        return 0

    cdef bint decode(self, TupleSource* source, int which) except -1:
        """Decode the rows of a source; return False if any value, or message, is not ordinary."""
        cdef ColumnBuffers* c
        cdef Py_ssize_t at
        cdef int code
        with nogil:
            code = decode_blocks(source, &self.slices, which)
        if code == NO_MEMORY:
            raise MemoryError
        if code == TRUNCATED:
            return False
        for at in range(self.count):
            c = &self.c[at]
            if c.out_of_memory:
                raise MemoryError
            if c.deferred_count or c.invalid_count or c.overflow_row >= 0:
                return False
        return True

    cdef bint have_key(self, list key, Py_ssize_t rows) except -1:
        """Return False if a key tuple may lack a column of the key.

        `key` has the places of its columns.
        """
        cdef Py_ssize_t row, keys = 0, absent = 0
        for row in range(rows):
            keys += self.marker[row] == MARKER_KEY
            absent += self.marker[row] == 0
        if not keys:
            return True
        for at in key:
            if self.c[<Py_ssize_t> at].nulls > absent:
                return False
        return True

    cdef int append_columns(self, Columns share, Py_ssize_t first, Py_ssize_t step) except -1:
        """Append the values of a share's rows, of each `step`th column from `first` on."""
        cdef Py_ssize_t at = first
        cdef int failed = 0
        with nogil:
            while at < self.count:
                failed |= column_append(&self.c[at], &share.c[at])
                at += step
        if failed:
            raise MemoryError
        return 0

    cdef int append_tuples(self, Columns share, Py_ssize_t first, Py_ssize_t rows) except -1:
        """Append which rows of a share have a tuple, and unchanged values, from row `first` on."""
        with nogil:
            memcpy(self.marker + first, share.marker, <size_t> rows)
            append_unchanged(&self.slices, &share.slices, first)
        if self.slices.out_of_memory:
            raise MemoryError
        return 0

    cdef int export(self, ArrowArray** children) except -1:
        """Move the columns into arrays."""
        cdef Py_ssize_t at
        for at in range(self.count):
            export_column(children[at], &self.c[at], self.selection.layouts[at])
        return 0


cdef class Shares:
    """Shares of the rows, which threads decode at the same time."""

    cdef list columns  # of each share; those of the first take in the others
    cdef list edges
    cdef TupleSource[MOST_SHARES] sources
    cdef int which

    def __init__(self, Columns whole, list edges):
        self.columns = [whole]
        self.edges = edges

    cdef int open(
        self, const TupleSource* source, int which, Policy policy, Py_ssize_t width
    ) except -1:
        """Set up the columns of each share; those of the first have room for all rows."""
        cdef Columns whole = self.columns[0], share
        cdef Py_ssize_t number, first
        self.which = which
        for number in range(len(self.edges) - 1):
            first = self.edges[number]
            self.sources[number] = source[0]
            self.sources[number].rows += first
            self.sources[number].bodies += first
            self.sources[number].count = self.edges[number + 1] - first
            if number:
                share = Columns(whole.selection, width, self.sources[number].count)
                share.open(&self.sources[number], policy, whole, first)
                self.columns.append(share)
        return 0

    def decode(self, Py_ssize_t number):
        """Decode a share; return False if anything in it is not ordinary."""
        cdef Columns share = self.columns[number]
        return share.decode(&self.sources[number], self.which)

    cdef bint join(self) except -1:
        """Append the shares to the first; return whether any has an old tuple."""
        cdef Columns whole = self.columns[0]
        cdef Py_ssize_t number
        cdef bint any_old = self.sources[0].any_old
        in_threads(self.join_columns, len(self.columns))
        for number in range(1, len(self.columns)):
            rows = self.sources[number].count
            whole.append_tuples(self.columns[number], self.edges[number], rows)
            any_old |= self.sources[number].any_old
        return any_old

    def join_columns(self, Py_ssize_t first):
        """Append some of the columns: one, and each after as many as there are shares."""
        cdef Columns whole = self.columns[0]
        cdef Py_ssize_t number, count = len(self.columns)
        for number in range(1, count):
            whole.append_columns(self.columns[number], first, count)


# The batch.


def change_batch(
    source, rows, seq, transactions, transaction, plan, *,
    str unrepresentable="raise", Py_ssize_t threads=1,
):
    """Return the record batch of ordinary changes; see ``reference.change_batch``."""
    cdef Compiled compiled = plan.compiled
    cdef Changes changes
    cdef RowMetadata metadata
    cdef Policy policy
    cdef ArrowArray exported
    if compiled is None:
        compiled = plan.compiled = Compiled(plan)
    if not (compiled.is_ordinary and len(rows) and len(source.messages.data)):
        return None
    if threads > 1 and len(source.messages.data) <= MAX_BYTES:  # which Arrow's offsets address
        edges = shares_of(len(rows), min(threads, MOST_SHARES), BLOCK)
    else:
        edges = [0, len(rows)]
    if not len(seq) == len(transaction) == len(rows):
        raise ValueError(f"{len(rows)} rows, but {len(seq)} numbers of changes")
    changes = Changes(source, rows)
    policy = <Policy> <int> POLICIES[unrepresentable]
    if not changes.decode(compiled, plan.width, policy, edges):
        return None
    memset(&exported, 0, sizeof(ArrowArray))
    try:
        metadata = RowMetadata(source, rows, seq, transactions, transaction, edges)
        changes.export(&exported, plan, metadata, transactions, transaction, edges)
        return import_record_batch(&exported, plan.fixed_schema)
    finally:
        if exported.release != NULL:  # else it was moved
            exported.release(&exported)


cdef class Changes:
    """Changes of one Relation version, and their decoded columns."""

    cdef const uint8_t[::1] data
    cdef const int64_t[::1] offsets
    cdef const uint8_t[::1] kind
    cdef const int64_t[::1] body
    cdef const int64_t[::1] rows
    cdef int64_t* bodies  # of the rows
    cdef TupleSource source
    cdef Columns current, before

    def __cinit__(self, source, rows):
        cdef Py_ssize_t row, count
        cdef int64_t index
        self.data, self.offsets = source.messages.data, source.messages.offsets
        self.kind, self.body = source.kind, source.body
        self.rows = rows
        self.bodies = <int64_t*> pool_realloc(NULL, self.rows.shape[0] * sizeof(int64_t))
        if self.bodies is NULL:
            raise MemoryError
        count = min(self.body.shape[0], self.kind.shape[0])
        with nogil:
            for row in range(self.rows.shape[0]):
                index = self.rows[row]
                if not 0 <= index < count:
                    break
                self.bodies[row] = self.body[index]
            else:
                row = self.rows.shape[0]
        if row < self.rows.shape[0]:
            raise IndexError(f"message {self.rows[row]} of {count}")
        self.source = TupleSource(
            &self.data[0], self.data.shape[0], &self.offsets[0], self.offsets.shape[0] - 1,
            &self.rows[0], self.bodies, self.rows.shape[0], False,
        )

    def __dealloc__(self):
        pool_free(self.bodies)

    cdef bint decode(
        self, Compiled compiled, Py_ssize_t width, Policy policy, list edges
    ) except -1:
        """Decode the columns; return False if any change is not ordinary.

        `edges` are those of the shares of the rows.
        """
        cdef Py_ssize_t rows = self.source.count
        self.current = Columns(compiled.current, width, rows)
        if not self.decode_tuples(self.current, CURRENT, width, policy, edges):
            return False
        if not compiled.reads_old or not self.source.any_old:
            return True
        if not compiled.key:  # so the old tuple is the key of a partition
            return False
        self.before = Columns(compiled.before, width, rows)
        if not self.decode_tuples(self.before, OLD, width, policy, edges):
            return False
        return self.before.have_key(compiled.key, rows)

    cdef bint decode_tuples(
        self, Columns columns, int which, Py_ssize_t width, Policy policy, list edges
    ) except -1:
        """Decode the columns of the old or the current tuples."""
        cdef Shares shares
        columns.open(&self.source, policy)
        if len(edges) == 2:
            return columns.decode(&self.source, which)
        shares = Shares(columns, edges)
        shares.open(&self.source, which, policy, width)
        if not all(in_threads(shares.decode, len(edges) - 1)):
            return False
        self.source.any_old |= shares.join()
        return True

    cdef int export(
        self, ArrowArray* to, plan, RowMetadata metadata, transactions, transaction, list edges
    ) except -1:
        """Move the columns and the metadata columns into a struct."""
        cdef Py_ssize_t rows = self.source.count
        cdef ArrowArray** next_child
        export_struct(to, rows, len(plan.names))
        self.current.export(to.children)
        next_child = to.children + self.current.count
        metadata.open(next_child)
        in_threads(metadata.fill, len(edges) - 1)
        export_array(next_child[6], strings_at(transactions.origin, transaction), True)
        export_array(next_child[7], self.unchanged(plan), True)
        next_child += METADATA
        if plan.before.names:
            if self.before is None:
                export_array(next_child[0], plan.null_before(rows), True)
            else:
                self.export_before(next_child[0])
            next_child += 1
        if plan.names_invalid:
            export_array(next_child[0], shared_nulls("+l", rows), True)
        return 0

    cdef unchanged(self, plan):
        """Return the names of the unchanged columns of each row."""
        if not self.current.slices.unchanged_count:
            return shared_nulls("+l", self.source.count)
        rows_of = unchanged_of(&self.current.slices)
        return name_lists(
            [rows_of[number] for number in plan.all_numbers], plan.all_names, self.source.count
        )

    cdef int export_before(self, ArrowArray* to) except -1:
        """Write a struct of the old tuple's columns, which is null without an old tuple."""
        cdef Py_ssize_t rows = self.source.count
        cdef Py_ssize_t row, nulls = 0
        cdef const uint8_t* marker = self.before.marker
        cdef uint8_t* bits
        for row in range(rows):
            nulls += not marker[row]
        export_struct(to, rows, self.before.count)
        if nulls:
            bits = <uint8_t*> new_memory(<Buffers*> to.private_data, 0, (rows + 7) >> 3)
            pack_bits(bits, marker, rows)
            to.null_count = nulls
        return self.before.export(to.children)

"""runs: runs of plain transactions, stream blocks, and the changes of each relation.

The counterpart is :mod:`pgwire_codec.reference.runs`.
Changes, Begins and Commits are read without the GIL and without an object each. Python sees a
message only if ``scan`` decoded it, and each run, block and (sub)transaction of a block once.
"""

from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

import numpy as np

from pgwire_codec._core.kernels.memory cimport new_array
from pgwire_codec._core.protocol cimport (
    BEGIN, BEGIN_FINAL_LSN, BEGIN_SIZE, BEGIN_XID, COMMIT, COMMIT_COMMIT_LSN, COMMIT_COMMIT_TIME,
    COMMIT_END_LSN, COMMIT_SIZE, DELETE, EPOCH, INSERT, MESSAGE, ORIGIN, RELATION, STREAM_START,
    STREAM_START_FIRST_SEGMENT, STREAM_START_SIZE, STREAM_START_XID, STREAM_STOP, TRUNCATE, TYPE,
    UPDATE,
)
from pgwire_codec._core.wire.primitives cimport load_i64, load_u32, load_u64
from pgwire_codec._core.wire.relation_groups cimport (
    Group, RelationGroups, end_group, end_groups, free_groups, group_of, init_groups,
)
from pgwire_codec._core.wire.tuple_data cimport pgwire_prefetch

from pgwire_codec.codec.runs import PlainRun, PlainTransactions, RelationGroup, Runs, StreamBlock
from pgwire_codec.protocol.messages import Message, Origin, Relation, Truncate


INT32, INT64, UINT32 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint32)


cdef enum Place:
    # Place of the next message.
    OUTSIDE
    INSIDE  # in a plain transaction
    BETWEEN  # two transactions of a run
    BLOCK  # in a stream block

cdef enum Event:
    # Why the loop returns to Python.
    END
    RARE  # a message that scan() decoded
    RUN_BEGINS
    RUN_ENDS
    BLOCK_BEGINS
    BLOCK_ENDS
    OTHER_XID  # the next change is of another subtransaction
    OUT_OF_MEMORY
    NOT_SCANNED


cdef enum:
    # Fields of a transaction.
    COMMIT_LSN = 0
    END_LSN
    COMMIT_TIME
    BEGIN_INDEX
    FIRST_ROW
    CHANGES
    FIELDS  # number of them


cdef enum:
    MESSAGES_AHEAD = 11  # of the one that is prefetched: small transactions gain by it


cdef class RunReader:
    """State of one pass over the messages."""
    # Input.
    cdef dict decoded
    cdef const uint8_t[::1] data
    cdef const int64_t[::1] offsets
    cdef const uint8_t[::1] kinds
    cdef const uint32_t[::1] relations
    cdef const uint32_t[::1] xids
    cdef const int16_t[::1] widths
    cdef Py_ssize_t count
    cdef Py_ssize_t index  # of the next message
    # The rows, and the groups that they belong to.
    cdef object row_array, group_array
    cdef int64_t[::1] rows
    cdef int32_t[::1] group
    cdef Py_ssize_t row  # number of rows so far
    cdef RelationGroups groups
    # The plain transactions.
    cdef object xid_array, field_array
    cdef uint32_t[::1] xid
    cdef int64_t[:, ::1] fields
    cdef Py_ssize_t transaction  # number of them so far
    cdef uint64_t final_lsn  # of the last, whole or open
    # The run or the block that is open.
    cdef Place place
    cdef Py_ssize_t run_first  # number of the run's first transaction
    cdef int64_t run_stop  # after the Commit of its last
    cdef Py_ssize_t kept  # number of `others` that came before that Commit
    cdef Py_ssize_t other_count
    cdef list others
    cdef int64_t block_start
    cdef Py_ssize_t block_row
    cdef int64_t block_messages
    cdef uint32_t last_xid
    cdef dict first
    cdef list segments

    def __cinit__(self):
        if not init_groups(&self.groups):
            raise MemoryError

    def __init__(self, messages, table, begun):
        cdef Py_ssize_t rows = 0
        cdef Py_ssize_t commits = 0
        cdef Py_ssize_t index
        self.decoded = table.decoded
        self.data = messages.data
        self.offsets = messages.offsets
        self.kinds = table.kind
        self.relations = table.relation
        self.xids = table.xid
        self.widths = table.width
        self.count = self.kinds.shape[0]
        if not (
            self.offsets.shape[0] - 1 == self.count == self.relations.shape[0]
            == self.xids.shape[0] == self.widths.shape[0]
        ):
            raise ValueError("the table must be that of the messages")
        with nogil:
            for index in range(self.count):
                rows += is_change(self.kinds[index])
                commits += self.kinds[index] == COMMIT
        for message in self.decoded.values():
            if isinstance(message, Truncate):
                rows += len(message.relation_oids)
        commits += 1  # the last may be without its Commit
        self.row_array = new_array((rows,), INT64)
        self.group_array = new_array((rows,), INT32)
        self.xid_array = new_array((commits,), UINT32)
        self.field_array = new_array((FIELDS, commits), INT64)
        self.rows = self.row_array
        self.group = self.group_array
        self.xid = self.xid_array
        self.fields = self.field_array
        self.place = OUTSIDE
        self.segments = []
        self.others = []
        self.first = {}
        if begun is not None:
            self.xid[0] = begun.xid
            self.fields[BEGIN_INDEX, 0] = -1
            self.fields[FIRST_ROW, 0] = -begun.changes
            self.final_lsn = begun.final_lsn
            self.place = INSIDE

    def __dealloc__(self):
        free_groups(&self.groups)

    cdef read(self):
        """Read all messages into `segments` and the arrays."""
        cdef Event event
        while True:
            with nogil:
                event = self.advance()
            if event == END:
                return
            elif event == RARE:
                self.rare(self.decoded[self.index])
                self.index += 1
            elif event == RUN_BEGINS:
                self.others = []
                self.other_count = self.kept = 0
            elif event == RUN_ENDS:
                self.end_run()
            elif event == BLOCK_BEGINS:
                self.others = []
                self.first = {}
            elif event == BLOCK_ENDS:
                self.end_block()
            elif event == OTHER_XID:
                self.begin_xid(self.last_xid)
            elif event == OUT_OF_MEMORY:
                raise MemoryError
            else:
                raise ValueError("the table must be that of the messages")

    cdef result(self):
        fields = self.field_array[:, :self.transaction]
        lsns = fields.view(np.uint64)
        return Runs(
            self.row_array,
            self.group_array,
            [
                RelationGroup(group.relation, group.first, group.narrowest, group.widest)
                for group in self.groups.groups[:self.groups.count]
            ],
            PlainTransactions(
                xid=self.xid_array[:self.transaction],
                commit_lsn=lsns[COMMIT_LSN],
                end_lsn=lsns[END_LSN],
                commit_time=fields[COMMIT_TIME],
                begin=fields[BEGIN_INDEX],
                first_row=fields[FIRST_ROW],
                changes=fields[CHANGES],
            ),
            self.segments,
        )

    # Messages.

    cdef Event advance(self) noexcept nogil:
        """Read on to the next event."""
        cdef uint8_t tag
        cdef Event event
        while self.index < self.count:
            tag = self.kinds[self.index]
            if is_change(tag):
                if self.place == BETWEEN:
                    return RUN_ENDS
                event = self.read_changes()
            elif is_rare(tag):
                return RARE
            elif tag == BEGIN:
                event = self.read_begin()
            elif tag == COMMIT:
                event = self.read_commit()
            else:
                event = self.read_boundary(tag)
            if event != END:
                return event
        return RUN_ENDS if self.is_run_open() else END

    cdef Event read_changes(self) noexcept nogil:
        """Take changes, up to another message or, in a block, another (sub)transaction."""
        # Pointers, so that not every row loads the addresses of the arrays.
        cdef const uint8_t* kinds = &self.kinds[0]
        cdef const uint32_t* relations = &self.relations[0]
        cdef const uint32_t* xids = &self.xids[0]
        cdef const int16_t* widths = &self.widths[0]
        cdef int64_t* rows = &self.rows[0]
        cdef int32_t* numbers = &self.group[0]
        cdef Py_ssize_t index = self.index
        cdef Py_ssize_t row = self.row
        cdef bint block = self.place == BLOCK
        cdef Event event = END
        cdef int32_t number
        cdef Group* group
        while index < self.count and is_change(kinds[index]):
            if block and xids[index] != self.last_xid:
                self.last_xid = xids[index]
                event = OTHER_XID
                break
            number = group_of(&self.groups, relations[index], index)
            if number < 0:
                return OUT_OF_MEMORY
            rows[row] = index
            numbers[row] = number
            row += 1
            group = &self.groups.groups[number]
            if widths[index] < group.narrowest:
                group.narrowest = widths[index]
            if widths[index] > group.widest:
                group.widest = widths[index]
            index += 1
        self.index = index
        self.row = row
        return event

    cdef Event read_begin(self) noexcept nogil:
        cdef const uint8_t* p = self.message(BEGIN_SIZE)
        cdef uint64_t final_lsn
        if p == NULL:
            return NOT_SCANNED
        if self.place == INSIDE and self.is_run_open():
            return RUN_ENDS
        final_lsn = load_u64(p + BEGIN_FINAL_LSN)
        if self.place == BETWEEN and final_lsn <= self.final_lsn:
            return RUN_ENDS
        self.xid[self.transaction] = load_u32(p + BEGIN_XID)
        self.fields[BEGIN_INDEX, self.transaction] = self.index
        self.fields[FIRST_ROW, self.transaction] = self.row
        self.final_lsn = final_lsn
        self.index += 1
        pgwire_prefetch(<const void*> (
            <size_t> &self.data[0]
            + <size_t> self.offsets[min(self.index + MESSAGES_AHEAD, self.count)]
        ))
        if self.place == BETWEEN:
            self.place = INSIDE
            return END
        self.place = INSIDE
        self.run_first = self.transaction
        end_groups(&self.groups)
        return RUN_BEGINS

    cdef Event read_commit(self) noexcept nogil:
        cdef const uint8_t* p = self.message(COMMIT_SIZE)
        cdef Py_ssize_t number = self.transaction
        cdef int64_t time
        if p == NULL:
            return NOT_SCANNED
        if self.place != INSIDE or load_u64(p + COMMIT_COMMIT_LSN) != self.final_lsn:
            if self.is_run_open():
                return RUN_ENDS
            self.place = OUTSIDE
            self.index += 1
            return END
        time = load_i64(p + COMMIT_COMMIT_TIME)
        self.fields[COMMIT_LSN, number] = <int64_t> self.final_lsn
        self.fields[END_LSN, number] = load_i64(p + COMMIT_END_LSN)
        self.fields[COMMIT_TIME, number] = INT64_MAX if time > INT64_MAX - EPOCH else time + EPOCH
        self.fields[CHANGES, number] = self.row - self.fields[FIRST_ROW, number]
        self.transaction += 1
        self.index += 1
        self.run_stop = self.index
        self.kept = self.other_count
        self.place = BETWEEN
        return END

    cdef Event read_boundary(self, uint8_t tag) noexcept nogil:
        """Read a message that is in no run: it may begin or end a block."""
        if self.is_run_open():
            return RUN_ENDS
        end_groups(&self.groups)
        self.index += 1
        if tag == STREAM_STOP and self.place == BLOCK:
            self.place = OUTSIDE
            return BLOCK_ENDS
        self.place = OUTSIDE
        if tag != STREAM_START:
            return END
        self.place = BLOCK
        self.block_start = self.index - 1
        self.block_row = self.row
        self.block_messages = 0
        self.last_xid = 0
        return BLOCK_BEGINS

    cdef rare(self, message):
        """Take a Relation, Type, Origin, Truncate or Message."""
        cdef bint truncates = isinstance(message, Truncate)
        cdef bint transactional = isinstance(message, Message) and message.flags & 1
        if self.place == BETWEEN and (truncates or transactional or isinstance(message, Origin)):
            self.end_run()
        if self.place == BLOCK and (truncates or transactional):
            self.begin_xid(message.xid)
            self.block_messages += transactional
        if truncates:
            self.truncate(message.relation_oids)
            return
        if isinstance(message, Relation):
            end_group(&self.groups, message.oid)
        if self.place == BLOCK:
            self.others.append(self.index)
        elif self.place != OUTSIDE:
            self.others.append((self.index, self.transaction))
            self.other_count += 1

    cdef truncate(self, oids):
        cdef int32_t number
        for oid in oids:
            number = group_of(&self.groups, oid, self.index)
            if number < 0:
                raise MemoryError
            self.rows[self.row] = self.index
            self.group[self.row] = number
            self.row += 1

    cdef begin_xid(self, xid):
        """Take note of where a subtransaction's first change or logical message is in the block."""
        self.last_xid = xid
        if xid:
            self.first.setdefault(xid, (self.row - self.block_row, self.block_messages))

    cdef inline const uint8_t* message(self, Py_ssize_t size) noexcept nogil:
        """Return the next message, or NULL if it has another size or is not in the data."""
        cdef int64_t start = self.offsets[self.index]
        cdef int64_t stop = self.offsets[self.index + 1]
        if not 0 <= start <= stop <= self.data.shape[0] or stop - start != size:
            return NULL
        return &self.data[start]

    # Runs and blocks.

    cdef inline bint is_run_open(self) noexcept nogil:
        """Return whether a run has a whole transaction, and its end was not reported."""
        return (
            (self.place == INSIDE or self.place == BETWEEN)
            and self.transaction > self.run_first
        )

    cdef end_run(self):
        self.segments.append(
            PlainRun(
                max(self.fields[BEGIN_INDEX, self.run_first], 0), self.run_stop, self.run_first,
                self.transaction, self.others[:self.kept],
            )
        )
        self.place = OUTSIDE

    cdef end_block(self):
        cdef const uint8_t* p
        cdef Py_ssize_t stop = self.index
        self.index = self.block_start
        p = self.message(STREAM_START_SIZE)
        self.index = stop
        if p == NULL:
            raise ValueError("the table must be that of the messages")
        self.segments.append(
            StreamBlock(
                self.block_start, stop, load_u32(p + STREAM_START_XID),
                p[STREAM_START_FIRST_SEGMENT] == 1, self.block_row, self.row,
                self.block_messages, self.first, self.others,
            )
        )


cdef inline bint is_change(uint8_t tag) noexcept nogil:
    return tag == INSERT or tag == UPDATE or tag == DELETE


cdef inline bint is_rare(uint8_t tag) noexcept nogil:
    return tag in (RELATION, TYPE, ORIGIN, TRUNCATE, MESSAGE)


def runs(messages, table, begun=None):
    """Find the runs of whole transactions and stream blocks; see ``reference.runs``."""
    cdef RunReader reader = RunReader(messages, table, begun)
    reader.read()
    return reader.result()

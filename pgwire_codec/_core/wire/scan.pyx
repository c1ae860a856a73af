"""scan: the heads of messages as arrays.

The counterpart is :mod:`pgwire_codec.reference.scan`.
Changes, and the messages that begin and end plain transactions and stream blocks, are checked here
to their last byte, without the GIL. The others are decoded.
"""

from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t

import numpy as np

from pgwire_codec._core.kernels.memory cimport new_array
from pgwire_codec._core.protocol cimport (
    BEGIN, BEGIN_SIZE, COMMIT, COMMIT_SIZE, DELETE, INSERT, MARKER_KEY, MARKER_NEW, MARKER_OLD,
    STREAM_ABORT, STREAM_ABORT_LONG_SIZE, STREAM_ABORT_SIZE, STREAM_COMMIT, STREAM_COMMIT_SIZE,
    STREAM_START, STREAM_START_FIRST_SEGMENT, STREAM_START_SIZE, STREAM_STOP, STREAM_STOP_SIZE,
    UPDATE, in_stream_block,
)
from pgwire_codec._core.wire.primitives cimport load_i16, load_u32
from pgwire_codec._core.wire.tuple_data cimport field_end, fields_end, tuple_end

from pgwire_codec._core.shares import in_threads, shares_of
from pgwire_codec._core.messages.decode import decode_message
from pgwire_codec.codec.tables import MessageTable
from pgwire_codec.errors import DecodeError
from pgwire_codec.protocol.messages import Message, Truncate
from pgwire_codec.protocol.tags import TABULATED


UINT8, UINT32 = np.dtype(np.uint8), np.dtype(np.uint32)
INT16, INT64 = np.dtype(np.int16), np.dtype(np.int64)


cdef struct Change:
    # The head of an Insert, Update or Delete.
    uint32_t relation
    uint32_t xid
    int64_t body  # offset of the first marker in the message
    int16_t width  # number of fields of the first tuple
    const uint8_t* last  # the last tuple, which is not checked yet; NULL without one


cdef struct Unchecked:
    # A change whose last tuple has to be checked.
    const uint8_t* p  # of the tuple; NULL: there is no such change
    const uint8_t* end
    Py_ssize_t index
    bint inside  # a stream block


def scan(
    messages, *, bint streaming=False, bint skip=False, bint heads=False, Py_ssize_t threads=1
):
    """Tabulate the messages, each of which is whole; see ``reference.scan``."""
    cdef Scan scan = Scan(messages, skip, heads)
    edges = shares_of(scan.count, threads, 1)

    def scan_share(part):
        inside = scan.is_probably_inside(edges[part], streaming)
        try:
            return inside, scan.share(edges[part], edges[part + 1], inside)
        except DecodeError as error:
            return inside, error

    errors, decoded, inside = {}, {}, streaming
    for part, (assumed, found) in enumerate(in_threads(scan_share, len(edges) - 1)):
        if assumed != inside:
            found = scan.share(edges[part], edges[part + 1], inside)
        elif isinstance(found, DecodeError):
            raise found
        errors.update(found[0])
        decoded.update(found[1])
        inside = found[2]
    return MessageTable(
        scan.kind, scan.relation, scan.xid, scan.body, scan.width, errors, inside, decoded
    )


cdef class Scan:
    """The messages, and the arrays of their heads."""

    cdef object messages, kind, relation, xid, body, width
    cdef Py_ssize_t count
    cdef bint skip, heads
    cdef const uint8_t[::1] data
    cdef const int64_t[::1] offsets
    cdef uint8_t[::1] kinds
    cdef uint32_t[::1] relations, xids
    cdef int64_t[::1] bodies
    cdef int16_t[::1] widths

    def __init__(self, messages, bint skip, bint heads):
        self.messages, self.skip, self.heads = messages, skip, heads
        self.count = len(messages)
        self.kinds = self.kind = new_array((self.count,), UINT8)
        self.relations = self.relation = new_array((self.count,), UINT32)
        self.xids = self.xid = new_array((self.count,), UINT32)
        self.bodies = self.body = new_array((self.count,), INT64)
        self.widths = self.width = new_array((self.count,), INT16)
        self.data, self.offsets = messages.data, messages.offsets
        if self.count:
            check_offsets(self.offsets, self.count, self.data.shape[0])

    def share(self, Py_ssize_t index, Py_ssize_t stop, bint inside):
        """Scan some messages; return errors, decoded messages, and whether they end in a block."""
        cdef const uint8_t* start = &self.data[0] if self.data.shape[0] else NULL
        cdef dict errors = {}, decoded = {}
        while index < stop:
            with nogil:
                index = scan_run(
                    start, &self.offsets[0], index, stop, self.heads, &inside, &self.kinds[0],
                    &self.relations[0], &self.xids[0], &self.bodies[0], &self.widths[0],
                )
            if index == stop:
                break
            # The message that ended the run: of a rare kind, or not whole.
            raw = self.messages[index]
            try:
                message = decode_message(raw, streaming=inside)
            except DecodeError as error:
                placed = error.at(index)
                if not self.skip:
                    raise placed from None
                errors[index] = placed
            else:
                if raw[:1] in TABULATED:
                    raise RuntimeError(f"the compiled scan refused message {index}, which is whole")
                self.kinds[index] = raw[0]
                decoded[index] = message
                if isinstance(message, (Truncate, Message)):
                    self.xids[index] = message.xid or 0
            if len(raw):
                inside = in_stream_block(raw[0], inside)
            index += 1
        return errors, decoded, inside

    cdef bint is_probably_inside(self, Py_ssize_t index, bint streaming) noexcept:
        """Return whether a message is in a stream block: the messages before it say so.

        In a block, a change has an XID before the relation's OID. ``streaming`` is the answer for
        the first of all messages.
        """
        cdef const uint8_t* p
        cdef Py_ssize_t size
        cdef bint is_change, without_xid, with_xid
        with nogil:
            while index > 0:
                index -= 1
                size = self.offsets[index + 1] - self.offsets[index]
                if size == 0:
                    continue
                p = &self.data[self.offsets[index]]
                is_change = p[0] == INSERT or p[0] == UPDATE or p[0] == DELETE
                without_xid = is_change and size > 5 and is_marker(p[5])
                with_xid = is_change and size > 9 and is_marker(p[9])
                if without_xid != with_xid:
                    return with_xid
                if not in_stream_block(p[0], True):
                    return False
                if in_stream_block(p[0], False):
                    return True
        return streaming


cdef inline bint is_marker(uint8_t byte) noexcept nogil:
    return byte == MARKER_NEW or byte == MARKER_OLD or byte == MARKER_KEY


cdef check_offsets(const int64_t[::1] offsets, Py_ssize_t count, Py_ssize_t size):
    """Check that the offsets do not lead out of the bytes."""
    cdef Py_ssize_t index
    cdef bint good = 0 <= offsets[0] and offsets[count] <= size
    with nogil:
        for index in range(count):
            good &= offsets[index] <= offsets[index + 1]
    if not good:
        raise ValueError("the offsets of the messages must ascend within their bytes")


cdef Py_ssize_t scan_run(
    const uint8_t* data,
    const int64_t* offsets,
    Py_ssize_t index,
    Py_ssize_t count,
    bint heads,
    bint* inside,
    uint8_t* kinds,
    uint32_t* relations,
    uint32_t* xids,
    int64_t* bodies,
    int16_t* widths,
) noexcept nogil:
    """Tabulate messages up to the first that is not checked here; return its index, or count.

    That one has an empty row. The tuples of two changes are checked at the same time: the loads of
    one do not depend on those of the other. Other messages may be between the two.
    """
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef Change change
    cdef Unchecked other = Unchecked(NULL, NULL, 0, False)
    cdef uint8_t tag
    while index < count:
        p = data + offsets[index]
        end = data + offsets[index + 1]
        if p == end:
            break
        tag = p[0]
        if tag == INSERT or tag == UPDATE or tag == DELETE:
            if not read_change(p, end, inside[0], heads, &change):
                break
            bodies[index] = offsets[index] + change.body
            if other.p == NULL:
                other = Unchecked(change.last, end, index, inside[0])
            elif change.last != NULL:
                if not are_tuples(other.p, other.end, change.last, end):
                    break
                other.p = NULL
        elif not is_control(tag, p, end - p):
            break
        else:
            inside[0] = in_stream_block(tag, inside[0])
            change.relation, change.xid, change.width = 0, 0, 0
            bodies[index] = -1
        kinds[index] = tag
        relations[index] = change.relation
        xids[index] = change.xid
        widths[index] = change.width
        index += 1
    if other.p != NULL and tuple_end(other.p, other.end) != other.end:
        index, inside[0] = other.index, other.inside
    if index < count:  # messages from here on may have been tabulated
        kinds[index] = 0
        relations[index] = 0
        xids[index] = 0
        bodies[index] = -1
        widths[index] = 0
    return index


cdef inline bint are_tuples(
    const uint8_t* p, const uint8_t* p_end, const uint8_t* q, const uint8_t* q_end
) noexcept nogil:
    """Return whether each of two tuples reaches to its end."""
    cdef int p_fields = load_i16(p), q_fields = load_i16(q)
    cdef int both = min(p_fields, q_fields)
    if both < 0:
        return False
    p_fields -= both
    q_fields -= both
    p += 2
    q += 2
    while both > 0:
        both -= 1
        p = field_end(p, p_end)
        q = field_end(q, q_end)
        if p == NULL or q == NULL:
            return False
    return fields_end(p, p_end, p_fields) == p_end and fields_end(q, q_end, q_fields) == q_end


cdef inline bint is_control(uint8_t tag, const uint8_t* p, Py_ssize_t size) noexcept nogil:
    """Return whether the message is whole, and one of the frequent ones of a fixed size."""
    if tag == BEGIN:
        return size == BEGIN_SIZE
    if tag == COMMIT:
        return size == COMMIT_SIZE
    if tag == STREAM_START:
        return size == STREAM_START_SIZE and p[STREAM_START_FIRST_SEGMENT] <= 1
    if tag == STREAM_STOP:
        return size == STREAM_STOP_SIZE
    if tag == STREAM_COMMIT:
        return size == STREAM_COMMIT_SIZE
    if tag == STREAM_ABORT:
        return size == STREAM_ABORT_SIZE or size == STREAM_ABORT_LONG_SIZE
    return False


cdef inline bint read_change(
    const uint8_t* p, const uint8_t* end, bint streaming, bint heads, Change* change
) noexcept nogil:
    """Read the head of an Insert, Update or Delete; return whether the message may be whole.

    It is, if its last tuple reaches to its end. With ``heads`` it may end after the relation's OID.
    """
    cdef const uint8_t* start = p
    cdef uint8_t tag = p[0]
    cdef uint8_t marker
    p += 1
    change.xid = 0
    if end - p < (8 if streaming else 4):
        return False
    if streaming:
        change.xid = load_u32(p)
        p += 4
    change.relation = load_u32(p)
    p += 4
    change.body = p - start
    change.last = NULL
    if heads:
        change.width = 0
        return True
    if end - p < 3:  # marker and number of fields
        return False
    marker = p[0]
    change.width = load_i16(p + 1)
    if tag == INSERT:
        if marker != MARKER_NEW:
            return False
    elif marker == MARKER_KEY or marker == MARKER_OLD:
        if tag == UPDATE:
            p = tuple_end(p + 1, end)
            if p == NULL or end - p < 3 or p[0] != MARKER_NEW:
                return False
    elif tag == DELETE or marker != MARKER_NEW:
        return False
    change.last = p + 1
    return True

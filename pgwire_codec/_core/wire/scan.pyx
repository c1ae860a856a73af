"""scan and boundaries: the heads of messages, as arrays.

The twins of :mod:`pgwire_codec.reference.scan` and :mod:`pgwire_codec.reference.boundaries`. Changes, and the messages that begin and end plain
transactions and stream blocks, are checked here to their last byte, without the GIL; of the others
the reference decoder says whether they decode, and of every error what it is.
"""

from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t, uint64_t

import numpy as np

from pgwire_codec._core.wire.tuple_data cimport tuple_end
from pgwire_codec._core.wire.primitives cimport load_i16, load_i64, load_u32, load_u64
from pgwire_codec.errors import DecodeError
from pgwire_codec.protocol.messages import Message, Truncate
from pgwire_codec.reference.codec import decode_message
from pgwire_codec.codec.tables import Boundaries, MessageTable

cdef enum:
    WHOLE = 0  # the message is checked, and whole
    ASK = 1  # the reference decoder has to say


cdef enum:
    BEGIN_SIZE = 21  # of the whole message
    COMMIT_SIZE = 26


cdef struct Head:
    uint32_t relation
    uint32_t xid
    int64_t body
    int16_t width


def scan(messages, *, bint streaming=False, bint skip=False):
    """Read every message, whole, and tabulate it; see ``reference.scan``."""
    cdef Py_ssize_t count = len(messages)
    kind = np.zeros(count, np.uint8)
    relation = np.zeros(count, np.uint32)
    xid = np.zeros(count, np.uint32)
    body = np.full(count, -1, np.int64)
    width = np.zeros(count, np.int16)
    errors = {}
    cdef const uint8_t[::1] data = messages.data
    cdef const int64_t[::1] offsets = messages.offsets
    cdef uint8_t[::1] kinds = kind
    cdef uint32_t[::1] relations = relation
    cdef uint32_t[::1] xids = xid
    cdef int64_t[::1] bodies = body
    cdef int16_t[::1] widths = width
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    cdef Py_ssize_t index = 0
    cdef bint inside = streaming
    if count:
        check_offsets(offsets, count, data.shape[0])
    while index < count:
        with nogil:
            index = scan_run(
                start, &offsets[0], index, count, &inside,
                &kinds[0], &relations[0], &xids[0], &bodies[0], &widths[0],
            )
        if index == count:
            break
        # The message that stopped the run: rare, or not whole.
        raw = messages[index]
        try:
            message = decode_message(raw, streaming=inside)
        except DecodeError as error:
            placed = error.at(index)
            if not skip:
                raise placed from None
            errors[index] = placed
        else:
            if raw[0] in b"IUDBCSEcA":
                raise RuntimeError(f"message {index} is whole, but the compiled scan refused it")
            kinds[index] = raw[0]
            if isinstance(message, (Truncate, Message)):
                xids[index] = message.xid or 0
        if len(raw):
            inside = follows_in_block(raw[0], inside)
        index += 1
    return MessageTable(kind, relation, xid, body, width, errors, inside)


cdef check_offsets(const int64_t[::1] offsets, Py_ssize_t count, Py_ssize_t size):
    """Refuse an array whose offsets would lead outside its bytes."""
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
    bint* inside,
    uint8_t* kinds,
    uint32_t* relations,
    uint32_t* xids,
    int64_t* bodies,
    int16_t* widths,
) noexcept nogil:
    """Tabulate messages until one that this scan cannot answer for; give its index, or count."""
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef Head head
    cdef uint8_t tag
    while index < count:
        p = data + offsets[index]
        end = data + offsets[index + 1]
        if p == end:
            return index
        tag = p[0]
        if tag == c"I" or tag == c"U" or tag == c"D":
            if read_change(p, end, inside[0], &head) != WHOLE:
                return index
            relations[index] = head.relation
            xids[index] = head.xid
            bodies[index] = offsets[index] + head.body
            widths[index] = head.width
        elif read_control(tag, p, end) != WHOLE:
            return index
        else:
            inside[0] = follows_in_block(tag, inside[0])
        kinds[index] = tag
        index += 1
    return count


cdef inline bint follows_in_block(uint8_t tag, bint before) noexcept nogil:
    """Say whether the next message is inside a stream block: ``spec.in_stream_block``."""
    if tag == c"S":
        return True
    if tag in (c"E", c"B", c"C", c"c", c"A", c"b", c"P", c"K", c"r", c"p"):
        return False
    return before


cdef inline int read_control(uint8_t tag, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Check the messages of a fixed length that come often."""
    cdef Py_ssize_t size = end - p
    if tag == c"B":
        return WHOLE if size == 21 else ASK
    if tag == c"C":
        return WHOLE if size == 26 else ASK
    if tag == c"S":
        return WHOLE if size == 6 and p[5] <= 1 else ASK
    if tag == c"E":
        return WHOLE if size == 1 else ASK
    if tag == c"c":
        return WHOLE if size == 30 else ASK
    if tag == c"A":
        return WHOLE if size == 9 or size == 25 else ASK
    return ASK


cdef inline int read_change(
    const uint8_t* p, const uint8_t* end, bint streaming, Head* head
) noexcept nogil:
    """Check an Insert, Update or Delete to its end; ``head.body`` counts from its tag."""
    cdef const uint8_t* start = p
    cdef uint8_t tag = p[0]
    cdef uint8_t marker
    p += 1
    head.xid = 0
    if end - p < (8 if streaming else 4):
        return ASK
    if streaming:
        head.xid = load_u32(p)
        p += 4
    head.relation = load_u32(p)
    p += 4
    head.body = p - start
    if end - p < 3:  # marker and number of columns
        return ASK
    marker = p[0]
    head.width = load_i16(p + 1)
    if tag == c"I":
        if marker != c"N":
            return ASK
    elif marker == c"K" or marker == c"O":
        if tag == c"U":
            p = tuple_end(p + 1, end)
            if p == NULL or end - p < 3 or p[0] != c"N":
                return ASK
    elif tag == c"D" or marker != c"N":
        return ASK
    p = tuple_end(p + 1, end)
    return WHOLE if p == end else ASK


def boundaries(messages, begin, commit):
    """Read the fields of Begin and Commit messages that ``scan`` accepted; see the twin."""
    cdef const uint8_t[::1] data = messages.data
    cdef const int64_t[::1] offsets = messages.offsets
    cdef const int64_t[::1] begins = np.ascontiguousarray(begin, np.int64)
    cdef const int64_t[::1] commits = np.ascontiguousarray(commit, np.int64)
    cdef Py_ssize_t count = begins.shape[0]
    cdef Py_ssize_t row
    cdef const uint8_t* p
    cdef bint good = True
    found = Boundaries(
        xid=np.empty(count, np.uint32),
        final_lsn=np.empty(count, np.uint64),
        commit_lsn=np.empty(count, np.uint64),
        end_lsn=np.empty(count, np.uint64),
        commit_time=np.empty(count, np.int64),
    )
    cdef uint32_t[::1] xid = found.xid
    cdef uint64_t[::1] final_lsn = found.final_lsn
    cdef uint64_t[::1] commit_lsn = found.commit_lsn
    cdef uint64_t[::1] end_lsn = found.end_lsn
    cdef int64_t[::1] commit_time = found.commit_time
    if commits.shape[0] != count:
        raise ValueError("as many Commits as Begins")
    with nogil:
        for row in range(count):
            good = is_whole(begins[row], BEGIN_SIZE, offsets, data.shape[0])
            if not good or not is_whole(commits[row], COMMIT_SIZE, offsets, data.shape[0]):
                good = False
                break
            p = &data[offsets[begins[row]]]
            final_lsn[row] = load_u64(p + 1)
            xid[row] = load_u32(p + 17)
            p = &data[offsets[commits[row]]]
            commit_lsn[row] = load_u64(p + 2)
            end_lsn[row] = load_u64(p + 10)
            commit_time[row] = load_i64(p + 18)
    if not good:
        raise ValueError("begin and commit must be Begins and Commits that scan() accepted")
    return found


cdef inline bint is_whole(
    int64_t index, Py_ssize_t size, const int64_t[::1] offsets, Py_ssize_t end
) noexcept nogil:
    """Whether a message is there, in the data, and of that size."""
    if not 0 <= index < offsets.shape[0] - 1:
        return False
    if not 0 <= offsets[index] <= offsets[index + 1] <= end:
        return False
    return offsets[index + 1] - offsets[index] == size

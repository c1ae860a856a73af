"""PostgreSQL's logical replication stream (pgoutput), decoded into numpy and Arrow columns."""

from pgwire_codec import reference
from pgwire_codec._impl import (
    IMPL,
    Decoder,
    decode_frame,
    decode_message,
    encode_batch,
    encode_message,
)
from pgwire_codec.changes.batch import ChangeBatch
from pgwire_codec.changes.changes import Changes
from pgwire_codec.changes.column import Column
from pgwire_codec.errors import (
    CaptureError,
    DecodeError,
    EncodeError,
    ErrorCode,
    MissingExtraError,
    OptionError,
    PgwireError,
    Rejected,
)
from pgwire_codec.options import DecoderOptions
from pgwire_codec.parallel import summarise
from pgwire_codec.protocol.lsn import format_lsn, parse_lsn
from pgwire_codec.protocol.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Delete,
    HotStandbyFeedback,
    Insert,
    Message,
    Origin,
    Prepare,
    PrimaryKeepalive,
    Relation,
    RelationColumn,
    RollbackPrepared,
    StandbyStatusUpdate,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    TupleData,
    Type,
    Update,
    XLogData,
)
from pgwire_codec.transactions.carry import Carry
from pgwire_codec.transactions.committed import Transactions
from pgwire_codec.transactions.plan import PartPlan, Plan, fold, plan
from pgwire_codec.transactions.summary import Summary
from pgwire_codec.types import TypeRegistry, register_type

__version__ = "0.1.0"

__all__ = [
    "IMPL",
    "Begin",
    "BeginPrepare",
    "CaptureError",
    "Carry",
    "ChangeBatch",
    "Changes",
    "Column",
    "Commit",
    "CommitPrepared",
    "DecodeError",
    "Decoder",
    "DecoderOptions",
    "Delete",
    "EncodeError",
    "ErrorCode",
    "HotStandbyFeedback",
    "Insert",
    "Message",
    "MissingExtraError",
    "OptionError",
    "Origin",
    "PartPlan",
    "PgwireError",
    "Plan",
    "Prepare",
    "PrimaryKeepalive",
    "Rejected",
    "Relation",
    "RelationColumn",
    "RollbackPrepared",
    "StandbyStatusUpdate",
    "StreamAbort",
    "StreamCommit",
    "StreamPrepare",
    "StreamStart",
    "StreamStop",
    "Summary",
    "Transactions",
    "Truncate",
    "TupleData",
    "Type",
    "TypeRegistry",
    "Update",
    "XLogData",
    "decode_frame",
    "decode_message",
    "encode_batch",
    "encode_message",
    "fold",
    "format_lsn",
    "parse_lsn",
    "plan",
    "reference",
    "register_type",
    "summarise",
]

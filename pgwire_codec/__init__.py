"""PostgreSQL's logical replication stream (pgoutput), decoded into numpy and Arrow columns."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgwire_codec import reference
    from pgwire_codec._impl import (
        IMPL,
        Decoder,
        decode_frame,
        decode_message,
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
    "encode_message",
    "fold",
    "format_lsn",
    "parse_lsn",
    "plan",
    "reference",
    "register_type",
    "summarise",
]

# Imported at first use, so that each command and each Spark worker imports what it needs.
_MODULES = {
    "Begin": "protocol.messages",
    "BeginPrepare": "protocol.messages",
    "CaptureError": "errors",
    "Carry": "transactions.carry",
    "ChangeBatch": "changes.batch",
    "Changes": "changes.changes",
    "Column": "changes.column",
    "Commit": "protocol.messages",
    "CommitPrepared": "protocol.messages",
    "DecodeError": "errors",
    "Decoder": "_impl",
    "DecoderOptions": "options",
    "Delete": "protocol.messages",
    "EncodeError": "errors",
    "ErrorCode": "errors",
    "HotStandbyFeedback": "protocol.messages",
    "IMPL": "_impl",
    "Insert": "protocol.messages",
    "Message": "protocol.messages",
    "MissingExtraError": "errors",
    "OptionError": "errors",
    "Origin": "protocol.messages",
    "PartPlan": "transactions.plan",
    "PgwireError": "errors",
    "Plan": "transactions.plan",
    "Prepare": "protocol.messages",
    "PrimaryKeepalive": "protocol.messages",
    "Rejected": "errors",
    "Relation": "protocol.messages",
    "RelationColumn": "protocol.messages",
    "RollbackPrepared": "protocol.messages",
    "StandbyStatusUpdate": "protocol.messages",
    "StreamAbort": "protocol.messages",
    "StreamCommit": "protocol.messages",
    "StreamPrepare": "protocol.messages",
    "StreamStart": "protocol.messages",
    "StreamStop": "protocol.messages",
    "Summary": "transactions.summary",
    "Transactions": "transactions.committed",
    "Truncate": "protocol.messages",
    "TupleData": "protocol.messages",
    "Type": "protocol.messages",
    "TypeRegistry": "types",
    "Update": "protocol.messages",
    "XLogData": "protocol.messages",
    "decode_frame": "_impl",
    "decode_message": "_impl",
    "encode_message": "_impl",
    "fold": "transactions.plan",
    "format_lsn": "protocol.lsn",
    "parse_lsn": "protocol.lsn",
    "plan": "transactions.plan",
    "register_type": "types",
    "summarise": "parallel",
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name == "reference":
            return importlib.import_module(f"{__name__}.reference")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value

"""Features of Delta tables: those of new tables and columns, and an error for unsupported ones.

A writer must support each feature that is in use. Before table features (writer version 7), a
version implies some, in use or not. So those are looked up in properties and columns. See "Table
Features" in Delta's PROTOCOL.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from pgwire_codec.errors import TableError

#: Protocol of new tables, with the features that they use.
_READER_VERSION: Final = 3
_WRITER_VERSION: Final = 7

_VECTORS: Final = "deletionVectors"
_TIMESTAMP_NTZ: Final = "timestampNtz"

#: Property that allows vectors; the feature alone does not.
ENABLE_VECTORS: Final = "delta.enableDeletionVectors"

#: Features that ask nothing of a commit that adds files, marks rows and records a position.
_SUPPORTED: Final = frozenset({
    _VECTORS, _TIMESTAMP_NTZ, "domainMetadata", "vacuumProtocolCheck",
    # Of columns that :func:`_features_in_use` looks for.
    "variantType", "variantType-preview", "variantShredding-preview",
})  # fmt: skip

#: Features that can be listed, or implied by a version, and not be in use.
_LOOKED_UP: Final = frozenset({
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
    "columnMapping", "identityColumns", "allowColumnDefaults", "rowTracking", "inCommitTimestamp",
    "inCommitTimestamp-preview", "typeWidening", "typeWidening-preview", "clustering",
    "icebergCompatV1", "icebergCompatV2",
})  # fmt: skip

#: Features by the property that puts them to use.
_BY_PROPERTY: Final = {
    "delta.appendOnly": "appendOnly",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
}

#: Features by the metadata of a column that uses them.
_BY_METADATA: Final = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.columnMapping.id": "columnMapping",
    "delta.identity.start": "identityColumns",
    "delta.typeChanges": "typeWidening",
    "CURRENT_DEFAULT": "allowColumnDefaults",
}

_CONSTRAINT: Final = "delta.constraints."


def needed_protocol(
    name: str, protocol: Mapping[str, Any], schema: pa.Schema, *, marks: bool
) -> Mapping[str, Any]:
    """Return the protocol that a table with some columns needs, from the one that it has.

    A new table has none, and ``marks`` rows in vectors or not.
    """
    readers = set(protocol.get("readerFeatures") or ())
    writers = set(protocol.get("writerFeatures") or ())
    missing = set()
    if any(_has_ntz(column.type) for column in schema):
        missing = {_TIMESTAMP_NTZ} - readers
    if not protocol:
        if marks:
            missing.add(_VECTORS)
        if not missing:
            return {"minReaderVersion": 1, "minWriterVersion": 2}
    elif not missing:
        return protocol
    elif protocol["minWriterVersion"] < _WRITER_VERSION:
        raise TableError(
            f"{name} has a protocol without features, and needs {', '.join(missing)}",
            hint="Remove the table, and let the mirror create it.",
        )
    return {
        "minReaderVersion": _READER_VERSION,
        "minWriterVersion": _WRITER_VERSION,
        "readerFeatures": sorted(readers | missing),
        "writerFeatures": sorted(writers | missing),
    }


def _has_ntz(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_has_ntz(kind.field(number).type) for number in range(kind.num_fields))


def check_features(
    name: str, protocol: Mapping[str, Any], metadata: Mapping[str, Any], *, appends: bool
) -> None:
    """Raise ``TableError`` if a table, by two of its actions, uses unsupported features.

    Some do not matter for a commit that only adds files.
    """
    unsupported = sorted(set(_unsupported(protocol, metadata, appends=appends)))
    if unsupported:
        raise TableError(
            f"{name} uses features of Delta that are not supported: {', '.join(unsupported)}",
            hint="Use a table without them: let the mirror create its table.",
        )


def _unsupported(
    protocol: Mapping[str, Any], metadata: Mapping[str, Any], *, appends: bool
) -> Iterator[str]:
    listed = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    yield from listed - _SUPPORTED - _LOOKED_UP
    versions = protocol["minReaderVersion"], protocol["minWriterVersion"]
    if versions[0] > _READER_VERSION or versions[1] > _WRITER_VERSION:
        yield f"protocol {versions}"
    for feature in _features_in_use(metadata):
        if not (appends and feature in ("appendOnly", "changeDataFeed")):
            yield feature
    if metadata["partitionColumns"]:
        yield "partitions"


def _features_in_use(metadata: Mapping[str, Any]) -> Iterator[str]:
    properties = metadata["configuration"]
    for name, value in properties.items():
        if name.startswith(_CONSTRAINT):
            yield "checkConstraints"
        elif name == "delta.columnMapping.mode" and value != "none":
            yield "columnMapping"
        elif value == "true" and name in _BY_PROPERTY:
            yield _BY_PROPERTY[name]
    for field in json.loads(metadata["schemaString"])["fields"]:
        for name, feature in _BY_METADATA.items():
            if name in field["metadata"]:
                yield feature
        if "variant" in json.dumps(field["type"]):
            yield "variantType"

"""The options of format("pgoutput") are checked before anything is read."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from pgwire_codec.errors import OptionError
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.options import DecoderOptions
from pgwire_codec.protocol.lsn import format_lsn

pytest.importorskip("pyspark", reason="needs PySpark (Python 3.11)")

from pgwire_codec.spark.options import NAMES, SourceOptions, parse_options


def parse(**options: str) -> SourceOptions:
    return parse_options({"path": "shop.log", "table": "public.t"} | options)


def test_defaults() -> None:
    options = parse_options({"path": "shop.log"})
    assert (options.table, options.columns, options.style) == (None, None, "native")
    assert (options.relation_oid, options.with_relation_oid) == (None, False)
    assert (options.on_relation_change, options.is_of_a_table) == ("fail", False)
    assert (options.starting_lsn, options.ending_lsn) == (None, None)
    assert (options.starting_time, options.ending_time) == (None, None)
    assert (options.max_partition_bytes, options.max_bytes_per_trigger) == (32 << 20, None)
    assert (options.on_error, options.push_filters) == ("raise", False)
    assert options.decoder.arrow_types == ROW_TYPES


def test_names_count_without_case() -> None:
    given = {"PATH": "d", "Table": "public.t", "STARTINGLSN": "0/10", "onerror": "skip"}
    options = parse_options(given)
    assert (options.path, options.table, options.starting_lsn) == ("d", "public.t", 16)
    assert options.on_error == "skip"


def test_every_option_arrives() -> None:
    options = parse(
        columns="id, v",
        startingLsn="16/B374D848",
        endingLsn=str(0x16B374D849),
        startingTimestamp="2026-01-31T12:00:00.000001Z",
        endingTimestamp="2026-01-31 14:00:01+02:00",
        types="text",
        numeric="float64",
        before="full",
        unrepresentable="clamp",
        onError="skip",
        maxPartitionBytes="64m",
        maxBytesPerTrigger="10 MB",
        withRelationOid="true",
        onRelationChange="replace",
        pushFilters="true",
        checkIdentity="true",
    )
    assert (options.check_identity, options.push_filters) == (True, True)
    assert (options.with_relation_oid, options.on_relation_change) == (True, "replace")
    assert options.columns == ("id", "v")
    assert format_lsn(options.starting_lsn or 0) == "16/B374D848"
    assert options.ending_lsn == 0x16B374D849
    assert options.starting_time == datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=timezone.utc)
    assert options.ending_time == datetime(2026, 1, 31, 12, 0, 1, tzinfo=timezone.utc)
    assert options.decoder == DecoderOptions(
        types="text",
        numeric="float64",
        before="full",
        unrepresentable="clamp",
        on_error="skip",
        arrow_types=ROW_TYPES,
    )
    assert (options.max_partition_bytes, options.max_bytes_per_trigger) == (64 << 20, 10 << 20)
    given = {"path", "table", "columns", "startingLsn", "endingLsn", "types", "numeric", "before"}
    given |= {"unrepresentable", "onError", "maxPartitionBytes", "maxBytesPerTrigger"}
    given |= {"withRelationOid", "onRelationChange", "startingTimestamp", "endingTimestamp"}
    given |= {"pushFilters", "checkIdentity"}
    assert set(NAMES) - given == {"style", "relationOid"}


def test_a_relation_in_place_of_a_table() -> None:
    options = parse_options({"path": "d", "relationOid": "4294967295", "columns": "a"})
    assert (options.table, options.relation_oid) == (None, 4294967295)
    assert (options.is_of_a_table, options.decoder.types) == (True, "native")
    assert parse_options({"path": "d", "relationOid": "1", "style": "debezium"}).style == "debezium"


def test_replaced_rows_have_the_relation() -> None:
    assert parse(onRelationChange="replace").with_relation_oid
    assert not parse(withRelationOid="false").with_relation_oid
    assert parse_options({"path": "d", "withRelationOid": "true"}).with_relation_oid


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("2k", 2048), ("3KB", 3072), ("1g", 1 << 30), ("1T", 1 << 40)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse(maxPartitionBytes=text).max_partition_bytes == size


def test_an_envelope_has_the_whole_old_row() -> None:
    assert parse(style="debezium").decoder.before == "full"


def test_without_table_values_are_text() -> None:
    assert parse_options({"path": "d"}).decoder.types == "text"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"tabel": "x"},
            r"has no option tabel — hint: Its options are path, table, relationOid",
        ),
        ({"path": ""}, "path is missing"),
        ({"table": ""}, "table must be schema.table"),
        ({"columns": "a,,b"}, "columns must be distinct names of columns, .*not 'a,,b'"),
        ({"columns": "a,a"}, "distinct"),
        ({"style": "avro"}, "style must be one of native, debezium, not 'avro'"),
        ({"types": "str"}, "types must be one of native, text, not 'str'"),
        ({"before": "all"}, "before must be one of key, full, none, not 'all'"),
        ({"unrepresentable": "x"}, "unrepresentable must be one of raise, null, clamp"),
        ({"onError": "ignore"}, "onError must be one of raise, skip, not 'ignore'"),
        ({"numeric": "decimal"}, "numeric"),
        ({"startingLsn": "0x10"}, "startingLsn must be an LSN like 16/B374D848"),
        ({"endingLsn": str(1 << 64)}, "endingLsn must be an LSN"),
        ({"startingLsn": "0/20", "endingLsn": "0/1F"}, "endingLsn 0/1F is before startingLsn 0/20"),
        (
            {"startingTimestamp": "2026-01-31T12:00:00"},
            "startingTimestamp must be a time with its offset from UTC, .*'2026-01-31T12:00:00'",
        ),
        ({"endingTimestamp": "1767225600000"}, "endingTimestamp must be a time with its offset"),
        (
            {"startingTimestamp": "2026-01-31T12:00Z", "endingTimestamp": "2026-01-31T12:00+01:00"},
            r"endingTimestamp .*12:00\+01:00 is before startingTimestamp 2026-01-31T12:00Z",
        ),
        ({"maxPartitionBytes": "0"}, "maxPartitionBytes must be a number of bytes above 0"),
        ({"maxBytesPerTrigger": "many"}, "maxBytesPerTrigger must be a number of bytes"),
        ({"style": "debezium", "before": "key"}, "before and style=debezium exclude one another"),
        ({"relationOid": "1"}, "table and relationOid exclude one another"),
        ({"pushFilters": "yes"}, "pushFilters must be one of true, false, not 'yes'"),
        ({"withRelationOid": "yes"}, "withRelationOid must be one of true, false, not 'yes'"),
        ({"onRelationChange": "x"}, "onRelationChange must be one of fail, replace, not 'x'"),
        ({"style": "debezium", "withRelationOid": "true"}, "withRelationOid and style=debezium "),
        ({"style": "debezium", "onRelationChange": "replace"}, "replace and style=debezium excl"),
        (
            {"onRelationChange": "replace", "withRelationOid": "false"},
            "onRelationChange=replace needs withRelationOid=true",
        ),
    ],
)
def test_bad_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "a", "before": "none"}, "columns, before needs the option table"),
        ({"style": "debezium"}, "style=debezium needs the option table"),
        ({"onRelationChange": "fail"}, "onRelationChange needs the option table"),
        ({"relationOid": "1", "onRelationChange": "fail"}, "needs the option table"),
        ({"relationOid": "0"}, "relationOid must be a number from 1 to 4294967295, not '0'"),
        ({"relationOid": "4294967296"}, "relationOid must be a number"),
        ({"relationOid": "public.t"}, "relationOid must be a number .*, not 'public.t'"),
    ],
)
def test_options_of_a_table(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options({"path": "d"} | options)


def test_no_path() -> None:
    with pytest.raises(OptionError, match="path is missing"):
        parse_options({})

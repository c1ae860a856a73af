"""date, time, timetz, timestamp, timestamptz and interval."""

from __future__ import annotations

import datetime
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgwire_codec.arrow.values import Interval
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.reference import values as reference_values
from pgwire_codec.reference.families.calendar import MAX_DATE, MIN_DATE, date_from_days
from tests.families.test_integers import signed
from tests.support.families import FamilyTests
from tests.support.implementations import Implementation, implementation
from tests.support.values import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    decode,
    laid_out,
    one,
    same_values,
    type_of,
)

_DAYS = st.integers(-800_000, 3_000_000) | st.integers(-(2**31), 2**31 - 1)
_MICROS = _DAYS.map(lambda days: days * 86_400_000_000).flatmap(
    lambda at: st.integers(at, at + 86_399_999_999) | st.sampled_from([at, at + 3_600_000_000])
) | st.sampled_from([2**63 - 1, -(2**63)])
_TIMESTAMPS = _MICROS.map(lambda value: struct.pack(">q", min(max(value, -(2**63)), 2**63 - 1)))

#: Intervals as one number.
SUMS = {"intervals": "microseconds"}


class TestDateTime(FamilyTests):
    golden = [
        ("time", "24:00:00", "000000141dd76000"),
        ("timestamptz", "2024-02-29 12:00:00+00", "0002b582c4781000"),
        ("timetz", "00:00:00+00", "000000000000000000000000"),
        ("timetz", "23:59:59.999999-15:59:59", "000000141dd75fff0000e0ff"),
        ("timetz", "12:34:56.5+05:30", "0000000a8be1bd20ffffb2a8"),
        ("interval", "-1 mons +1 day", "000000000000000000000001ffffffff"),
        ("interval", "-1 days +00:00:01.5", "000000000016e360ffffffff00000000"),
        (
            "interval",
            "2147483647 days -2562047788:00:54.775807",
            "80000000000000017fffffff00000000",
        ),
        ("interval", "infinity", "7fffffffffffffff7fffffff7fffffff"),
        ("interval", "1 year", "0000000000000000000000000000000c"),
        ("date", "4714-11-24 BC", "ffda97a7"),
        ("date", "5874897-12-31", "7fda970c"),
        ("date", "-infinity", "80000000"),
        ("timestamp", "4714-11-24 00:00:00 BC", "fd0f7cc1411fa000"),
        ("timestamp", "294276-12-31 23:59:59.999999", "7fffff5bb3b29fff"),
        ("timestamp", "infinity", "7fffffffffffffff"),
    ]

    texts = [
        ("date", b"2024-02-29", datetime.date(2024, 2, 29)),
        ("date", b"0001-01-01", datetime.date.min),
        ("date", b"9999-12-31", datetime.date.max),
        ("date", b"0001-12-31 BC", np.datetime64("0000-12-31", "D")),
        ("date", b"10000-01-01", np.datetime64("10000-01-01", "D")),
        ("time", b"23:59:59.9", datetime.time(23, 59, 59, 900000)),
        ("timestamp", b"2024-02-29 12:34:56.000001", datetime.datetime(2024, 2, 29, 12, 34, 56, 1)),
        ("timestamp", b"0044-03-15 12:00:00 BC", np.datetime64("-0043-03-15T12:00:00", "us")),
        (
            "timestamptz",
            b"2024-02-03 09:35:06.7+05:30",
            datetime.datetime(2024, 2, 3, 4, 5, 6, 700000, tzinfo=datetime.timezone.utc),
        ),
        (
            "timestamptz",
            b"1883-11-18 12:00:00-04:56:02",
            datetime.datetime(1883, 11, 18, 16, 56, 2, tzinfo=datetime.timezone.utc),
        ),
        ("timestamptz", b"0044-03-15 12:00:00+00 BC", np.datetime64("-0043-03-15T12:00:00", "us")),
        ("interval", b"1 year 2 mons -3 days +04:05:06.789", Interval(14, -3, 14706789000)),
        ("interval", b"-1 years -2 mons +3 days -04:05:06.789", Interval(-14, 3, -14706789000)),
        ("interval", b"00:00:00", Interval(0, 0, 0)),
        ("interval", b"-00:00:00.000001", Interval(0, 0, -1)),
    ]

    representable = [
        ("timestamp", b"294247-01-10 04:00:54.775807", {}, np.datetime64(INT64_MAX, "us")),
        ("date", b"5874897-12-31", {}, np.datetime64(MAX_DATE, "D")),
        ("interval", b"2562047:47:16.854775", {}, Interval(0, 0, 9223372036854775)),
        ("time", b"24:00:00", {"arrow_types": ROW_TYPES}, "24:00:00"),
        ("interval", b"infinity", {"intervals": "string"}, "infinity"),
        (
            "interval",
            b"-1 years -2 mons +3 days -04:05:06.789",
            SUMS,
            -datetime.timedelta(days=365.25 + 60 - 3, hours=4, minutes=5, seconds=6.789),
        ),
        ("interval", b"23 mons", SUMS, datetime.timedelta(days=365.25 + 330)),
        ("interval", b"292271 years", SUMS, datetime.timedelta(microseconds=9223371309600000000)),
        ("interval", b"2562047788:00:54.775807", SUMS, datetime.timedelta(microseconds=INT64_MAX)),
        ("interval[]", b'{"1 day",NULL}', SUMS, [datetime.timedelta(days=1), None]),
    ]

    unrepresentable = [
        ("date", b"infinity", {}, INT32_MAX),
        ("date", b"-infinity", {}, INT32_MIN),
        ("timestamp", b"infinity", {}, INT64_MAX),
        ("timestamp", b"-infinity", {}, -INT64_MAX),
        ("timestamptz", b"294276-12-31 23:59:59.999999+00", {}, INT64_MAX),
        ("time", b"24:00:00", {}, 86_399_999_999),
        ("interval", b"infinity", {}, (INT32_MAX, INT32_MAX, INT64_MAX)),
        ("interval", b"-infinity", {}, (INT32_MIN, INT32_MIN, INT64_MIN)),
        ("interval", b"1 mon 2562047788:00:54.775807", {}, (1, 0, INT64_MAX)),
        ("interval", b"-2562047788:00:54.775807", {}, (0, 0, INT64_MIN)),
        ("interval", b"infinity", SUMS, INT64_MAX),
        ("interval", b"-infinity", SUMS, -INT64_MAX),
        ("interval", b"1 mon 2562047788:00:54.775807", SUMS, INT64_MAX),
        ("interval", b"-178000000 years", SUMS, -INT64_MAX),
        ("interval", b"-2562047788:00:54.775808", SUMS, -INT64_MAX),
    ]

    malformed_text = [
        ("date", b"2023-02-29", "bad_value", 0),
        ("date", b"1900-02-29", "bad_value", 0),
        ("date", b"0000-01-01", "bad_value", 0),
        ("date", b"2024-13-01", "bad_value", 0),
        ("date", b"2024-00-01", "bad_value", 0),
        ("date", b"2024-04-31", "bad_value", 0),
        ("date", b"5874898-01-01", "bad_value", 0),
        ("date", b"4714-11-23 BC", "bad_value", 0),
        ("date", b"24-01-01", "bad_value", 0),
        ("time", b"24:00:00.000001", "bad_value", 0),
        ("time", b"23:60:00", "bad_value", 0),
        ("time", b"23:59:60", "bad_value", 0),
        ("time", b"1:00:00", "bad_value", 0),
        ("timestamp", b"2024-01-01 24:00:00", "bad_value", 0),
        ("timestamp", b"2024-01-01 00:00:00+00", "bad_value", 0),
        ("timestamp", b"2024-01-01T00:00:00", "bad_value", 0),
        ("timestamp", b"294277-01-01 00:00:00", "bad_value", 0),
        ("timestamptz", b"2024-01-01 00:00:00", "bad_value", 0),
        ("timestamptz", b"294276-12-31 23:59:59-01", "bad_value", 0),
        ("timestamptz", b"2024-01-01 00:00:00 UTC", "bad_value", 0),
        ("interval", b"", "bad_value", 0),
        ("interval", b" 1 day", "bad_value", 0),
        ("interval", b"1 day ", "bad_value", 0),
        ("interval", b"1 day 1 year", "bad_value", 0),
        ("interval", b"1 day 00:60:00", "bad_value", 0),
        ("interval", b"178956971 years", "bad_value", 0),
        ("interval", b"2147483648 days", "bad_value", 0),
        ("interval", b"2562047788:00:54.775808", "bad_value", 0),
    ]

    malformed_binary = [
        ("date", struct.pack(">i", -2451546), "bad_value", 0),
        ("date", struct.pack(">i", 2145031949), "bad_value", 0),
        ("time", struct.pack(">q", 86_400_000_001), "bad_value", 0),
        ("time", struct.pack(">q", -1), "bad_value", 0),
        ("timestamp", struct.pack(">q", 9223371331200000000), "bad_value", 0),
        ("timestamp", struct.pack(">q", -211813488000000001), "bad_value", 0),
        ("timetz", struct.pack(">qi", 0, 57600), "bad_value", 8),
        ("interval", bytes(15), "bad_length", 0),
    ]

    arrow_types = [
        ("time", pa.array([1, 86_399, None], pa.int32()).cast(pa.time32("s"))),
        ("timestamp", pa.array([-1_500, 10**12, None]).cast(pa.timestamp("ms"))),
        ("timestamptz", pa.array([-1_000, 10**18, None]).cast(pa.timestamp("ns", "Europe/Berlin"))),
        ("date", pa.array(["2024-02-29", "infinity", None])),
    ]
    unwritable = [
        ("date", pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32()), -1, "a date from 4714"),
        ("timestamp", pa.array([0, -(2**62)]).cast(pa.timestamp("us")), -1, "4714-11-24 BC"),
        ("timestamp", pa.array([0, 2**62]).cast(pa.timestamp("s")), -1, "294276"),
        (
            "timestamptz",
            pa.array([0, 1]).cast(pa.timestamp("ns", "UTC")),
            -1,
            "whole microseconds, not 1 ns",
        ),
        (
            "interval",
            pa.array([pa.MonthDayNano([0, 0, 0]), pa.MonthDayNano([0, 0, 1])]),
            -1,
            "1 ns",
        ),
        ("date", pa.array(["2024-01-01", "1.2.2024"]), -1, "a date as 2024-02-29"),
    ]
    random_values = {
        "date": _DAYS.map(lambda days: struct.pack(">i", days)),
        "time": st.integers(0, 86_400_000_000).map(lambda micros: struct.pack(">q", micros)),
        "timestamp": _TIMESTAMPS,
        "timestamptz": _TIMESTAMPS,
        "interval": st.tuples(signed(64), signed(32), signed(32)).map(
            lambda parts: struct.pack(">qii", *parts)
        ),
    }
    mixed = {
        "date": (b"2024-02-29", "00002279", b"0044-03-15 BC"),
        "timestamptz": (b"2024-02-29 12:00:00+00", "0002b582c4781000", b"infinity"),
        "interval": (b"1 day 02:03:04.5", "000000000016e360ffffffff00000000", b"infinity"),
    }
    by_kernel = [
        ("date", "9999-12-31"),
        ("time", "23:59:59.999999"),
        ("timestamp", "0001-01-01 00:00:00.1"),
        ("timestamptz", "2024-02-29 12:34:56.789+05:30"),
        ("interval", "-1 years -2 mons +3 days -04:05:06.789"),
    ]

    alike = [
        (
            "date",
            [b"2024-02-29", b"0001-01-01", b"9999-12-31"],
            b"2023-02-29 0000-01-01 2024-00-10 2024-13-01 2024-31-01 2024-01-00 2024-01-32 "
            b"2024/01/01 24-01-01 10000-01-01 202a-01-01 infinity \xff\xff\xff\xff-01-01".split(
                b" "
            ),
        ),
    ]


@given(st.integers(MIN_DATE, MAX_DATE))
def test_date_round_trip(codec: Implementation, days: int) -> None:
    raw = struct.pack(">i", days - 10957)
    text = one(codec, "date", raw, binary=True, types="text").encode()
    for form, binary in ((text, False), (raw, True)):
        array = decode(codec, "date", [form], binary=binary).array
        assert array.buffers[0].tolist() == [days]
    year, month, day = date_from_days(days)
    assert np.datetime64(days, "D") == np.datetime64(f"{year}-{month:02d}-{day:02d}", "D")


@given(st.integers(-211_813_488_000_000_000, 9_223_371_331_199_999_999))
def test_timestamp_round_trip(codec: Implementation, micros: int) -> None:
    raw = struct.pack(">q", micros)
    for kind in ("timestamp", "timestamptz"):
        text = one(codec, kind, raw, binary=True, types="text").encode()
        by_text = decode(codec, kind, [text], unrepresentable="clamp")
        by_binary = decode(codec, kind, [raw], binary=True, unrepresentable="clamp")
        wanted = min(micros + 946_684_800_000_000, INT64_MAX)
        assert by_text.array.buffers[0].tolist() == [wanted]
        assert by_binary.array.buffers[0].tolist() == [wanted]
        assert by_text.invalid.tolist() == by_binary.invalid.tolist()


@given(
    st.integers(INT32_MIN, INT32_MAX),
    st.integers(INT32_MIN, INT32_MAX),
    st.integers(INT64_MIN // 1000 + 1, INT64_MAX // 1000),
)
def test_interval_round_trip(codec: Implementation, months: int, days: int, micros: int) -> None:
    raw = struct.pack(">qii", micros, days, months)
    assert one(codec, "interval", raw, binary=True) == Interval(months, days, micros)
    text = one(codec, "interval", raw, binary=True, types="text")
    assert one(codec, "interval", text.encode()) == Interval(months, days, micros)


_CLOCK = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
_ZONE = st.from_regex(rb"[-+][0-9]{2}(:[0-9]{2}){0,2}", fullmatch=True)


@pytest.mark.differential
@settings(max_examples=300)
@given(_CLOCK, st.integers(0, 6), _ZONE)
def test_any_time(when: datetime.datetime, decimals: int, zone: bytes) -> None:
    shown = when.isoformat(" ", "microseconds")
    shown = shown[: 20 + decimals] if decimals else shown[:19]
    same_values(type_of("date"), [(shown[:10].encode(), False)], lead=0)
    same_values(type_of("time"), [(shown[11:].encode(), False)], lead=0)
    same_values(type_of("timestamp"), [(shown.encode(), False)], lead=0)
    same_values(type_of("timestamptz"), [(shown.encode() + zone, False)], lead=0)


@pytest.mark.differential
@given(
    st.from_regex(
        rb"([-+]?[0-9]{1,10} years? ?)?([-+]?[0-9]{1,3} mons? ?)?([-+]?[0-9]{1,11} days?)?"
        rb"( ?[-+]?[0-9]{1,11}:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,7})?)?",
        fullmatch=True,
    )
)
def test_any_interval(text: bytes) -> None:
    same_values(type_of("interval"), [(text, False)], policy="clamp")


def test_every_day_of_the_calendar(codec: Implementation) -> None:
    day = datetime.date(1, 1, 1).toordinal()
    ordinals = range(day, datetime.date.max.toordinal(), 11)
    texts = [datetime.date.fromordinal(n).isoformat().encode() for n in ordinals]
    epoch = datetime.date(1970, 1, 1).toordinal()
    days = decode(codec, "date", texts).array.buffers[0]
    assert days.tolist() == [n - epoch for n in ordinals]


@pytest.mark.differential
def test_days_that_the_calendar_has_not() -> None:
    for year in (1900, 2000, 2023, 2024, 2100):
        for month in range(14):
            for day in range(33):
                same_values(type_of("date"), [(b"%04d-%02d-%02d" % (year, month, day), False)])


@pytest.mark.differential
@pytest.mark.parametrize(("policy", "null_count"), [("null", 2), ("clamp", 0)])
def test_infinite_times_do_not_need_the_reference(
    policy: str, null_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(reference_values, "decode_values")
    decode_values = implementation("cython").decode_values
    for name in ("date", "timestamp", "timestamptz"):
        rows = [(b"infinity", False), (b"-infinity", False)]
        got = decode_values(type_of(name), *laid_out(rows), unrepresentable=policy)
        assert (got.array.null_count, got.invalid.tolist()) == (null_count, [0, 1])

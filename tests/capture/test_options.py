"""Options of a capture: pgoutput's by the server's version, segments, limits."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import fields
from itertools import product
from typing import Any, get_type_hints

import pytest

from pgwire_codec.capture import PluginOptions, SegmentOptions
from pgwire_codec.capture.options import BatchLimits, PluginKeywords
from pgwire_codec.errors import CaptureError, OptionError


@pytest.mark.parametrize("version", [120000, 140000, 180000])
def test_reads_what_it_has_written(version: int) -> None:
    everything: dict[str, list[Any]] = {
        "publication": ["p", ('A "b", c', "P")],
        "binary": [False, True],
        "streaming": ["off", "on", "parallel"],
        "two_phase": [False, True],
        "messages": [False, True],
        "origin": [None, "any", "none"],
    }
    assert set(everything) == {field.name for field in fields(PluginOptions)}
    read = 0
    for values in product(*everything.values()):
        options = PluginOptions(**dict(zip(everything, values, strict=True)))
        try:
            written = options.negotiate(version)
        except CaptureError:
            continue  # too old for an option
        assert PluginOptions.from_plugin(written) == options
        read += 1
    assert read > 1


@pytest.mark.parametrize(
    ("version", "protocol"),
    [
        (100023, "1"),
        (120022, "1"),
        (130023, "1"),
        (140020, "2"),
        (150018, "3"),
        (160014, "4"),
        (180004, "4"),
    ],
)
def test_takes_the_highest_protocol_of_the_server(version: int, protocol: str) -> None:
    options = PluginOptions(("p",)).negotiate(version)
    assert options["proto_version"] == protocol


def test_asks_for_messages_where_the_server_can() -> None:
    assert "messages" not in PluginOptions(("p",)).negotiate(130000)
    assert PluginOptions(("p",)).negotiate(140000)["messages"] == "true"
    assert "messages" not in PluginOptions(("p",), messages=False).negotiate(140000)


def test_passes_on_all_that_is_asked() -> None:
    options = PluginOptions(
        ("p", 'Q"s'),
        binary=True,
        streaming="parallel",
        two_phase=True,
        messages=True,
        origin="none",
    )
    assert options.negotiate(160000) == {
        "proto_version": "4",
        "publication_names": '"p","Q""s"',
        "binary": "true",
        "streaming": "parallel",
        "two_phase": "on",
        "messages": "true",
        "origin": "none",
    }


@pytest.mark.parametrize(
    ("option", "first"),
    [
        ({"binary": True}, 14),
        ({"messages": True}, 14),
        ({"streaming": "on"}, 14),
        ({"streaming": "parallel"}, 16),
        ({"two_phase": True}, 15),
        ({"origin": "any"}, 16),
    ],
)
def test_refuses_what_the_server_cannot_do(option: dict[str, Any], first: int) -> None:
    options = PluginOptions(("p",), **option)
    options.negotiate(first * 10000)
    with pytest.raises(CaptureError, match=f"{next(iter(option))}=.* needs PostgreSQL {first}"):
        options.negotiate((first - 1) * 10000 + 9999)


def test_refuses_a_server_without_pgoutput() -> None:
    with pytest.raises(CaptureError, match="needs PostgreSQL 10; the server is PostgreSQL 9"):
        PluginOptions(("p",)).negotiate(90624)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"publication": ()}, "publication"),
        ({"publication": ("",)}, "publication"),
        ({"publication": ("p",), "streaming": "yes"}, "streaming"),
        ({"publication": ("p",), "origin": "all"}, "origin"),
    ],
)
def test_refuses_nonsense(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        PluginOptions(**arguments)


def test_keywords_are_the_fields() -> None:
    names = {"Sequence": Sequence}  # which the module imports for type checkers only
    keywords = get_type_hints(PluginKeywords, localns=names)
    assert keywords == get_type_hints(PluginOptions, localns=names)


def test_keywords_go_over_an_object() -> None:
    options = PluginOptions("p", binary=True)
    assert PluginOptions.of(options, {}) == options
    assert PluginOptions.of(options, {"streaming": "on"}) == PluginOptions(
        ["p"], binary=True, streaming="on"
    )
    assert PluginOptions.of(None, {"publication": "q"}).publications == ("q",)
    with pytest.raises(TypeError, match="publication"):
        PluginOptions.of(None, {"binary": True})


def test_a_log_takes_the_same_segments_by_default() -> None:
    from pgwire_codec.log import LogWriter

    defaults = inspect.signature(LogWriter).parameters
    for field in fields(SegmentOptions):
        assert defaults[field.name].default == field.default


@pytest.mark.parametrize(
    ("limit", "value"),
    [("max_messages", 0), ("max_bytes", 0), ("max_bytes", (1 << 30) + 1), ("max_seconds", 0)],
)
def test_refuses_limits_of_nothing(limit: str, value: int) -> None:
    with pytest.raises(OptionError, match=f"{limit} must be .*, not {value}"):
        BatchLimits(**{limit: value})

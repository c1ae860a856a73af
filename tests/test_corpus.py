"""The corpus is whole, and its loader reads what the files hold."""

from __future__ import annotations

import pytest

from tests.support.corpus import Capture, capture, captures, truth


def test_every_capture_is_there() -> None:
    assert len(captures()) == 171
    assert sum(len(each.messages) for each in captures()) == 161_578
    assert {each.major for each in captures()} == set(range(12, 19))


def test_narrowing() -> None:
    chosen = captures("dml", options="v4-parallel", major=18)
    assert [each.name for each in chosen] == ["dml.pg18.v4-parallel"]
    with pytest.raises(KeyError):
        capture("dml.pg11.v1-text")


def test_fields_of_a_capture() -> None:
    german = capture("settings.pg12.german")
    assert german.session == ("datestyle = 'German, DMY'",)
    assert german.pgoutput == {"proto_version": "1", "publication_names": "p"}
    assert german.messages[0].hex() == "42000000000264f568000303b77a4a2ce8000018e4"
    assert (german.lsns[0], german.xids[0]) == (40170576, 6372)
    assert capture("dml.pg18.v4-parallel").session == ()


@pytest.mark.parametrize("each", captures(), ids=str)
def test_columns_have_one_length_and_truth_is_there(each: Capture) -> None:
    assert len(each.messages) == len(each.lsns) == len(each.xids) > 0
    assert truth(each)

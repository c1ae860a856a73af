"""The file of ``pgwire-codec run``: its options are those of the commands, and all are checked."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from pgwire_codec.cli import USAGE
from pgwire_codec.cli.failure import Failure
from pgwire_codec.cli.run_file import (
    COMMANDS,
    LEFT_OUT,
    SHARED,
    options_of,
    read_run_file,
    readable_secret,
)
from pgwire_codec.cli.run_template import literal, render
from tests.support.commands import run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SMALL = """
log = "shop.log"
[capture]
slot = "s"
publication = "p"
[mirror]
to = "delta:lake"
runner = "local"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "shop.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_arguments_are_those_of_the_commands(tmp_path: Path) -> None:
    text = """
        log = "shop.log"
        [capture]
        dsn = "service=shop"
        slot = "-s"
        publication = ["p", "q"]
        jobs = 2
        flush-seconds = 0.5
        snapshot = true
        failover = false
        messages = false
        consumer = "file:checkpoint/lsn"
        [mirror]
        to = "delta:lake"
        soft-deletes = true
        mask-key-file = "key"
        conf = ["a=b"]
        [mirror.mask]
        "public.users.email" = "drop"
        "*.name" = "hash"
    """
    (tmp_path / "key").write_bytes(b"0123456789abcdef")
    found = read_run_file(written(tmp_path, text))
    assert found.arguments == {
        "capture": [
            *("--log=shop.log", "--dsn=service=shop", "--slot=-s", "--publication=p"),
            *("--publication=q", "--jobs=2", "--flush-seconds=0.5", "--snapshot", "--no-messages"),
            "--consumer=file:checkpoint/lsn",
        ],
        "mirror": [
            *("--log=shop.log", "--to=delta:lake", "--soft-deletes", "--mask-key-file=key"),
            *("--conf=a=b", "--mask=public.users.email=drop", "--mask=*.name=hash"),
        ],
    }
    assert found.values["capture"]["slot"] == "-s"
    assert found.values["mirror"]["conf"] == {"a": "b"}
    assert found.folder == tmp_path


def test_a_section_is_enough(tmp_path: Path) -> None:
    found = read_run_file(written(tmp_path, 'log = "l"\n[mirror]\nto = "delta:lake"'))
    assert list(found.arguments) == ["mirror"]


@pytest.mark.parametrize(
    ("change", "error", "hint"),
    [
        (("slot =", "slt ="), "[capture] slt: unknown option", "Did you mean slot? [capture] can"),
        (("slot =", "json = true #"), "[capture] json: unknown option", "[capture] can have add-"),
        (("[mirror]", "[miror]"), "[miror]: unknown option", "Did you mean mirror? The file can"),
        (('log = "shop.log"', ""), "log: is missing", "Write it before the first section."),
        (('"shop.log"', "1"), "log: must be a string, not 1", "Write it before the first section."),
        (("log =", 'dsn = ""\nlog ='), "dsn: is not in a section", "Write it into [capture]."),
        (("slot =", 'log = "l" #'), "[capture] log: is in a section", "Write it before the first"),
        (("log =", "metrics = 1\nlog ="), "metrics: must be a string, not 1", None),
        (("log =", 'metrics = "9"\nlog ='), "metrics: invalid address '9'", "Use HOST:PORT, as"),
        (("slot =", "#"), "[capture] slot: is missing", None),
        (('"s"', "5"), "[capture] slot: must be a string, not 5", None),
        (('"s"', "{}"), "[capture] slot: must be a string, not a table", None),
        (('"p"', "[true]"), "publication: must be a string or an array of them, not true", None),
        (("slot =", 'jobs = "2" #'), "[capture] jobs: must be a number, not '2'", None),
        (("slot =", "jobs = 0 #"), "[capture] jobs: 0 is not in the range x>=1.", None),
        (("slot =", "jobs = 1.5 #"), "[capture] jobs: '1.5' is not a valid integer", None),
        (("slot =", "binary = 1 #"), "[capture] binary: must be true or false, not 1", None),
        (("slot =", 'keep = "a" #'), "[capture] keep: 'a' is not a time such as 7d", None),
        (("to =", 'mask = "a" \nto ='), "[mirror] mask: 'a' is not COLUMN=MASK", None),
        (("to =", "mask.a.b = 'drop' \nto ="), "mask.a: must be a string", "Put a name that"),
        (("to =", 'mask-key-file = "k" \nto ='), "[mirror] mask-key-file: 'k': No such file", None),
        (("to =", "mask = {a = 'hash'} \nto ="), "[mirror]: the mask hash needs a key", None),
        (("delta:", "iceberg:"), "iceberg:lake is in a catalog of Spark", "Use the Spark runner"),
        (('"p"', "p"), "is not TOML: ", None),
        (("[mirror]", "[capture]"), "is not TOML: ", None),
    ],
)
def test_errors_name_the_option(
    tmp_path: Path, change: tuple[str, str], error: str, hint: str | None
) -> None:
    path = written(tmp_path, SMALL.replace(*change))
    with pytest.raises(Failure) as raised:
        read_run_file(path)
    assert raised.value.exit_code == USAGE
    assert raised.value.message.startswith(str(path))
    assert error in raised.value.message
    assert (raised.value.hint or "").startswith(hint or "")
    assert (hint is None) == (raised.value.hint is None)


def test_nothing_starts_with_an_invalid_file(tmp_path: Path) -> None:
    path = written(
        tmp_path, SMALL.replace("delta:lake", "delta:lake'\nevery='soon").replace('"', "'")
    )
    result = run("run", path)
    assert result.exit_code == USAGE
    assert result.stderr.startswith(f"Error: {path}: [mirror]: --every: 'soon' is not a time")
    assert result.stdout == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_those_of_the_command(command: str) -> None:
    params = COMMANDS[command].params
    names = {each.opts[0].removeprefix("--") for each in params if isinstance(each, click.Option)}
    assert names - options_of(command).keys() == {*LEFT_OUT[command], *SHARED}


def test_the_template_has_all_options(tmp_path: Path) -> None:
    values: dict[str, dict[str, Any]] = {
        "capture": {"slot": "s", "publication": "p", "snapshot": True, "consumer": ["file:a"]},
        "mirror": {"to": "delta:lake", "runner": "local"},
    }
    text = render("shop.toml", "shop.log", values)
    read = tomllib.loads(text)
    assert {name: read[name] for name in COMMANDS} == values
    assert (read["log"], '\n# metrics = "HOST:PORT"\n' in text) == ("shop.log", True)
    assert max(map(len, text.splitlines())) <= 100
    found = read_run_file(written(tmp_path, text))
    assert "--runner=local" in found.arguments["mirror"]
    uncommented = tomllib.loads(re.sub(r"^# (?=[a-z-]+ = )", "", text, flags=re.MULTILINE))
    for command in COMMANDS:
        assert uncommented[command].keys() == options_of(command).keys()


@pytest.mark.parametrize("text", ["", "a'b\"c\\d", "\x7f\n\t\x00", "é", "\U0001f600"])
def test_literals(text: str) -> None:
    value = {"text": text, "list": [text, text], "pairs": {text: text}, "flag": True, "number": 2}
    lines = "\n".join(f"{name} = {literal(each)}" for name, each in value.items())
    assert tomllib.loads(lines) == value


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_a_password_that_others_can_read(tmp_path: Path) -> None:
    path = written(tmp_path, 'log = "l"\n[mirror]\nto = "delta:lake"')
    path.chmod(0o644)
    assert readable_secret(read_run_file(path)) is None
    path = written(tmp_path, SMALL.replace("slot", 'dsn = "host=db password=secret"\nslot', 1))
    path.chmod(0o600)
    assert readable_secret(read_run_file(path)) is None
    path.chmod(0o640)
    warning = readable_secret(read_run_file(path))
    assert warning is not None
    assert warning.splitlines() == [
        f"{path} contains a password, and other users may read it",
        f"hint: Type: chmod 600 {path}",
    ]
    assert "secret" not in warning

"""No part of a password in an error, however the DSN is mistyped."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pgwire_codec.capture import Capture, LogCapture, peek
from pgwire_codec.capture.connection.connect import connect, connect_walsender, current_lsn
from pgwire_codec.capture.connection.dsn import shows_secret
from pgwire_codec.capture.lag import LagMeter
from pgwire_codec.cli.app import app
from pgwire_codec.errors import CaptureError
from tests.support.error_style import check_style
from tests.support.servers import Database
from tests.support.slot_captures import wait_until

#: Characters that end something in a URI or in key=value form, and some that do not.
NASTY = "%@[]:/?#&='\"\\ ,;+~é\t"
PASSWORDS = st.text(st.sampled_from(NASTY + "QXZJqxyzj789"), min_size=4, max_size=24)
_NOWHERE = "/nowhere/at/all"
_SOCKET = (
    "SELECT split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port')"
)


def _escaped(password: str) -> str:
    return password.replace("\\", "\\\\").replace("'", "\\'")


#: DSNs with a gap for the password, and how it is written there.
FORMS: dict[str, tuple[str, Callable[[str], str]]] = {
    "uri": (f"postgresql://me:{{}}@/shop?host={_NOWHERE}", lambda p: quote(p, safe="")),
    "uri raw": ("postgresql://me:{}@localhost:1/shop", str),
    "uri raw, socket": (f"postgresql://me:{{}}@/shop?host={_NOWHERE}", str),
    "uri raw, bracket": ("postgres://me:{}@[::1/shop", str),
    "uri without host": ("postgresql://me:{}/shop", str),
    "uri with one slash": ("postgresql:/me:{}@localhost:1/shop", str),
    "no scheme": ("me:{}@localhost:1/shop", str),
    "uri parameter": (f"postgresql:///shop?host={_NOWHERE}&password={{}}", str),
    "uri parameter, quoted": (
        f"postgresql:///shop?password={{}}&host={_NOWHERE}",
        lambda p: quote(p, safe=""),
    ),
    "uri percent": ("postgresql://me:{}%zz@localhost:1/shop", lambda p: quote(p, safe="")),
    "words": (f"host={_NOWHERE} user=me password='{{}}' dbname=shop", _escaped),
    "words raw": (f"host={_NOWHERE} user=me password={{}} dbname=shop", str),
    "words raw, at the end": (f"host={_NOWHERE} user=me dbname=shop password={{}}", str),
    "words in quotes, raw": (f"host={_NOWHERE} password='{{}}' user=me", str),
    "an open quote": (f"host={_NOWHERE} password='{{}} user=me", _escaped),
    "a stray word": (f"host={_NOWHERE} password=my {{}} user=me", str),
    "no equals sign": (f"host={_NOWHERE} password {{}} user=me", str),
    "a colon": (f"host={_NOWHERE} user=me password:{{}}", str),
    "in the user": (f"host={_NOWHERE} user='me:{{}}'", _escaped),
    "in the host": ("host='me:{}@localhost' port=1", _escaped),
    "the key of a certificate": (f"host={_NOWHERE} sslpassword={{}} sslmode=require", str),
}
DSNS = st.sampled_from(sorted(FORMS))


@cache
def fixed_text() -> str:
    """Tracebacks of the same errors with a password that has nothing in common with it."""
    said = []
    for form, _ in FORMS.values():
        with pytest.raises(CaptureError) as caught:
            connect(form.format("%ÄÖÜÄÖÜ"))
        said.append(everything_of(caught.value))
    return "".join(said)


def leaks(text: str, password: str, form: str) -> list[str]:
    """Runs of the password in a text that are neither in the rest of the DSN nor in our words."""
    runs = {password[start : start + 4] for start in range(len(password) - 3)}
    return sorted(run for run in runs if run in text and run not in form + fixed_text())


def written(name: str, password: str) -> tuple[str, str]:
    """The DSN of a form, and the form."""
    form, write = FORMS[name]
    if name == "uri without host":
        # libpq reads it as host:port,host or host:port/dbname, or as password@host.
        assume(not password[:1].isdigit() and password[:1] not in ",/?" and "@" not in password)
    return form.format(write(password)), form


def everything_of(error: BaseException) -> str:
    """All that a program may print of an exception, and of those that it keeps."""
    printed = "".join(traceback.format_exception(error))
    said = [line for line in printed.splitlines() if not line.startswith("  ")]  # without our code
    seen = {id(error)}
    waiting = [error.__cause__, error.__context__]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            said += [str(each), repr(each)]
            waiting += [each.__cause__, each.__context__]
    return "\n".join([str(error), repr(error), *said])


def failure(function: Callable[[], Any]) -> str:
    try:
        function()
    except CaptureError as error:
        return everything_of(error)
    return ""  # parsed as something else, or nothing had to be connected to


@given(name=DSNS, password=PASSWORDS)
@example(name="uri raw", password="xyzx@jxzjq")
@example(name="uri raw", password="xyzx/jxzjq")
@example(name="uri raw", password="7/xzjqx@zjqx")
@example(name="uri without host", password="xyzxjxzjq")
@example(name="words raw", password="xyzx jxzjq")
@example(name="words raw", password="xyzx jxzjq=zjqx")
@example(name="uri parameter", password="xyzx&jxzjq=zjqx")
def test_errors(name: str, password: str) -> None:
    dsn, form = written(name, password)
    for function in (connect, connect_walsender, current_lsn):
        assert leaks(failure(lambda f=function: f(dsn)), password, form) == []


@settings(max_examples=30)
@given(name=DSNS, password=PASSWORDS)
def test_public_names(name: str, password: str) -> None:
    dsn, form = written(name, password)
    arguments = {"slot": "s", "publication": "p"}
    capture = LogCapture(dsn, "/nowhere/log", **arguments, max_retries=0)
    said = [
        failure(Capture(dsn, **arguments).__enter__),
        failure(lambda: peek(dsn, **arguments)),
        failure(capture.run),
        str(capture.status),
        failure(LogCapture(dsn, "/nowhere/log", **arguments, max_retries=0, snapshot=True).run),
    ]
    assert leaks("".join(said), password, form) == []


@pytest.mark.slow
@settings(max_examples=30)
@given(name=DSNS, password=PASSWORDS, retries=st.sampled_from(["0", "1"]))
def test_command(name: str, password: str, retries: str) -> None:
    dsn, form = written(name, password)
    command = ["capture", "--dsn", dsn, "--slot", "s", "--publication", "p", "--log", "/nowhere"]
    result = CliRunner().invoke(app, [*command, "--json", "--max-retries", retries])
    assert result.exit_code in (3, 4)
    assert json.loads(result.stdout.splitlines()[-1])["state"] == "failed"
    problems = [str(json.loads(line)["problem"]) for line in result.stdout.splitlines()]
    assert leaks(result.output + "".join(problems), password, form) == []


@given(password=PASSWORDS)
def test_password_of_the_environment(password: str) -> None:
    """A password that is a part of another value: libpq shows that one."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PGPASSWORD", password)
        said = failure(lambda: connect(f"host='{_escaped(password)}' port=1"))
    assert leaks(said, password, "") == []


def test_a_dsn_that_the_shell_has_split() -> None:
    for command in (["capture", "--slot", "s", "--publication", "p", "--log", "l"], ["demo"]):
        for words in (["password=my", "xyzx", "user=me"], ["postgresql://me:my", "xyzx@h/shop"]):
            result = CliRunner().invoke(app, [*command, "--dsn", *words])
            assert result.exit_code == 2
            assert "quotes" in result.output
            assert "xyzx" not in result.output


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        ("nonsense", "not followed by ="),
        ("password='x", "single quote"),
        ("hots=x", "option that libpq does not know"),
        ("postgresql://me:%zz@h", "%25"),
        ("postgresql://[::1", "no valid host"),
        ("postgresql://h/d?a", "after ?"),
        ("postgresql://h/d?a=b", "after ?"),
        ("postgresql://h/d?a=b=c", "after ?"),
        ("host=a\0b", "NUL"),
        ("host=a\udcff", "UTF-8"),
        ("postgresql://me:%87@h", "UTF-8"),
    ],
)
def test_faults_are_named(dsn: str, said: str) -> None:
    with pytest.raises(CaptureError) as caught:
        connect(dsn)
    text, _ = check_style(caught.value)
    assert text.startswith("invalid DSN: ")
    assert said in str(caught.value)
    assert caught.value.__context__ is None


def test_words_of_libpq_without_a_secret_are_shown() -> None:
    dsn = f"postgresql://me:xyzxjxzjq@/shop?host={_NOWHERE}"
    with pytest.raises(CaptureError, match=r"No such file or directory"):
        connect(dsn)
    assert not shows_secret("anything else", dsn)
    assert shows_secret("of it: xzjq", dsn)
    assert not shows_secret("of it: zjq", dsn)
    assert shows_secret("of it: ab", "host=/nowhere password=ab")
    assert not shows_secret("of it: a", "host=/nowhere password=ab")


def test_lag_meter(capfd: pytest.CaptureFixture[str]) -> None:
    with LagMeter("host=/nowhere password=xyzx jxzjq") as meter:
        assert meter.measure(LogCapture("", "", slot="s", publication="p").status) is None
    assert not any(capfd.readouterr())


def test_on_a_terminal(tmp_path: Path) -> None:
    """The panel, and the error below it."""
    from tests.support.terminal import shown

    for dsn in (f"host={_NOWHERE} password=xyzx@jxzjq", "postgresql://me:xyzx@jxzjq@localhost:1/d"):
        output, status = shown(
            "capture", "--dsn", dsn, "--slot", "s", "--publication", "p",
            "--log", str(tmp_path / "log"), "--max-retries", "1",
        )  # fmt: skip
        assert status == 3
        assert "could not connect" in output
        assert leaks(output, "xyzx@jxzjq", "") == []


@pytest.mark.slow
class TestServer:
    @pytest.fixture
    def locked(self, pg: Database) -> tuple[Database, str]:
        """A role that has to give its password."""
        role = pg.create_role("REPLICATION PASSWORD 'xyzx jxzjq@1'")
        [(path,)] = pg.query("SHOW hba_file")
        before = Path(path).read_text()
        Path(path).write_text(f"local all,replication {role} scram-sha-256\n{before}")
        pg.query("SELECT pg_reload_conf()")
        assert wait_until(
            lambda: pg.query("SELECT user_name[1] FROM pg_hba_file_rules")[0] == (role,)
        )
        return pg, role

    def dsn(self, made: Database, **options: str) -> str:
        [(host, port)] = made.query(_SOCKET)
        words = {"host": host, "port": port, "dbname": made.name, **options}
        return " ".join(f"{name}='{_escaped(value)}'" for name, value in words.items())

    def test_wrong_password(self, locked: tuple[Database, str]) -> None:
        made, role = locked
        for password in ("zjqx jxzjq", "", f"{role}xyzx"):
            dsn = self.dsn(made, user=role, **({"password": password} if password else {}))
            for function in (connect, connect_walsender):
                with pytest.raises(CaptureError) as caught:
                    function(dsn)
                assert not caught.value.is_transient
                assert "password" in str(caught.value)
                assert leaks(everything_of(caught.value), password, "") == []

    def test_right_password_of_another_database(self, locked: tuple[Database, str]) -> None:
        made, role = locked
        dsn = self.dsn(made, user=role, password="xyzx jxzjq@1", dbname="absent")
        with pytest.raises(CaptureError, match='database "absent" does not exist') as caught:
            connect(dsn)
        assert leaks(everything_of(caught.value), "xyzx jxzjq@1", "") == []

    def test_password_in_the_name_of_the_database(self, locked: tuple[Database, str]) -> None:
        made, role = locked
        [(host, port)] = made.query(_SOCKET)
        dsn = (
            f"postgresql://me:1/xyzx jxzjq@h/d?host={quote(host, safe='')}&port={port}&user={role}"
        )
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("PGPASSWORD", "xyzx jxzjq@1")
            with pytest.raises(CaptureError, match="does not exist") as caught:
                connect(dsn)
        assert leaks(everything_of(caught.value), "xyzx jxzjq@1", "") == []

    def test_right_password(self, locked: tuple[Database, str]) -> None:
        made, role = locked
        connect(self.dsn(made, user=role, password="xyzx jxzjq@1")).close()

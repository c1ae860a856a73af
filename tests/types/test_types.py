"""OIDs, type modifiers and options: which Arrow type a column becomes."""

from __future__ import annotations

import pickle

import pytest

from pgwire_codec.errors import OptionError
from pgwire_codec.lake.row_types import ROW_TYPES
from pgwire_codec.types import (
    ColumnType,
    PgType,
    TypeOptions,
    TypeRegistry,
    UserType,
    column_type,
    forms_agree,
    register_type,
    registry_with,
)
from pgwire_codec.types import default_registry as process_wide


def of(name: str, typmod: int = -1, **options: str) -> ColumnType:
    known = process_wide.lookup_name(name)
    assert known is not None
    return column_type(known.oid, typmod, TypeOptions(**options))


@pytest.mark.parametrize(
    ("name", "arrow", "spark"),
    [
        ("bool", "b", "b"),
        ("int2", "s", "s"),
        ("int4", "i", "i"),
        ("int8", "l", "l"),
        ("float4", "f", "f"),
        ("float8", "g", "g"),
        ("oid", "I", "l"),
        ("xid", "I", "l"),
        ("cid", "I", "l"),
        ("oid8", "L", "l"),
        ("xid8", "L", "l"),
        ("pg_lsn", "L", "l"),
        ("numeric", "u", "u"),
        ("money", "u", "u"),
        ("text", "u", "u"),
        ("varchar", "u", "u"),
        ("bpchar", "u", "u"),
        ("name", "u", "u"),
        ("json", "u", "u"),
        ("jsonb", "u", "u"),
        ("xml", "u", "u"),
        ("pg_node_tree", "u", "u"),
        ("bytea", "z", "z"),
        ("uuid", "w:16", "u"),
        ("date", "tdD", "tdD"),
        ("timestamp", "tsu:", "tsu:"),
        ("timestamptz", "tsu:UTC", "tsu:UTC"),
        ("time", "ttu", "u"),
        ("timetz", "u", "u"),
        ("interval", "tin", "u"),
        ("inet", "u", "u"),
        ("int4range", "u", "u"),
        ("int4multirange", "u", "u"),
        ("_int4", "+l", "+l"),
        ("oidvector", "u", "u"),
        ("regdatabase", "u", "u"),
        ("_oid8", "+l", "+l"),
    ],
)
def test_arrow_and_spark_types(name: str, arrow: str, spark: str) -> None:
    assert of(name).format == arrow
    assert of(name, arrow_types=ROW_TYPES).format == spark
    assert of(name, types="text").format == "u"
    assert of(name).extension == ("arrow.uuid" if name == "uuid" else None)
    # Views replace strings, and nothing else.
    assert of(name, strings="view").format == ("vu" if arrow == "u" else arrow)


@pytest.mark.parametrize(
    ("typmod", "arrow"),
    [
        (-1, "u"),
        (983046, "d:15,2"),  # numeric(15,2)
        (2490382, "d:38,10"),  # numeric(38,10)
        ((1 << 16) + 4, "d:1,0"),
        ((39 << 16) + 4, "u"),  # numeric(39,0): wider than decimal128
        ((1000 << 16) + 4, "u"),
        (198658, "d:5,0"),  # numeric(3,-2): up to 99900
        ((3 << 16 | 5) + 4, "d:5,5"),  # numeric(3,5): up to 0.00999
        ((38 << 16 | 0x7FF) + 4, "u"),  # numeric(38,-1): 39 digits
        ((2 << 16 | 39) + 4, "u"),  # numeric(2,39)
        (4, "u"),
        (3, "u"),
    ],
)
def test_numeric_precision_and_scale(typmod: int, arrow: str) -> None:
    assert of("numeric", typmod).format == arrow
    assert of("numeric", typmod, arrow_types=ROW_TYPES).format == arrow
    child = of("_numeric", typmod).child
    assert child is not None
    assert child.format == arrow


@pytest.mark.parametrize(
    ("numeric", "arrow"),
    [
        ("float64", "g"),
        ("decimal128(38,9)", "d:38,9"),
        ("decimal128(1, 1)", "d:1,1"),
        ("decimal256(76,38)", "d:76,38,256"),
    ],
)
def test_numeric_option_is_for_those_without_a_type_of_their_own(numeric: str, arrow: str) -> None:
    assert of("numeric", numeric=numeric).format == arrow
    assert of("numeric", (50 << 16) + 4, numeric=numeric).format == arrow
    assert of("numeric", 983046, numeric=numeric).format == "d:15,2"
    assert not of("numeric", numeric=numeric).numeric


def test_numeric_strings_are_marked() -> None:
    assert of("numeric").numeric
    assert of("numeric", strings="view").numeric
    assert not of("numeric", types="text").numeric
    assert not of("text").numeric


@pytest.mark.parametrize(
    "options",
    [
        {"types": "python"},
        {"strings": "large"},
        {"arrow_types": "pandas"},
        {"numeric": "decimal"},
        {"numeric": "decimal128(39,0)"},
        {"numeric": "decimal128(0,0)"},
        {"numeric": "decimal128(10,11)"},
        {"numeric": "decimal128(10,-1)"},
        {"numeric": "decimal256(77,0)"},
        {"numeric": "decimal256(50,0)", "arrow_types": ROW_TYPES},
        {"strings": "view", "arrow_types": ROW_TYPES},
        {"numeric": 38},
    ],
)
def test_options_that_are_none(options: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        TypeOptions(**options)


@pytest.mark.parametrize(
    ("intervals", "arrow"), [("month_day_nano", "tin"), ("string", "u"), ("microseconds", "tDu")]
)
def test_intervals(intervals: str, arrow: str) -> None:
    assert of("interval", intervals=intervals).format == arrow
    assert of("interval", intervals=intervals, types="text").format == "u"
    child = of("interval[]", intervals=intervals).child
    assert child is not None
    assert child.format == arrow


def test_intervals_are_strings_if_the_reader_takes_no_others() -> None:
    assert of("interval", arrow_types=ROW_TYPES, intervals="string").format == "u"
    with pytest.raises(OptionError, match='intervals must be "string" for Spark'):
        TypeOptions(arrow_types=ROW_TYPES, intervals="microseconds")


def test_arrays_know_their_element_and_delimiter() -> None:
    ints = of("int4[]", strings="view")
    assert ints.pg == PgType(1007, "_int4", "array", element=23)
    assert ints.child is not None
    assert ints.child.pg.name == "int4"
    texts = of("_text", strings="view").child
    assert texts is not None
    assert texts.format == "u"
    assert of("_box").pg.delimiter == ";"
    assert of("_uuid").child == of("uuid")
    spark = of("_uuid", arrow_types=ROW_TYPES)
    assert (spark.format, spark.child and spark.child.format) == ("+l", "u")


def test_ranges_know_their_bounds() -> None:
    multirange = of("tstzmultirange")
    assert multirange.child is not None
    assert multirange.child.pg.name == "tstzrange"
    assert multirange.child.child is not None
    assert multirange.child.child.pg.name == "timestamptz"


def test_unknown_types() -> None:
    assert column_type(99999, -1, TypeOptions()).pg == PgType(99999, "99999", "unknown")
    assert column_type(99999, -1, TypeOptions()).format == "z"
    assert column_type(99999, -1, TypeOptions(strings="view")).format == "vz"
    assert column_type(99999, -1, TypeOptions(arrow_types=ROW_TYPES)).format == "u"
    assert column_type(99999, -1, TypeOptions(types="text")).format == "u"
    told = column_type(99999, -1, TypeOptions(), user_types={99999: ("public", "mood")})
    assert told.pg == PgType(99999, "mood", "unknown")


@pytest.mark.parametrize("namespace", ["", "pg_catalog"])
def test_domains_are_their_base_type(namespace: str) -> None:
    told = {20000: (namespace, "int4"), 20001: (namespace, "_int4"), 20002: ("public", "int4")}
    options = TypeOptions()
    assert column_type(20000, -1, options, user_types=told) == of("int4")
    assert column_type(20001, -1, options, user_types=told) == of("_int4")
    # A user's own type may have a built-in type's name.
    assert column_type(20002, -1, options, user_types=told).pg.family == "unknown"


def test_registered_types() -> None:
    mine = TypeRegistry()
    mood = register_type(20000, "mood", like="text", registry=mine)
    assert mood == PgType(20000, "mood", "text")
    moods = register_type(20001, "_mood", element="mood", registry=mine)
    assert moods == PgType(20001, "_mood", "array", element=20000)
    assert register_type(20002, "spans", like="int8range", registry=mine).subtype == 20
    assert register_type(20003, "boxes", element=603, registry=mine).delimiter == ";"
    assert process_wide.lookup(20000) is None
    # A registered type has precedence over one that the stream declares.
    told = {20000: ("", "int4")}
    column = column_type(20000, -1, TypeOptions(), user_types=told, registry=mine)
    assert column.pg.family == "text"
    array = column_type(20001, -1, TypeOptions(), registry=mine)
    assert array.child is not None
    assert array.child.pg is mood
    again = pickle.loads(pickle.dumps(mine))
    assert again.lookup(20001) == moods
    assert again.lookup(23) == process_wide.lookup(23)


def test_the_process_wide_registry_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_wide, "_registered", dict(process_wide._registered))
    register_type(20000, "mood", like="text")
    assert column_type(20000, -1, TypeOptions()).pg.name == "mood"


def test_registrations_that_cannot_be() -> None:
    mine = TypeRegistry()
    for oid in (0, -1, 2**32, 23, 1007):
        with pytest.raises(OptionError):
            mine.register(oid, "mine", like="text")
    with pytest.raises(OptionError, match="one of like= and element="):
        mine.register(20000, "mine")
    with pytest.raises(OptionError, match="one of like= and element="):
        mine.register(20000, "mine", like="text", element="text")
    with pytest.raises(OptionError, match="register it first"):
        mine.register(20000, "mine", like="mood")
    with pytest.raises(OptionError, match="register it first"):
        mine.register(20000, "mine", element=20001)
    mine.register(20000, "mine", like="text")
    mine.register(20000, "mine", element=20000)
    with pytest.raises(OptionError, match="element of itself"):
        column_type(20000, -1, TypeOptions(), registry=mine)


def test_options_and_types_pickle() -> None:
    options = TypeOptions(numeric="decimal256(50,10)")
    assert pickle.loads(pickle.dumps(options)) == options
    column = of("_numeric", numeric="decimal256(50,10)")
    assert pickle.loads(pickle.dumps(column)) == column


def test_types_of_a_database() -> None:
    database = (
        UserType(20000, "mood", "enum"),
        UserType(20001, "_mood", "array", 20000),
        UserType(20002, "price", "domain", 1700, typmod=(10 << 16 | 2) + 4),
        UserType(20003, "net", "domain", 20002),
        UserType(20004, "_net", "array", 20003),
        UserType(20005, "span", "range", 20003),
        UserType(20006, "spans", "multirange", 20005),
        UserType(20007, "citext", "base", 25),
        UserType(20008, "pair", "composite"),
        UserType(20009, "_pair", "array", 20008),
        UserType(20010, "acl", "base", has_binary_form=False),
        UserType(20011, "hstore", "base"),
        UserType(20012, "endless", "domain", 20012),
        UserType(20013, "boxes", "array", 603, delimiter=";"),
    )
    parent = TypeRegistry()
    mine = registry_with(database, parent)
    assert registry_with(database, parent) is mine
    assert registry_with((), parent) is parent

    def kind(oid: int) -> tuple[str, str]:
        column = column_type(oid, -1, TypeOptions(), registry=mine)
        return column.pg.family, column.format

    assert kind(20000) == kind(20007) == kind(20010) == ("text", "u")
    assert kind(20002) == kind(20003) == ("numeric", "d:10,2")
    assert kind(20001) == kind(20004) == kind(20013) == ("array", "+l")
    nets = column_type(20004, -1, TypeOptions(), registry=mine)
    assert nets.child is not None
    assert nets.child.format == "d:10,2"
    assert [kind(oid)[0] for oid in (20005, 20006)] == ["range", "multirange"]
    for oid in (20008, 20009, 20011, 20012):
        assert kind(oid) == ("unknown", "z")
    assert column_type(20013, -1, TypeOptions(), registry=mine).pg.delimiter == ";"
    again = pickle.loads(pickle.dumps(mine))
    assert again.lookup(20004) == mine.lookup(20004)
    # Registered types have precedence, and make those known that consist of them.
    parent.register(20008, "pair", like="text")
    parent.register(20002, "price", like="int4")
    assert kind(20009) == ("array", "+l")
    assert kind(20003) == ("int4", "i")
    assert mine.registrations == 2


def test_types_whose_forms_differ() -> None:
    assert all(forms_agree(of(name)) for name in ("int4", "_numeric", "text", "int4multirange"))
    assert not any(forms_agree(of(name)) for name in ("money", "_money", "regclass", "_regtype"))
    assert not forms_agree(column_type(20000, -1, TypeOptions()))

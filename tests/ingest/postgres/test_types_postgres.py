"""Every type of PostgreSQL: a snapshot's value equals the log's, and is the expected one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cdc.model.geometry import point_of
from ingest.binlog.format.canonical import Unrepresentable
from ingest.postgres.column_types import PLAIN, PgType, PgTypes, first_of
from tests.support.pg_captured import Capture

# SQL type, literal, the column type that every stage knows, the canonical value
MATRIX: list[tuple[str, str, str, Any]] = [
    ("bool", "true", "bit(1)", True),
    ("int2", "-32768", "smallint", -32768),
    ("int4", "2147483647", "int", 2147483647),
    ("int8", "-9223372036854775808", "bigint", -9223372036854775808),
    ("oid", "4294967295", "bigint", 4294967295),
    ("float4", "0.1", "float", 0.10000000149011612),
    ("float8", "1e-300", "double", 1e-300),
    ("float8", "0.1", "double", 0.1),
    ("float8", "'NaN'", "double", "NaN"),
    ("float8", "'Infinity'", "double", "Infinity"),
    ("float4", "'-Infinity'", "float", "-Infinity"),
    ("float4", "'NaN'", "float", "NaN"),
    ("float8[]", "'{NaN,1.5,Infinity}'", "json", '["NaN",1.5,"Infinity"]'),
    ("numeric", "'Infinity'", "longtext", "Infinity"),
    ("numeric(10,2)", "12.3", "decimal(10,2)", "12.30"),
    ("numeric(65,30)", "-0.000000000000000000000000000001", "decimal(65,30)", "-0.000000000000000000000000000001"),
    ("numeric(3,-2)", "12345", "longtext", "12300"),
    ("numeric", "123456789012345678901234567890.123456789", "longtext", "123456789012345678901234567890.123456789"),
    ("numeric", "'NaN'", "longtext", "NaN"),
    ("money", "12.5", "longtext", "$12.50"),
    ("text", "'ä€😀'", "longtext", "ä€😀"),
    ("varchar(20)", "'a b'", "varchar(20)", "a b"),
    ("varchar", "'free'", "longtext", "free"),
    ("char(5)", "'ab'", "char(5)", "ab   "),
    ("name", "'n'", "varchar(63)", "n"),
    ("bytea", r"'\x00ff10'", "longblob", "AP8Q"),
    ("date", "'0001-01-01'", "date", "0001-01-01Z"),
    ("date", "'9999-12-31'", "date", "9999-12-31Z"),
    ("timestamp", "'2017-09-15 10:12:00.5'", "datetime(6)", "2017-09-15T10:12:00.5Z"),
    ("timestamp(0)", "'2017-09-15 10:12:00.5'", "datetime(6)", "2017-09-15T10:12:01Z"),
    ("timestamptz", "'2017-09-15 10:12:00.123456+02'", "timestamp(6)", "2017-09-15T08:12:00.123456Z"),
    ("time", "'10:12:00.25'", "time(6)", "10:12:00.25"),
    ("time", "'24:00:00'", "time(6)", "24:00:00"),
    ("timetz", "'10:12:00+02'", "longtext", "10:12:00+02"),
    ("interval", "'1 year 2 days 3.5 hours'", "longtext", "P1Y2DT3H30M"),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "char(36)", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("json", """'{"b": 1,  "a": 1e400}'""", "json", '{"b": 1,  "a": 1e400}'),
    ("jsonb", """'{"b": 1, "a": 12345678901234567890.5}'""", "json", '{"a": 12345678901234567890.5, "b": 1}'),
    ("inet", "'10.0.0.1/8'", "longtext", "10.0.0.1/8"),
    ("cidr", "'10.0.0.0/8'", "longtext", "10.0.0.0/8"),
    ("macaddr", "'08:00:2b:01:02:03'", "longtext", "08:00:2b:01:02:03"),
    ("bit(1)", "B'1'", "bit(1)", True),
    ("bit(3)", "B'101'", "longtext", "101"),
    ("varbit", "B'0101'", "longtext", "0101"),
    ("point", "'(1.5,2)'", "point", point_of(1.5, 2)),
    ("point", "'(-0,1e300)'", "point", point_of(-0.0, 1e300)),
    ("line", "'{1,2,3}'", "longtext", "{1,2,3}"),
    ("lseg", "'[(0,0),(1,1)]'", "longtext", "[(0,0),(1,1)]"),
    ("box", "'(1,1),(0,0)'", "longtext", "(1,1),(0,0)"),
    ("path", "'((0,0),(1,1))'", "longtext", "((0,0),(1,1))"),
    ("polygon", "'((0,0),(1,1),(1,0))'", "longtext", "((0,0),(1,1),(1,0))"),
    ("circle", "'<(0,0),1>'", "longtext", "<(0,0),1>"),
    ("macaddr8", "'08:00:2b:01:02:03:04:05'", "longtext", "08:00:2b:01:02:03:04:05"),
    ("inet", "'2001:DB8::1'", "longtext", "2001:db8::1"),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "char(36)", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("tsquery", "'a & b'", "longtext", "'a' & 'b'"),
    ("numrange", "'(1.5,)'", "longtext", "(1.5,)"),
    ("uuid[]", "'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'", "json", '["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]'),
    ("xml", "'<a/>'", "longtext", "<a/>"),
    ("tsvector", "'a:1 b:2'", "longtext", "'a':1 'b':2"),
    ("int4range", "'[1,5)'", "longtext", "[1,5)"),
    ("int4multirange", "'{[1,3),[5,9)}'", "longtext", "{[1,3),[5,9)}"),
    ("mood", "'sad'", "varchar(63)", "sad"),
    ("posint", "7", "int", 7),
    ("price", "1.5", "decimal(8,2)", "1.50"),
    ("pair", "ROW(1, 'x')", "longtext", "(1,x)"),
    ("int4[]", "'{1,NULL,3}'", "json", "[1,null,3]"),
    ("int4[]", "'{{1,2},{3,4}}'", "json", "[[1,2],[3,4]]"),
    ("int4[]", "'[0:1]={1,2}'", "json", "[1,2]"),
    ("int4[]", "'{}'", "json", "[]"),
    ("text[]", """'{a,"b,\\"c",NULL,"NULL",""}'""", "json", '["a","b,\\"c",null,"NULL",""]'),
    ("bool[]", "'{t,f}'", "json", "[true,false]"),
    ("numeric(5,2)[]", "'{1.5}'", "json", '["1.50"]'),
    ("timestamptz[]", "'{2020-01-01 00:00:00+00}'", "json", '["2020-01-01T00:00:00Z"]'),
    ("jsonb[]", """ARRAY['{"a": 1}'::jsonb]""", "json", '[{"a": 1}]'),
    ("mood[]", "'{sad,ok}'", "json", '["sad","ok"]'),
    ("point[]", "'{\"(1,2)\"}'", "json", f"[{json.dumps(point_of(1, 2), separators=(',', ':'))}]"),
    ("box[]", "'{(1,1),(0,0);(3,3),(2,2)}'", "json", '["(1,1),(0,0)","(3,3),(2,2)"]'),
]
MADE = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN posint AS int CHECK (value > 0)",
    "CREATE DOMAIN price AS numeric(8,2)",
    "CREATE TYPE pair AS (a int, b text)",
)
# Values without a canonical form: NULL, or dead-letter records.
REFUSED = [
    ("numeric(5,2)", "'NaN'"),
    ("date", "'infinity'"),
    ("date", "'0044-03-15 BC'"),
    ("timestamp", "'-infinity'"),
    ("timestamptz", "'10000-01-01 00:00:00+00'"),
    ("date", "'5874897-12-31'"),
    ("timestamptz", "'0044-03-15 00:00:00+00 BC'"),
    ("date[]", "'{2020-01-01,infinity}'"),
    ("numeric(5,2)[]", "'{NaN}'"),
    ("point", "'(NaN,1)'"),
    ("point", "'(1,-Infinity)'"),
]


@pytest.mark.integration
def test_the_log_and_a_snapshot_have_every_type_alike(capture: Capture) -> None:
    """A table of all types: its row by a chunk, by the log, by its key; with the types of the generated table."""
    captured = capture("[t, refused]")
    columns = ", ".join(f"c{n} {kind}" for n, (kind, _, _, _) in enumerate(MATRIX))
    values = ", ".join(literal for _, literal, _, _ in MATRIX)
    captured.sql(
        *MADE,
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
        "CREATE TABLE refused (id INT PRIMARY KEY, "
        + ", ".join(f"c{n} {kind}" for n, (kind, _) in enumerate(REFUSED))
        + ")",
        f"INSERT INTO t VALUES (1, {values})",
        "INSERT INTO t (id) VALUES (2)",
        *(f"INSERT INTO refused (id, c{n}) VALUES ({n}, {literal})" for n, (_, literal) in enumerate(REFUSED)),
    )
    captured.start()
    captured.caught_up()
    captured.sql(
        "UPDATE t SET id = id + 10",
        *(f"INSERT INTO refused (id, c{n}) VALUES ({n + 100}, {literal})" for n, (_, literal) in enumerate(REFUSED)),
    )
    captured.caught_up()
    captured.stop()
    state = {row["id"]: row for row in captured.state("t").values()}
    events = [record for record in captured.records("t") if record.value is not None]
    read = next(row for row in map(_after, events) if row and row["id"] == 1)
    for n, (kind, literal, _, wanted) in enumerate(MATRIX):
        assert read[f"c{n}"] == state[11][f"c{n}"] == wanted, f"{kind} {literal}"
    assert set(state[12].values()) == {12, None}
    known = next(table for table in captured.broker.records if table.key.endswith(b".t"))
    types = re.findall(r'"column_type":"([^"]+)"', (known.value or b"").decode())
    assert types[1:] == [column_type for _, _, column_type, _ in MATRIX]
    assert captured.dead_letters() == []
    nothing = {f"c{n}": None for n in range(len(REFUSED))}
    numbers = [*range(len(REFUSED)), *(n + 100 for n in range(len(REFUSED)))]
    assert sorted(captured.state("refused").values(), key=lambda row: int(row["id"])) == [
        {"id": number, **nothing} for number in numbers
    ]


def _after(record: Any) -> dict[str, Any] | None:
    found: dict[str, Any] | None = json.loads(record.value)["after"]
    return found


@pytest.mark.integration
@pytest.mark.parametrize("day", ["infinity", pytest.param("0044-03-15 BC", marks=pytest.mark.matrix)])
def test_a_row_whose_key_is_refused_has_no_record(capture: Capture, day: str) -> None:
    """Its changes are dead letters that name the value; no record has the server's text as its key."""
    captured = capture("[t]")
    captured.sql("CREATE TABLE t (d DATE PRIMARY KEY, v INT)", f"INSERT INTO t VALUES ('{day}', 1)")
    captured.start()
    captured.caught_up()
    captured.sql("UPDATE t SET v = 2", "UPDATE t SET d = '2020-01-01'", f"UPDATE t SET d = '{day}'", "DELETE FROM t")
    captured.caught_up()
    captured.stop()
    assert {bytes(record.key or b"") for record in captured.records("t")} == {b'{"d":"2020-01-01Z"}'}
    assert captured.state("t") == {}
    dead_letters = captured.dead_letters()
    assert len(dead_letters) >= 4
    assert [one for one in dead_letters if "why" in one and f"column d: {day}" not in one["why"]] == []


def test_a_type_that_is_created_later_is_looked_up() -> None:
    """CREATE TYPE in mid-stream: the catalogue is read again when an unknown OID occurs."""
    asked = []

    def load() -> list[PgType]:
        asked.append(1)
        return [PgType(oid=25, name="text"), *([PgType(oid=9000, name="mood", kind="e")] if len(asked) > 1 else [])]

    types = PgTypes(load)
    assert types.typed(25, -1).column_type == "longtext"
    assert types.typed(9000, -1).column_type == "varchar(63)"
    assert types.typed(25, -1).column_type == "longtext"
    assert len(asked) == 2
    assert types.typed(9001, -1).column_type == "longtext"


@pytest.mark.parametrize(
    ("array", "wanted"), [('{"a b"}', b"a b"), ("{5}", b"5"), ("{NULL}", None), ('{"NULL"}', b"NULL")]
)
def test_the_value_of_older_rows_in_a_column(array: str, wanted: bytes | None) -> None:
    """`attmissingval` is an array of one."""
    assert first_of(array) == wanted


@pytest.mark.parametrize(("name", "text"), [("date", b"infinity"), ("float8", b"x"), ("bytea", b"abc"), ("time", b"x")])
def test_a_value_without_canonical_form_is_refused(name: str, text: bytes) -> None:
    """It never becomes NULL or a guess."""
    with pytest.raises((Unrepresentable, ValueError)):
        PLAIN[name][1](text)


def test_the_page_lists_every_type_with_its_own_conversion() -> None:
    """docs/postgresql.md lists each type's conversion: a row names both sides, in one order."""
    text = (Path(__file__).parents[3] / "docs" / "postgresql.md").read_text()
    reported: dict[str, str] = {}
    for line in text.partition("\n## Types")[2].splitlines():
        cells = [re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:3]] if line.startswith("| `") else []
        if cells:
            ours, theirs = cells
            reported |= dict(zip(ours, theirs if len(theirs) == len(ours) else theirs[:1] * len(ours), strict=True))
    assert {name: reported[name] for name in PLAIN} == {name: column_type for name, (column_type, _) in PLAIN.items()}

"""The column types of MySQL and MariaDB with literals for all that the servers accept, odd values included."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from tests.databases.kinds import Column, Kind
from tests.ingest.binlog.type_cases import TypeCase, cases_of

NAMES = (
    "order details", "größe", "$cash", "select", "tick`tick", 'quo"te', "it's", "UPPER", "CamelCase", "dot.dot", "100",
    "名前", "with%percent", "semi;colon", "Id", "tab-le", "#hash", "back\\slash",
)  # fmt: skip
_TEXTS = (
    "''", "'plain'", "'trailing  '", "' '", "'NULL'", "'null'", "'0000-00-00'", "'\\'quoted\\''", "'a\"b'",
    "'back\\\\slash'", "'line\\nfeed'", "'tab\\t'", "'nul\\0byte'", "'%s %(x)s {y}'", "'größe 漢字'", "'1e400'", "'-0'",
)  # fmt: skip
_WIDE = ("'😀 four bytes'", "'e\u0301 combined'", "'\u200bzero width'", "'\ufeffmark'", "'ｶﾀｶﾅ'", "'𝒳'")


def kinds(flavour: str) -> list[Kind]:
    """Return all column types of a server."""
    found = [_of(case) for case in cases_of(flavour)]
    found += [
        Kind(sql="varchar(60)", values=(*_TEXTS, *_WIDE), fresh="'k{n}'"),
        Kind(sql="varchar(20) character set utf8mb4 collate utf8mb4_bin", values=(*_TEXTS[:8], *_WIDE), fresh="'K{n}'"),
        Kind(sql="longtext", values=(*_TEXTS, *_WIDE, "REPEAT('ab ', 40000)")),
        Kind(sql="char(12)", values=("''", "'x'", "'trail  '", "' lead'", "'😀'"), fresh="'c{n}'"),
        Kind(sql="tinyint(1)", values=("0", "1", "-1", "127"), number=True),
        Kind(sql="int(8) unsigned zerofill", values=("0", "7", "4294967295"), fresh="{n}", number=True),
        Kind(sql="decimal(10,3) zerofill", values=("0", "1.5", "9999999.999"), fresh="{n}.25", number=True),
        Kind(sql="float(7,3)", values=("0", "-1.5", "1234.567"), number=True),
        Kind(sql="double(12,4)", values=("0", "-1.5", "12345678.1234"), number=True),
        Kind(sql="float unsigned", values=("0", "1.5", "16777217", "1e38"), number=True),
        Kind(sql="float", values=("-0.0", "1e-45", "-3.402823466e38", "1e-38", "0.30000001"), number=True),
        Kind(sql="double", values=("-0.0", "5e-324", "-1.7976931348623157e308", "2.2250738585072014e-308")),
        Kind(sql="date", values=("'2023-02-31'", "'0000-01-00'", "'0001-01-01'", "'9999-12-31'"), fresh="'20{n}-01-3'"),
        Kind(sql="datetime(3)", values=("'2023-02-31 10:00:00'", "'0000-00-00 00:00:00'", "'9999-12-31 23:59:59.999'"),
             fresh="'20{n}-01-31 00:00:00.5'"),
        Kind(sql="timestamp(6) null", values=("'0000-00-00 00:00:00'", "'1970-01-02 00:00:01'", "NOW(6)"),
             fresh="'2020-01-01 00:00:00.0000{n}'"),
        Kind(sql="bit(17)", values=("b'0'", "b'11111111111111111'", "256"), number=True),
        Kind(sql="varbinary(40)", values=("''", "x'00'", "x'2000'", "x'FF00'", "x'C3'", "'text'"), fresh="x'{n}00'"),
        Kind(sql="binary(4)", values=("''", "x'00'", "x'00000000'", "x'20'", "x'FFFFFFFF'"), fresh="x'{n}'"),
        Kind(sql="enum('x''y','b,c','','ünï')", values=("'x''y'", "'b,c'", "''", "'ünï'", "'nothing'", "0")),
        Kind(sql="set('a','b b','ü')", values=("''", "'a,b b'", "'ü'", "'nothing'", "7"), number=True),
        *(Kind(sql=name, values=(f"ST_GeomFromText('{one}')",)) for name, one in _SHAPES.items()),
    ]  # fmt: skip
    if not flavour.startswith("maria") and flavour != "mysql57":
        found.append(Kind(sql="point srid 4326", values=("ST_GeomFromText('POINT(10 20)', 4326)",)))
    return found


_SHAPES = {
    "polygon": "POLYGON((0 0,1 0,1 1,0 0))",
    "geometrycollection": "GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(0 0,1 1))",
    "multipoint": "MULTIPOINT(1 2,3 4)",
    "linestring": "LINESTRING(0 0,1 1,2 0)",
}


def _of(case: TypeCase) -> Kind:
    sql, first = case.sql, case.sql.split("(")[0].split(" ")[0]
    fresh, prefix = "", first.endswith(("text", "blob"))
    if case.form == "integer":
        fresh = "20{n}" if first == "year" else "{n}"
    elif first == "decimal" and not sql.startswith(("decimal(1,", "decimal(9,9)", "decimal(38,30)")):
        fresh = "{n}"
    elif case.form == "string" and first in ("char", "varchar", "text", "tinytext", "mediumtext", "longtext"):
        fresh = "'k{n}'"
    elif case.form == "bytes" and first in ("binary", "varbinary", "blob", "tinyblob", "longblob"):
        fresh = "x'{n}AB'"
    elif first in ("date", "datetime", "timestamp"):
        fresh = "'20{n}-03-01'"
    elif first == "time":
        fresh = "'01:02:{n}'"
    elif first == "uuid":
        fresh = "'123e4567-e89b-12d3-a456-4266554400{n}'"
    elif first in ("inet4", "inet6"):
        fresh = "'10.0.0.{n}'" if first == "inet4" else "'2001:db8::{n}'"
    values = tuple(one for one in case.values if len(one) < 200)
    return Kind(sql=sql, values=values, fresh=fresh, prefix=prefix, number=case.form == "integer" and first != "year")


def keyed(kinds_of: list[Kind]) -> list[Kind]:
    """Return the types that a primary key may have."""
    return [kind for kind in kinds_of if kind.fresh and not kind.sql.startswith("json")]


def computed(random: Random, columns: list[Column], name: str, quote: str) -> Column | None:
    """Return a generated column over one of the others."""
    source = random.choice(columns)
    how = random.choice(("VIRTUAL", "STORED"))
    if source.kind.number:
        kind, expression = Kind(sql="bigint", values=()), f"({quote} DIV 2)"
    elif "char" in source.kind.sql and "binary" not in source.kind.sql:
        kind, expression = Kind(sql="varchar(90)", values=()), f"(CONCAT({quote}, '!'))"
        if source.kind.sql.startswith("char("):
            how = "STORED"  # PAD_CHAR_TO_FULL_LENGTH of each session decides what it reads from a virtual one
    else:
        kind, expression = Kind(sql="int", values=()), f"(LENGTH({quote}))"
    return Column(name=name, kind=kind, words=f"GENERATED ALWAYS AS {expression} {how}", computed=True)


def without_odd_dates(kind: Kind) -> Kind:
    """Return the same type without dates that do not exist in the calendar."""
    odd = re.compile(r"^'(0000-|\d{4}-00|\d{4}-\d\d-00|2023-02-31)")
    values = tuple(value for value in kind.values if not odd.match(value))
    return replace(kind, values=values) if values else kind

"""The column types of PostgreSQL with literals for all that it accepts, odd values included."""

from __future__ import annotations

from tests.databases.kinds import Kind

MADE = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s', 'ünï')",
    "CREATE DOMAIN posint AS int CHECK (value > 0)",
    "CREATE DOMAIN price AS numeric(8,2)",
    "CREATE TYPE pair AS (a int, b text)",
)
_TEXTS = (
    "''", "'plain'", "'trailing  '", "' '", "'NULL'", "'null'", "'NaN'", "'infinity'", "'it''s'", "E'line\\nfeed'",
    "E'back\\\\slash'", "'größe 漢字'", "'😀 four bytes'", "E'e\\u0301'", "'{a,b}'", "'%s {y}'", "E'tab\\t'", "'1e400'",
)  # fmt: skip
ODD = ("'NaN'", "'Infinity'", "'-Infinity'", "'infinity'", "'-infinity'")
_FAR = ("'0044-03-15 BC'", "'12345-01-01'")

KINDS: tuple[Kind, ...] = (
    Kind(sql="int", values=("0", "-2147483648", "2147483647"), fresh="{n}", number=True),
    Kind(sql="smallint", values=("0", "-32768", "32767"), fresh="{n}", number=True),
    Kind(sql="bigint", values=("0", "-9223372036854775808", "9223372036854775807"), fresh="{n}", number=True),
    Kind(sql="bool", values=("true", "false")),
    Kind(sql="oid", values=("0", "4294967295")),
    Kind(sql="real", values=("0", "'-0'", "0.1", "3.4028235e38", "1e-45", *ODD[:3])),
    Kind(sql="double precision", values=("0", "'-0'", "0.1", "1.7976931348623157e308", "5e-324", *ODD[:3])),
    Kind(sql="numeric(10,2)", values=("0", "-99999999.99", "0.01", "'NaN'"), fresh="{n}.5", number=True),
    Kind(sql="numeric(65,30)", values=("0", "-0.000000000000000000000000000001", "1e34")),
    Kind(sql="numeric", values=("0", "1.500", "1e100", "-1e-100", "'NaN'", "'Infinity'"), fresh="{n}.50"),
    Kind(sql="numeric(3,-2)", values=("12345", "0")),
    Kind(sql="numeric(2,4)", values=("0.0012", "0")),
    Kind(sql="numeric(100,50)", values=("0", "1.5")),
    Kind(sql="money", values=("12.5", "-0.01", "0")),
    Kind(sql="text", values=(*_TEXTS, "repeat('ab ', 3000)", "repeat(md5(random()::text), 300)"), fresh="'k{n}'"),
    Kind(sql="varchar(200)", values=_TEXTS, fresh="'k{n}'"),
    Kind(sql="varchar", values=_TEXTS, fresh="'k{n}'"),
    Kind(sql="char(5)", values=("''", "'ab'", "'😀'", "' x'"), fresh="'c{n}'"),
    Kind(sql="name", values=("''", "'n'"), fresh="'n{n}'"),
    Kind(sql="bytea", values=(r"'\x'", r"'\x00'", r"'\x20ff00'", r"'\xc3'"), fresh=r"'\x{n}00'"),
    Kind(sql="date", values=("'0001-01-01'", "'9999-12-31'", *ODD[3:], *_FAR), fresh="'20{n}-01-31'"),
    Kind(sql="timestamp", values=("'0001-01-01'", "'9999-12-31 23:59:59.999999'", *ODD[3:], *_FAR),
         fresh="'20{n}-01-31 10:00:00.5'"),
    Kind(sql="timestamp(0)", values=("'2017-09-15 10:12:00.5'",), fresh="'20{n}-01-31 10:00:00'"),
    Kind(sql="timestamptz", values=("'0001-01-02 00:00:00+00'", "'2017-09-15 10:12:00.123456+02'", *ODD[3:], *_FAR),
         fresh="'20{n}-01-31 10:00:00+00'"),
    Kind(sql="time", values=("'00:00'", "'24:00:00'", "'10:12:00.25'")),
    Kind(sql="timetz", values=("'10:12:00+02'", "'00:00:00-15:59'")),
    Kind(sql="interval", values=("'1 year 2 days 3.5 hours'", "'-1 mon +1 day'", "'0'")),
    Kind(sql="uuid", values=("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",),
         fresh="'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a{n}'"),
    Kind(sql="json", values=("""'{"b": 1,  "a": 1e400}'""", "'null'", "'\"x\"'", "'[]'")),
    Kind(sql="jsonb", values=("""'{"b": 1, "a": 12345678901234567890.5}'""", "'null'", "'[1, {\"k\": null}]'")),
    Kind(sql="inet", values=("'10.0.0.1/8'", "'::1'"), fresh="'10.0.0.{n}'"),
    Kind(sql="cidr", values=("'10.0.0.0/8'",)),
    Kind(sql="macaddr", values=("'08:00:2b:01:02:03'",)),
    Kind(sql="bit(1)", values=("B'1'", "B'0'")),
    Kind(sql="bit(3)", values=("B'101'",)),
    Kind(sql="varbit", values=("B'0101'", "B''")),
    Kind(sql="point", values=("'(1.5,2)'", "'(NaN,Infinity)'")),
    Kind(sql="box", values=("'(1,1),(0,0)'",)),
    Kind(sql="xml", values=("'<a/>'", "'<a>ü</a>'")),
    Kind(sql="tsvector", values=("'a:1 b:2'", "''")),
    Kind(sql="int4range", values=("'[1,5)'", "'empty'", "'(,)'")),
    Kind(sql="int4multirange", values=("'{[1,3),[5,9)}'", "'{}'")),
    Kind(sql="tstzrange", values=("'[2020-01-01 00:00:00+00,)'",)),
    Kind(sql="mood", values=("'sad'", "'it''s'", "'ünï'")),
    Kind(sql="posint", values=("7",), fresh="{n}", number=True),
    Kind(sql="price", values=("1.5", "'NaN'"), fresh="{n}.25"),
    Kind(sql="pair", values=("ROW(1, 'x')", "ROW(NULL, 'a,b\"')")),
    Kind(sql="int[]", values=("'{1,NULL,3}'", "'{{1,2},{3,4}}'", "'{}'")),
    Kind(sql="text[]", values=("""'{a,"b,\\"c",NULL,"NULL",""}'""", "'{}'")),
    Kind(sql="bool[]", values=("'{t,f}'",)),
    Kind(sql="numeric(5,2)[]", values=("'{1.5}'",)),
    Kind(sql="date[]", values=("'{2020-01-01}'",)),
    Kind(sql="float8[]", values=("'{0.1,-1}'", "'{NaN}'")),
)  # fmt: skip
KEYED = tuple(kind for kind in KINDS if kind.fresh)


def without_odd(kind: Kind) -> Kind:
    """Return the same type without values that the envelope's numbers and dates cannot represent."""
    odd = ("NaN", "nfinity", "BC", "12345-")
    values = tuple(value for value in kind.values if not any(word in value for word in odd) or "text" in kind.sql)
    return Kind(sql=kind.sql, values=values or ("NULL",), fresh=kind.fresh, number=kind.number)

# ruff: noqa: E501  # SQL literals are clearer on one line each
"""Every column type with edge values, and the SQL to read the server's own text of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeCase:
    """A type, SQL literals for its values (NULL is added), and `form`: the rule by which server and decoder are
    compared."""

    name: str
    sql: str
    values: tuple[str, ...]
    form: str
    servers: tuple[str, ...] = ()

    def printed(self, column: str = "c") -> str:
        """Return the expression with which the server prints the column unambiguously."""
        return {
            "integer": f"CAST({column} AS CHAR)",
            "bit": f"CAST({column}+0 AS CHAR)",
            "text": f"CAST({column} AS CHAR)",
            "double": f"CAST({column}+0e0 AS CHAR)",
            "string": f"HEX(CONVERT({column} USING utf8mb4))",
            "bytes": f"HEX({column})",
            "json": f"CAST({column} AS CHAR)",
        }[self.form]


def _case(name: str, sql: str, form: str, *values: str, servers: tuple[str, ...] = ()) -> TypeCase:
    return TypeCase(name=f"t_{name}", sql=sql, values=values, form=form, servers=servers)


def _integers() -> Iterator[TypeCase]:
    for name, bits in (("tinyint", 8), ("smallint", 16), ("mediumint", 24), ("int", 32), ("bigint", 64)):
        low, high, top = -(1 << (bits - 1)), (1 << (bits - 1)) - 1, (1 << bits) - 1
        yield _case(name, name, "integer", "0", "1", "-1", str(low), str(high))
        yield _case(f"{name}_unsigned", f"{name} unsigned", "integer", "0", "1", str(high + 1), str(top))


def _decimals() -> Iterator[TypeCase]:
    for precision, scale in (
        (1, 0),
        (5, 2),
        (9, 0),
        (9, 9),
        (10, 2),
        (18, 9),
        (19, 1),
        (30, 15),
        (38, 30),
        (65, 0),
        (65, 30),
    ):
        digits = "9" * (precision - scale) + ("." + "9" * scale if scale else "")
        digits = digits if precision > scale else "0" + digits
        tiny = "0." + "0" * (scale - 1) + "1" if scale else "1"
        yield _case(
            f"decimal_{precision}_{scale}",
            f"decimal({precision},{scale})",
            "text",
            "0",
            digits,
            "-" + digits,
            tiny,
            "-" + tiny,
        )
    yield _case("decimal_unsigned", "decimal(12,4) unsigned", "text", "0", "0.0001", "99999999.9999")


def _temporals() -> Iterator[TypeCase]:
    yield _case(
        "date",
        "date",
        "text",
        "'0000-00-00'",
        "'1000-01-01'",
        "'2024-02-29'",
        "'9999-12-31'",
        "'2024-00-00'",
        "'2024-05-00'",
    )
    yield _case("year", "year", "integer", "0", "1901", "2024", "2155")
    for digits in range(7):
        fraction = "." + "123456"[:digits] if digits else ""
        nines = "." + "9" * digits if digits else ""
        small = "." + "0" * (digits - 1) + "1" if digits else ""
        yield _case(
            f"time_{digits}", f"time({digits})", "text", "'00:00:00'", f"'-838:59:58{nines}'", f"'838:59:58{nines}'",
            f"'-00:00:00{small or ''}'", f"'-00:00:01{fraction}'", f"'12:34:56{fraction}'",
        )  # fmt: skip
        yield _case(
            f"datetime_{digits}", f"datetime({digits})", "text", "'0000-00-00 00:00:00'", "'1000-01-01 00:00:00'",
            f"'9999-12-31 23:59:58{nines}'", f"'2024-02-29 12:34:56{fraction}'", f"'2024-00-00 16:00:00{small}'",
        )  # fmt: skip
        yield _case(
            f"timestamp_{digits}", f"timestamp({digits}) null", "text", "'0000-00-00 00:00:00'",
            f"'1970-01-01 00:00:01{small}'", f"'2038-01-19 03:14:06{nines}'", f"'2024-02-29 12:34:56{fraction}'",
        )  # fmt: skip


_SCRIPTS = {
    "utf8mb4": "'', 'plain', 'größe', '漢字', '😀 emoji', ' blanks '",
    "utf8mb3": "'', 'plain', 'größe', '漢字'",
    "latin1": "'', 'plain', 'größe €', 'ÿ'",
    "latin2": "'', 'žluťoučký', 'ő'",
    "latin5": "'', 'ığdır şöğüş'",
    "latin7": "'', 'āčēģ'",
    "ascii": "'', 'plain', '~'",
    "ucs2": "'', 'plain', '漢字'",
    "utf16": "'', 'plain', '漢字', '😀'",
    "utf16le": "'', 'plain', '漢字', '😀'",
    "utf32": "'', 'plain', '漢字', '😀'",
    "cp1250": "'', 'žluť', '€'",
    "cp1251": "'', 'привет', '№'",
    "cp1256": "'', 'سلام'",
    "cp1257": "'', 'āčē'",
    "cp850": "'', 'größe', '░'",
    "cp852": "'', 'žluť'",
    "cp866": "'', 'привет', 'ⁿ'",
    "koi8r": "'', 'привет'",
    "koi8u": "'', 'привіт', '•'",
    "greek": "'', 'καλημέρα', 'ʼ'",
    "hebrew": "'', 'שלום'",
    "tis620": "'', 'สวัสดี'",
    "macroman": "'', 'größe'",
    "macce": "'', 'žluť'",
    "dec8": "'', 'größe', 'Œ'",
    "hp8": "'', 'größe'",
    "swe7": "'', 'ÅÄÖåäö'",
    "keybcs2": "'', 'žluť'",
    "armscii8": "'', 'բարեւ'",
    "geostd8": "'', 'გამარჯობა'",
    "sjis": "'', '漢字', 'ｱｲｳ'",
    "cp932": "'', '漢字', '①', '髙'",
    "ujis": "'', '漢字', '丂'",
    "eucjpms": "'', '漢字', '①', '髙', '～'",
    "gb2312": "'', '汉字'",
    "gbk": "'', '漢字汉字'",
    "gb18030": "'', '漢字汉字', '😀'",
    "big5": "'', '漢字'",
    "euckr": "'', '한글', '갂'",
}


def _strings() -> Iterator[TypeCase]:
    for charset, values in _SCRIPTS.items():
        literals = tuple(values.split(", "))
        only_mysql = ("mysql57", "mysql80", "mysql9") if charset == "gb18030" else ()
        for kind in ("char(40)", "varchar(300)", "text"):
            name = f"{kind.split('(')[0]}_{charset}"
            yield _case(name, f"{kind} character set {charset}", "string", *literals, servers=only_mysql)
    long = "REPEAT('x', 70000)"
    yield _case("tinytext", "tinytext", "string", "''", "'x'", "REPEAT('y', 255)")
    yield _case("mediumtext", "mediumtext", "string", "''", long)
    yield _case("longtext", "longtext", "string", "''", long)
    yield _case("varchar_short", "varchar(10) character set ascii", "string", "''", "'0123456789'")
    yield _case("char_wide", "char(255) character set utf8mb4", "string", "''", "REPEAT('漢', 255)")
    yield _case("enum", "enum('a','größe','漢字')", "string", "'a'", "'漢字'", "''")
    yield _case("enum_latin1", "enum('ä','ö') character set latin1", "string", "'ä'", "'ö'")
    yield _case("enum_ucs2", "enum('ä','漢') character set ucs2", "string", "'ä'", "'漢'")
    yield _case("enum_wide", "enum(" + ",".join(f"'v{n}'" for n in range(300)) + ")", "string", "'v0'", "'v299'")
    yield _case("set", "set('a','b','größe')", "string", "''", "'a'", "'a,größe'", "'a,b,größe'")
    yield _case(
        "set_wide", "set(" + ",".join(f"'v{n}'" for n in range(64)) + ")", "string", "''", "'v0,v63'", "'v31,v32'"
    )
    yield _case("set_latin1", "set('ä','ö') character set latin1", "string", "''", "'ä,ö'")


def _bytes() -> Iterator[TypeCase]:
    yield _case("binary", "binary(6)", "bytes", "''", "x'00'", "x'0100'", "x'000000000000'", "x'FFFFFFFFFFFF'", "'a'")
    yield _case("binary_wide", "binary(255)", "bytes", "''", "REPEAT(x'FF', 255)")
    yield _case("varbinary", "varbinary(300)", "bytes", "''", "x'00'", "x'0100'", "REPEAT(x'FF', 300)")
    for size in ("tiny", "", "medium", "long"):
        yield _case(f"{size}blob", f"{size}blob", "bytes", "''", "x'00FF00'", "REPEAT(x'AB', 255)")
    yield _case("bit_1", "bit(1)", "bit", "b'0'", "b'1'")
    yield _case("bit_9", "bit(9)", "bit", "b'0'", "b'111111111'", "b'100000000'")
    yield _case("bit_64", "bit(64)", "bit", "b'0'", "b'1'", "0xFFFFFFFFFFFFFFFF")
    yield from _geometries()


_SHAPES = {
    "point": ("POINT(-1.5 2.5)", "POINT(0 0)", "POINT(0.1 123456789.123456789)", "POINT(1e20 -1e-9)"),
    "linestring": ("LINESTRING(0 0,1 1)", "LINESTRING(-1.5 2,3.25 4,5 6)"),
    "polygon": ("POLYGON((0 0,0 5,5 5,0 0))", "POLYGON((0 0,0 9,9 9,9 0,0 0),(1 1,2 1,2 2,1 1))"),
    "multipoint": ("MULTIPOINT(1 2,3 4)",),
    "multilinestring": ("MULTILINESTRING((0 0,1 1),(2 2,3 3,4 4))",),
    "multipolygon": ("MULTIPOLYGON(((0 0,0 5,5 5,0 0)),((8 8,8 9,9 9,8 8)))",),
    "geometrycollection": ("GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(0 0,1 1))", "GEOMETRYCOLLECTION EMPTY"),
}


def _geometries() -> Iterator[TypeCase]:
    for name, shapes in _SHAPES.items():
        texts = [f"ST_GeomFromText('{shape}')" for shape in shapes]
        more = [f"ST_GeomFromText('{shapes[0]}', {srid})" for srid in (4326, 3857)]
        yield _case(name, name, "bytes", *texts, *more)
    every = [f"ST_GeomFromText('{shape}')" for shapes in _SHAPES.values() for shape in shapes]
    yield _case("geometry", "geometry", "bytes", *every, "ST_GeomFromText('POINT(1 2)', 4326)")


def _json() -> Iterator[TypeCase]:
    wide = "JSON_OBJECT('big', REPEAT('x', 70000), 'n', 1, 'inner', JSON_ARRAY(1, JSON_OBJECT('k', 70000)))"
    yield _case(
        "json", "json", "json", "'null'", "'true'", "'[]'", "'{}'", "'\"text\"'", "'0'", "'-1'", "'65536'", "'4294967296'",
        "'18446744073709551615'", "'-9223372036854775808'", "'1.5'", "'-1e300'", "'[1, \"a\", null, {\"k\": [true, false]}]'",
        "'{\"a\": 1, \"größe\": \"漢字\", \"\": {\"deep\": {\"er\": [[[]]]}}}'", wide,
        "JSON_OBJECT('long', REPEAT('y', 200), 'short', 'z')", servers=("mysql57", "mysql80", "mysql9"),
    )  # fmt: skip
    yield _case(
        "json_opaque", "json", "json", "JSON_ARRAY(CAST(1.50 AS DECIMAL(5,2)), CAST(-12345678901234567890.5 AS DECIMAL(30,5)))",
        "JSON_ARRAY(CAST('2024-02-29' AS DATE), CAST('-12:34:56.5' AS TIME(6)), CAST('2024-02-29 12:34:56.789' AS DATETIME(6)))",
        "JSON_OBJECT('b', CAST(x'00FF' AS BINARY))", "JSON_ARRAY(CAST('0000-00-00' AS DATE))",
        servers=("mysql57", "mysql80", "mysql9"),
    )  # fmt: skip
    yield _case("json_maria", "json", "string", "'{}'", '\'{"a": [1, "größe"]}\'', servers=("maria10", "maria11"))


def _others() -> Iterator[TypeCase]:
    for name in ("float", "double"):
        yield _case(
            name,
            name,
            "double",
            "0",
            "1.5",
            "-1.5",
            "3.402823e38" if name == "float" else "1.7976931348623157e308",
            "1e-30",
            "0.1",
        )
    yield _case(
        "vector", "vector(3)", "bytes", "TO_VECTOR('[1,2,3]')", "TO_VECTOR('[-1.5,0,1e10]')", servers=("mysql9",)
    )
    yield _case(
        "inet6",
        "inet6",
        "text",
        "'::'",
        "'2001:db8::1'",
        "'::ffff:192.0.2.1'",
        "'::1.2.3.4'",
        servers=("maria10", "maria11"),
    )
    yield _case("inet4", "inet4", "text", "'0.0.0.0'", "'192.0.2.1'", "'10.0.0.0'", servers=("maria10", "maria11"))
    yield _case(
        "uuid", "uuid", "text", "'00000000-0000-0000-0000-000000000000'", "'123e4567-e89b-12d3-a456-426655440000'",
        "'6ccd780c-baba-1026-9564-5b8c656024db'", "'ffffffff-ffff-4fff-bfff-ffffffffffff'",
        "'018f2d5b-7a3c-7abc-8def-0123456789ab'", servers=("maria10", "maria11"),
    )  # fmt: skip
    yield _case(
        "varchar_compressed",
        "varchar(2000) compressed",
        "string",
        "''",
        "'short'",
        "REPEAT('größe', 200)",
        servers=("maria10", "maria11"),
    )
    yield _case(
        "text_compressed",
        "text compressed character set latin1",
        "string",
        "''",
        "'ä'",
        "REPEAT('long', 900)",
        servers=("maria10", "maria11"),
    )
    yield _case(
        "blob_compressed",
        "blob compressed",
        "bytes",
        "''",
        "x'00'",
        "REPEAT(x'AB', 3000)",
        servers=("maria10", "maria11"),
    )


CASES = tuple(
    case for family in (_integers, _decimals, _temporals, _strings, _bytes, _json, _others) for case in family()
)


def cases_of(flavour: str) -> list[TypeCase]:
    """Return the cases that a server supports."""
    return [case for case in CASES if not case.servers or flavour in case.servers]

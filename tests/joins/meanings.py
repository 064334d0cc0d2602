# ruff: noqa: E501  # values and forms of calls are clearer on one line each
"""Expressions and extreme values for every function that queries may call.

`calls` tries each documented name with arguments of every type and keeps what the compiler accepts, so a new function
is
covered once it is documented. `rows` pairs the values of all columns at random.
"""

from __future__ import annotations

import itertools
import logging
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from sqlglot import exp
from sqlglot.errors import ParseError

from cdc.model.types import Canonical, LogicalType, from_mysql
from ingest.binlog.format.canonical import json_text
from joins.query.finish import compiled, value
from joins.query.functions.registry import check_shape
from joins.query.typed import Typed, Unsupported
from joins.select.tokens import check_tokens, statements_of

DOCUMENT = (Path(__file__).parents[2] / "docs" / "queries.md").read_text()
LISTED = re.search(r"functions: `([^`]*)`", DOCUMENT)
NAMES = LISTED[1].split() if LISTED else []

TYPES: dict[str, str] = {
    "tiny": "tinyint", "small": "smallint", "n": "int", "big": "bigint", "huge": "bigint unsigned", "d": "decimal(6,2)",
    "e": "decimal(38,0)", "g": "decimal(38,38)", "h": "decimal(30,10)", "f": "float", "x": "double", "s": "text",
    "w": "text", "j": "json", "b": "varbinary(9)", "yes": "bit(1)", "day": "date", "at": "datetime(6)", "t": "time(6)", "pt": "point",
}  # fmt: skip
LOGICAL: dict[str, LogicalType] = {name: from_mysql(type_) for name, type_ in TYPES.items()}
_TEXTS = [
    "", " ", "  a b ", "ß", "İ", "ı", "ΑΣ", "ΑΣΑ", "ǅ", "ŉ", "ﬁ", "😀", "e\u0301", "a😀b", "Ａ", "\t x\n", "abc", "ABC", "b", "a%b_",
    "12", "-7", "+5", " 12 ", "2.50", "-0.5", ".5", "5.", "1e3", "1E-3", "1e400", "NaN", "inf", "-Infinity", "1d", "0x1p3",
    "2147483648", "-2147483648", "9223372036854775808", "99999999999999999999999999999999999999",
    "true", "F", "yes", "no", "0", "1", "2024-02-29", "2023-02-29", "2026-1-5", "2026", "2026-07", "12026-01-01",
    "2026-01-31 10:12:00", "2026-01-31T10:12:00.123456789", "2026-01-31 10:12:00+02:00", "2026-03-29T02:30:00-05:30", "2026-01-31 10:12:00+19:00", "2026-01-31 25:00:00",
    "2026-03-29 02:30:00", "10:12:00", "0001-01-01", "9999-12-31 23:59:59.999999", "-0044-03-15", "{}", "null",
    '{"a": 1, "b": {"c": [1, 2.50, "x"]}}', '{"a": "ü\\n\\"q\\""}', '{"a": null}', '{"a": [true, false, null]}', '{"a": 1.0}',
    '{"a": 1, "a": 2}', '{"a": {"b": "deep", "c": {}}}', "{'a': 1}", '{"a": 1', '[{"a": 1}]', '"a"', '{"a": 12345678901234567890}',
    "a{b}c", "it's", "back\\slash", "ｧ", "Ꭰ", "ꭰ", "𐐀", "ჩ", "\u00a0x\u00a0", "٣", "-", "a,b", "1,5", "100:00:00",
]  # fmt: skip
_JSON = [
    '{"a":1,"b":{"c":[1,2.5,"x"]}}', '{"a":"text"}', '{"a":null}', "[]", "{}", '{"a":{"b":1}}', '"s"', "null", "7",
    '{"a":[{"b":1},{"b":2}]}', '{"ä":"ö","a":"\\u0007"}', '{"a":1e3}', '{"a":-0.0}', '{"a":true}', '{"a":0.1}',
]  # fmt: skip
EDGES: Mapping[str, list[Canonical]] = {
    "tiny": [-128, 127, 0, -1, 2], "small": [-32768, 32767, 0, 5, -2],
    "n": [-2147483648, 2147483647, 0, 1, -1, 2, 3, 256, 384, 512, 224, -3, 7],
    "big": [-9223372036854775808, 9223372036854775807, 0, 1, -1, 9007199254740993, 2147483648, 12],
    "huge": [0, 18446744073709551615, 1, 9223372036854775808],
    "d": ["0.00", "-9999.99", "9999.99", "2.50", "-2.50", "0.01", "0.05", "1.00", "-0.50"],
    "e": ["0", "9" * 38, "-" + "9" * 38, "1", "-1", "12345678901234567890"],
    "g": ["0." + "0" * 38, "0." + "9" * 38, "-0." + "9" * 38, "0.5" + "0" * 37, "0." + "0" * 37 + "1"],
    "h": ["0.0000000000", "12345678901234567890.0123456789", "-0.0000000001", "1.5000000000", "-99999999999999999999.9999999999"],
    "f": [0.0, 0.1, -1.5, 2.5, 1e10, 3.4028234663852886e38, 1e-40, 16777217.0],
    "x": [0.0, -0.0, 0.1, -0.5, 1.5, 2.5, 2.675, 1e300, -1e300, 1e-300, 5e-324, 123456789.125, 0.001, 1e7, 9.007199254740993e15, 100.0],
    "s": list(_TEXTS), "w": [*_TEXTS[:21], "x", "ab", "1"], "j": [json_text(text) for text in _JSON],
    "b": ["", "AA==", "/+8=", "AQI="], "yes": [True, False],
    "day": ["0001-01-01Z", "9999-12-31Z", "1970-01-01Z", "1969-12-31Z", "2024-02-29Z", "2026-03-29Z", "2000-01-02Z", "1582-10-10Z", "2026-12-31Z"],
    "at": ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z",
           "2024-02-29T12:00:00.5Z", "2026-03-29T02:30:00Z", "2026-10-25T02:30:00Z", "2026-01-04T10:12:13.000001Z"],
    "t": ["00:00:00", "-00:00:01.5", "838:59:59", "-838:59:59", "09:30:00", "100:00:00.000001"],
    "pt": ["POINT(1 2)", "SRID=4326;POINT(2.35 48.85)", "POINT(-0.5 1e300)", "SRID=0;LINESTRING(0 0,1 1)"],
}  # fmt: skip

# Functions that need other arguments than columns: the forms of their calls. All others get one to three columns.
_FORMS: Mapping[str, list[str]] = {
    "date_format": ["date_format({0}, 'yyyy-MM-dd HH:mm:ss')", "date_format({0}, 'yyyyMM')", "date_format({0}, 'dd/MM')"],
    "date_trunc": [f"date_trunc('{unit}', {{0}})" for unit in
                   ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")],
    "get_json_object": [f"get_json_object({{0}}, '{path}')" for path in
                        ("$.a", "$.b.c", "$.a.b", "$.b.c[1]", "$.a[0]", "$", "$.b", "$.a[0].b", "$.ä", "$['a']", "$.a[*].b")],
    "position": ["position({1} IN {0})"],
    "if": ["if({0} IS NULL, {1}, {2})", "if({0} = {1}, {0}, NULL)"],
    "lpad": ["lpad({0}, 5, '0')", "lpad({0}, 0, 'x')", "lpad({0}, 4, {1})", "lpad({0}, 6)"],
    "rpad": ["rpad({0}, 5, '*')", "rpad({0}, 3, '')", "rpad({0}, 4, {1})"],
    "replace": ["replace({0}, {1}, {2})", "replace({0}, 'a', '')", "replace({0}, {1})"],
    "window": ["window({0}, '5 minutes')", "window({0}, '1 day')", "window({0}, '45 seconds')", "window({0}, '1 hour')"],
    "substring": ["substring({0}, {1}, {2})", "substring({0}, 0, 2)", "substring({0}, -2)", "substring({0}, {1})"],
    "substr": ["substr({0}, 2)", "substr({0}, -1, 1)", "substr({0}, {1}, {2})"],
    "round": ["round({0})", "round({0}, 1)", "round({0}, 2)", "round({0}, 12)"],
    "sha2": ["sha2({0}, 0)", "sha2({0}, 224)", "sha2({0}, 256)", "sha2({0}, 384)", "sha2({0}, 512)", "sha2({0}, {1})"],
    "repeat": ["repeat({0}, 1)", "repeat({0}, 3)"],
    "split_part": ["split_part({0}, 'a', 1)", "split_part({0}, ' ', 2)", "split_part({0}, 'ab', 3)"],
    "translate": ["translate({0}, 'abc', 'xy')", "translate({0}, 'aa1', 'bc')", "translate({0}, '', 'x')", "translate({0}, 'ä€', 'a😀')"],
    "regexp_like": ["regexp_like({0}, '^a.*b_?$')", "regexp_like({0}, '\\\\s')"],
    "rlike": ["{0} RLIKE '^([0-9]+)-'", "NOT {0} RLIKE '[^a-zß😀]+$'", "{0} RLIKE 'a|b\\\\{{|.$'"],
    "regexp_extract": ["regexp_extract({0}, '([0-9]+)-?([0-9]*)', 2)", "regexp_extract({0}, '[a-c]+', 0)",
                       "regexp_extract({0}, '^.(.*?)([^,]?)$')", "regexp_extract({0}, '(?:(a)|(😀)|[\\\\W_])+?', 1)"],
    "regexp_replace": ["regexp_replace({0}, '[^0-9]+', '')", "regexp_replace({0}, '(\\\\w)(\\\\d)', '$2-$1')",
                       "regexp_replace({0}, 'x*', '<')", "regexp_replace({0}, '$', '!')", "regexp_replace({0}, '^ *|(\\\\S){{2,3}}', '$1')"],
    "regexp_substr": ["regexp_substr({0}, '\\\\d{{2,}}')"],
    "element_at": ["element_at(split({0}, 'b'), 1)"],
    "to_date": ["to_date({0})", "to_date({0}, 'yyyyMMdd')", "to_date({0}, 'yyyy-MM-dd')", "to_date({0}, 'yyyy')", "to_date({0}, 'yyyy-MM')",
                "to_date({0}, 'yyyy-MM-dd HH:mm:ss')"],
    "to_timestamp": ["to_timestamp({0})", "to_timestamp({0}, 'yyyy-MM-dd HH:mm:ss')", "to_timestamp({0}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"],
    "date_part": ["date_part('year', {0})", "date_part('DOW', {0})"],
    "trunc": ["trunc({0}, 'MM')", "trunc({0}, 'YEAR')", "trunc({0}, 'week')"],
    "nvl2": ["nvl2({0}, {1}, {2})", "nvl2({0}, {1}, NULL)"],
    "concat_ws": ["concat_ws('-', {0}, {1})", "concat_ws({0}, {1}, {2})"],
    "locate": ["locate({1}, {0})", "locate('a', {0})"],
    "power": ["power({0}, {1})", "power({0}, 2)", "power({0}, 0.5)"],
    "date": ["DATE'2026-01-31'", "date({0})"],
    "timestampdiff": [f"timestampdiff({unit}, {{0}}, {{1}})" for unit in ("MICROSECOND", "SECOND", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")],
    "timestampadd": ["timestampadd(HOUR, -3, {0})", "timestampadd(MONTH, 2, at)"], "dateadd": ["dateadd(DAY, 3, {0})"],
    "datediff": ["datediff({0}, {1})", "datediff(HOUR, {0}, {1})"], "to_char": ["to_char({0}, 'yyyy-MM-dd')"],
    "substring_index": ["substring_index({0}, 'a', 1)", "substring_index({0}, 'ab', 1)"],
    "size": ["size(split({0}, 'a'))", "size(split({0}, ' '))", "size(split({0}, '[.]'))"],
    "array_contains": ["array_contains(split({0}, ' '), 'a')", "array_contains(split({0}, 'a'), '')"],
}  # fmt: skip
_OPERATORS = [
    *(f"{{0}} {sign} {{1}}" for sign in ("+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "<=>")),
    "-{0}", "-g", "-e", "{0} / 3", "{0} % 3", "{0} * 1.5", "{0} + 1", "1 - {0}", "{0} IS NULL", "{0} IN ({1}, {2})", "{0} || {1}",
    "{0} BETWEEN {1} AND {2}", "{0} LIKE 'a%'", "{0} LIKE '_'", "{0} LIKE '%b_'", "CASE WHEN {0} = {1} THEN {0} ELSE {1} END",
    "{0} DIV {1}", "{0} DIV 3", "{0} ILIKE 'A%'", "{0} + INTERVAL 1 DAY", "{0} - INTERVAL '3' MONTH", "{0} + INTERVAL 90 MINUTE",
    "{0} - INTERVAL 2 YEARS", "{0} + INTERVAL '1' WEEK", "INTERVAL 5 SECOND + {0}", "{0} - INTERVAL 1 MICROSECOND",
    "at + INTERVAL 1 DAY", "at - INTERVAL '3' MONTH", "at - INTERVAL 1 MICROSECOND", "at + INTERVAL 2 YEARS", "at - INTERVAL 90 MINUTE",
    "EXTRACT(YEAR FROM {0})", "EXTRACT(DOW FROM {0})", "EXTRACT(WEEK FROM {0})", "EXTRACT(MINUTE FROM {0})",
    "{0} > 1", "{0} = 'abc'", "{0} < '2026-01-31'", "NOT ({0} = {1})", "{0} = {1} OR {0} IS NULL", "{0} = {1} AND {1} = {2}",
    "{0} LIKE 'a!%b!_' ESCAPE '!'", "{0} LIKE '%#\\\\#%' ESCAPE '#'", "{0} NOT LIKE '%!_%' ESCAPE '!'", "{0} IS DISTINCT FROM {1}",
    "split({0}, 'a')[0]", "split({0}, ' ')[1]", "get(split({0}, '[.]'), 1)", "decode({0}, {1}, 'x', NULL, 'y', 'z')", "decode({0}, {1}, 'x')",
    "({0} = {1}) IS TRUE", "CASE {0} WHEN {1} THEN 'x{{y}}' WHEN {2} THEN 'it\\'s' END", "{0} > '9:30'", "{0} IN ('9:30', 'a')",
]  # fmt: skip
_TRIES = 120  # of a form with random arguments
_CASTS = ["BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "DATE", "TIMESTAMP",
          "DECIMAL(5,1)", "DECIMAL(38,0)", "DECIMAL(38,20)", "DECIMAL(10,0)"]  # fmt: skip
# By the type of one argument, other types to combine with it.
_ALONGSIDE = (
    "n",
    "tiny",
    "big",
    "huge",
    "d",
    "h",
    "e",
    "f",
    "x",
    "s",
    "w",
    "day",
    "at",
    "t",
    "yes",
    "b",
    "j",
    "g",
    "small",
)


def types_of() -> tuple[LogicalType, ...]:
    """Return the types of the columns, in order."""
    return tuple(LOGICAL.values())


def _refuse(line: int, column: int, what: str, expected: str) -> NoReturn:
    raise Unsupported(exp.Null(), what, expected)


def compiled_call(text: str) -> Typed | None:
    """Compile an expression over the columns; None if the compiler refuses it."""
    places = list(TYPES)
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns about forms that are refused
    try:
        check_tokens(f"SELECT {text}", _refuse)
        statement = statements_of(f"SELECT {text}")[0]
        assert statement is not None
        node = statement.expressions[0].unalias()
        check_shape(node)
        return compiled(
            node,
            lambda column: value(column, places.index(column.name), LOGICAL[column.name]),
        )
    except (Unsupported, ParseError):
        return None


def _forms(name: str) -> list[str]:
    return _FORMS.get(name) or [f"{name}({{0}})", f"{name}({{0}}, {{1}})", f"{name}({{0}}, {{1}}, {{2}})"]


def _filled(form: str, seed: int) -> Iterator[str]:
    """Yield a form with columns of every type as its first argument, and of some types as the others."""
    chooser = random.Random(seed)
    if "{1}" not in form:
        yield from (form.format(name, "", "") for name in TYPES) if "{0}" in form else [form]
        return
    pairs = list(itertools.product(TYPES, _ALONGSIDE))
    for first, second in pairs:
        yield form.format(first, second, chooser.choice([second, first, chooser.choice(_ALONGSIDE)]))


def calls(most: int) -> dict[str, Typed]:
    """Return expressions by their text: of each form of each function and operator at most `most` that compile."""
    found: dict[str, Typed] = {}
    forms = [
        *itertools.chain.from_iterable(map(_forms, NAMES)),
        *_OPERATORS,
        *(f"CAST({{0}} AS {to})" for to in _CASTS),
    ]
    for number, form in enumerate(forms):
        tried = list(_filled(form, number))
        random.Random(number).shuffle(tried)
        kept = 0
        for text in tried[:_TRIES]:
            if kept < most and text not in found and (typed := compiled_call(text)) is not None:
                found[text], kept = typed, kept + 1
    return found


def rows(count: int, seed: int) -> list[list[Canonical]]:
    """Return rows of all columns: each value at least once, some NULL, the rest at random."""
    chooser = random.Random(seed)
    made = []
    for number in range(max(count, max(map(len, EDGES.values())))):
        row: list[Canonical] = []
        for edges in EDGES.values():
            row.append(
                edges[number] if number < len(edges) else None if chooser.random() < 0.08 else chooser.choice(edges)
            )
        made.append(row)
    return made

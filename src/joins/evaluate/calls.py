"""The functions that compiled expressions call, by name, with Spark's results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from cdc.model.types import LogicalType
from joins.evaluate import moments, texts
from joins.evaluate.arithmetic import (
    ON_DECIMALS,
    absolute,
    arithmetic_of,
    isnan,
    log,
    minus,
    plain,
    real,
    round_,
    to_whole,
)
from joins.evaluate.casting import converter
from joins.evaluate.conditions import TESTS, both, coalesce, comparison, either, extreme, like, negated, null, same
from joins.evaluate.prepared import Prepare, Prepared, Values
from joins.evaluate.unknown import UnknownValue
from joins.query.value_types import BOOL, DATE, DATETIME, INT32, INT64, STRING, family


def _call(type_: LogicalType, function: Callable[..., Any], *wanted: str) -> Prepare:
    """Return a function that is NULL if an argument is NULL.

    `wanted` are the type families of its arguments; the last argument may be omitted. `whole` means an INT or
    smaller."""

    def prepare(parts: Sequence[Prepared]) -> Prepared:
        converts = []
        for part, family_ in zip(parts, wanted, strict=False):
            found = "text" if family(part.type) == "geometry" else family(part.type)  # its value is a text
            small = part.type.kind in ("int8", "int16", "int32")
            if family_ == "day" and found in ("date", "moment"):
                converts.append(converter(part.type, DATE))
            elif found == "null" or (family_ == "whole" and small) or (found == family_ and not part.near):
                converts.append(lambda value: value)
            else:
                raise UnknownValue(f"an argument of {part.type}")
        if len(parts) > len(wanted):
            raise UnknownValue(f"{len(parts)} arguments")
        each = list(zip([part.of for part in parts], converts, strict=True))

        def call(values: Values) -> Any:
            found = []
            for of, convert in each:
                if (value := of(values)) is None:
                    return None
                found.append(convert(value))
            return function(*found)

        return Prepared(call, type_)

    return prepare


def _concat_ws(parts: Sequence[Prepared]) -> Prepared:
    each = [part.of for part in parts]
    if any(family(part.type) not in ("text", "null") for part in parts):
        raise UnknownValue("an argument that is no text")

    def joined(values: Values) -> Any:
        by, *found = [of(values) for of in each]
        return None if by is None else by.join(value for value in found if value is not None)

    return Prepared(joined, STRING)


def _concat(parts: Sequence[Prepared]) -> Prepared:
    return _call(STRING, lambda *found: "".join(found), *["text"] * len(parts))(parts)


def _date_trunc(parts: Sequence[Prepared]) -> Prepared:
    unit = str(parts[0].of(()))
    convert, of = converter(parts[1].type, DATETIME), parts[1].of

    def truncated(values: Values) -> Any:
        value = of(values)
        return None if value is None else moments.truncated(unit, convert(value))

    return Prepared(truncated, DATETIME)


def _pad(*, before: bool) -> Prepare:
    return _call(
        STRING, lambda text, length, fill=" ": texts.padded(text, length, fill, before=before), "text", "whole", "text"
    )


def _quotient(a: Any, b: Any) -> Any:
    """Return a quotient without its fraction, truncated towards zero."""
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


FORMS: dict[str, Prepare] = {
    **{sign: comparison(sign) for sign in TESTS},
    "<=>": same, "and": both, "or": either, "not": negated, "is null": null(True), "is not null": null(False),
    **{name: arithmetic_of(name) for name in ON_DECIMALS},
    "minus": minus,
    "+": plain(lambda a, b: a + b), "*": plain(lambda a, b: a * b), "-": plain(lambda a, b: a - b),
    "div": plain(_quotient), "%": plain(lambda a, b: a % b),
    "coalesce": coalesce, "greatest": extreme(1), "least": extreme(-1),
    "like": like, "concat": _concat, "concat_ws": _concat_ws,
    "upper": _call(STRING, texts.upper, "text"), "lower": _call(STRING, texts.lower, "text"),
    "reverse": _call(STRING, lambda text: text[::-1], "text"),
    "trim": _call(STRING, lambda text: text.strip(" "), "text"),
    "ltrim": _call(STRING, lambda text: text.lstrip(" "), "text"),
    "rtrim": _call(STRING, lambda text: text.rstrip(" "), "text"),
    "length": _call(INT32, len, "text"),
    "substring": _call(STRING, texts.substring, "text", "whole", "whole"),
    "left": _call(STRING, texts.left, "text", "whole"), "right": _call(STRING, texts.right, "text", "whole"),
    "replace": _call(STRING, texts.replace, "text", "text", "text"),
    "lpad": _pad(before=True), "rpad": _pad(before=False),
    "instr": _call(INT32, lambda text, sought: text.find(sought) + 1, "text", "text"),
    "contains": _call(BOOL, lambda text, sought: sought in text, "text", "text"),
    "startswith": _call(BOOL, str.startswith, "text", "text"), "endswith": _call(BOOL, str.endswith, "text", "text"),
    "initcap": _call(STRING, texts.initcap, "text"), "sha1": _call(STRING, texts.sha1, "text"),
    "repeat": _call(STRING, lambda text, times: text * times, "text", "whole"),
    "translate": _call(STRING, texts.translate, "text", "text", "text"),
    "md5": _call(STRING, texts.md5, "text"), "sha2": _call(STRING, texts.sha2, "text", "whole"),
    "split_part": _call(STRING, texts.split_part, "text", "text", "whole"),
    "rlike": _call(BOOL, texts.rlike, "text", "text"), "crc32": _call(INT64, texts.crc32, "text"),
    "regexp_extract": _call(STRING, texts.regexp_extract, "text", "text", "whole"),
    "regexp_replace": _call(STRING, texts.regexp_replace, "text", "text", "text"),
    "get_json_object": _call(STRING, texts.get_json_object, "text", "text"),
    "abs": absolute, "isnan": isnan, "round": round_, "floor": to_whole("floor"), "ceil": to_whole("ceil"),
    "sqrt": real(math.sqrt, near=False), "exp": real(math.exp, near=True),
    "ln": real(log(math.log), near=True), "log10": real(log(math.log10), near=True),
    "power": real(math.pow, near=True),
    "year": _call(INT32, lambda days: moments.civil(days)[0], "day"),
    "quarter": _call(INT32, lambda days: (moments.civil(days)[1] + 2) // 3, "day"),
    "month": _call(INT32, lambda days: moments.civil(days)[1], "day"),
    "day": _call(INT32, lambda days: moments.civil(days)[2], "day"),
    "dayofweek": _call(INT32, moments.day_of_week, "day"), "dayofyear": _call(INT32, moments.day_of_year, "day"),
    "hour": _call(INT32, lambda micros: moments.clock(micros)[0], "moment"),
    "minute": _call(INT32, lambda micros: moments.clock(micros)[1], "moment"),
    "second": _call(INT32, lambda micros: moments.clock(micros)[2], "moment"),
    "last_day": _call(DATE, moments.last_day, "day"),
    "datediff": _call(INT32, lambda a, b: a - b, "day", "day"),
    "weekofyear": _call(INT32, moments.week_of_year, "day"),
    "add_months": _call(DATE, moments.months_later, "day", "whole"),
    "date_add": _call(DATE, lambda days, count: days + count, "day", "whole"),
    "date_trunc": _date_trunc,
    "date_format": _call(STRING, moments.formatted, "moment", "text"),
}  # fmt: skip

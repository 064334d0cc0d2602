"""The documentation and the registry of functions agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlglot import exp

from joins.query.functions.registry import FUNCTIONS, check_shape, supported
from joins.query.typed import Unsupported
from joins.select.tokens import statements_of

DOCUMENT = (Path(__file__).parents[2] / "docs" / "queries.md").read_text()
LISTED = re.search(r"functions: `([^`]*)`", DOCUMENT)
NAMES = LISTED[1].split() if LISTED else []
_ARGUMENTS = {
    "date_format": "x, 'yyyy'", "date_trunc": "'DAY', x", "get_json_object": "x, '$.a'", "position": "'a' IN x",
    "if": "x, y, z", "lpad": "x, 5, '0'", "rpad": "x, 5, '0'", "replace": "x, y, z", "locate": "'a', x",
    "window": "x, '5 minutes'", "repeat": "x, 3", "split_part": "x, '-', 2", "translate": "x, 'ab', 'c'",
    "regexp_like": "x, 'a'", "rlike": "x, 'a'", "regexp_extract": "x, 'a', 0", "regexp_replace": "x, 'a', 'b'",
    "regexp_substr": "x, 'a'", "date_part": "'year', x", "nvl2": "x, y, z", "trunc": "x, 'MM'",
    "element_at": "split(x, ','), 1", "to_timestamp": "x, 'yyyy'", "timestampdiff": "DAY, x, y",
    "timestampadd": "DAY, 3, x", "dateadd": "DAY, 3, x", "to_char": "x, 'YYYY-MM'", "substring_index": "x, ',', 1",
    "size": "split(x, ',')", "array_contains": "split(x, ','), 'a'",
}  # fmt: skip
_TWO = {
    "nullif", "ifnull", "nvl", "coalesce", "greatest", "least", "concat", "concat_ws", "substring", "substr", "left",
    "right", "instr", "contains", "startswith", "endswith", "sha2", "power", "datediff", "date_add",
    "date_sub", "add_months", "months_between", "try_add", "try_subtract", "try_multiply", "try_divide",
}  # fmt: skip


def parsed(text: str) -> exp.Expr:
    """Return a parsed column of a query."""
    statement = statements_of(f"SELECT {text}")[0]
    assert statement is not None
    column: exp.Expr = statement.expressions[0]
    return column


@pytest.mark.parametrize("name", NAMES)
def test_documented_function_is_supported(name: str) -> None:
    """Each name of docs/queries.md parses to a supported node."""
    arguments = _ARGUMENTS.get(name, "x, y" if name in _TWO else "x")
    check_shape(parsed(f"{name}({arguments})"))


def test_every_function_is_documented() -> None:
    """The registry contains no undocumented function. Operators are listed apart."""
    found: set[type[exp.Expr]] = set()
    for name in NAMES:
        arguments = _ARGUMENTS.get(name, "x, y" if name in _TWO else "x")
        found |= {type(node) for node in parsed(f"{name}({arguments})").walk()}
    assert {kind.__name__ for kind in FUNCTIONS if kind not in found} <= {"DPipe", "Escape", "Epoch", "TemporalFilter"}


@pytest.mark.parametrize(
    "text", ["rand()", "uuid()", "current_timestamp()", "explode(x)", "regexp_count(x, 'a')", "f(x)"]
)
def test_others_are_refused(text: str) -> None:
    """A function that might raise, or depend on more than its arguments, is refused by name."""
    node = parsed(text)
    with pytest.raises(Unsupported):
        check_shape(node)
    assert not supported(node)

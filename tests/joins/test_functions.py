"""The functions that queries may call, as they are documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from joins.query.expressions import Unsupported
from joins.query.functions import FUNCTIONS, check_shape, supported

DOCUMENT = (Path(__file__).parents[2] / "docs" / "queries.md").read_text()
LISTED = re.search(r"functions: `([^`]*)`", DOCUMENT)
NAMES = LISTED[1].split() if LISTED else []
_ARGUMENTS = {
    "date_format": "x, 'yyyy'", "date_trunc": "'DAY', x", "get_json_object": "x, '$.a'", "position": "'a' IN x",
    "if": "x, y, z", "lpad": "x, 5, '0'", "rpad": "x, 5, '0'", "replace": "x, y, z", "locate": "'a', x",
}  # fmt: skip
_TWO = {
    "nullif", "ifnull", "nvl", "coalesce", "greatest", "least", "concat", "concat_ws", "substring", "substr", "left",
    "right", "instr", "contains", "startswith", "endswith", "sha2", "power", "datediff", "date_add", "try_add",
    "try_subtract", "try_multiply", "try_divide",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_documented_function_is_supported(name: str) -> None:
    """Each name of docs/queries.md parses to what the compiler knows."""
    arguments = _ARGUMENTS.get(name, "x, y" if name in _TWO else "x")
    check_shape(sqlglot.parse_one(f"SELECT {name}({arguments})", read="spark").expressions[0])


def test_every_function_is_documented() -> None:
    """The table holds nothing that the document leaves out."""
    found: set[type[exp.Expr]] = set()
    for name in NAMES:
        arguments = _ARGUMENTS.get(name, "x, y" if name in _TWO else "x")
        parsed = sqlglot.parse_one(f"SELECT {name}({arguments})", read="spark")
        found |= {type(node) for node in parsed.walk()}
    assert {kind.__name__ for kind in FUNCTIONS if kind not in found} <= {"DPipe"}


@pytest.mark.parametrize("text", ["rand()", "uuid()", "current_timestamp()", "explode(x)", "x RLIKE 'a'", "f(x)"])
def test_others_are_refused(text: str) -> None:
    """What is not known never to raise, or to depend on nothing but its arguments, is refused by name."""
    node = sqlglot.parse_one(f"SELECT {text}", read="spark").expressions[0]
    with pytest.raises(Unsupported):
        check_shape(node)
    assert not supported(node)

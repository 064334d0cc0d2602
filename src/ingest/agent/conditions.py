"""Conditions that come from a gateway, before a database is asked: comparisons of columns with constants; pure.

What is asked is written anew from what was understood, so that nothing is asked that was not: no comment that a server
executes, no function, no other table, no column whose values may not leave.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from cdc.model.errors import UsageError

_TAKEN = (
    sql.And, sql.Or, sql.Not, sql.Paren, sql.EQ, sql.NEQ, sql.GT, sql.GTE, sql.LT, sql.LTE, sql.Is, sql.Null,
    sql.Boolean, sql.In, sql.Between, sql.Like, sql.Column, sql.Identifier, sql.Literal, sql.Neg,
)  # fmt: skip
_REMEDY = "compare columns with constants: =, <, >, IN (…), BETWEEN, LIKE, IS NULL, joined by AND, OR, NOT"
_LONGEST = 10_000  # characters


def condition(text: str, reports: Callable[[str], bool]) -> str:
    """A condition of a WHERE, as it is safe to ask; `reports` says of which columns. UsageError for any other."""
    if len(text) > _LONGEST:
        raise UsageError(f"a condition of {len(text)} characters", f"at most {_LONGEST}")
    try:
        found = sqlglot.parse(text, dialect="mysql")
    except (SqlglotError, RecursionError) as error:
        raise UsageError(f"{text[:200]!r} is no condition", _REMEDY) from error
    if len(found) != 1 or found[0] is None:
        raise UsageError(f"{text[:200]!r} is no condition", _REMEDY)
    parsed = found[0]
    for node in parsed.walk():
        if type(node) not in _TAKEN or (isinstance(node, sql.Column) and len(node.parts) != 1):
            raise UsageError(f"a condition may not hold {node.sql(dialect='mysql')[:200]!r}", _REMEDY)
        if isinstance(node, sql.Column) and not reports(node.name):
            raise UsageError(f"a condition may not ask for column {node.name}", "its values may not leave")
    return parsed.sql(dialect="mysql", comments=False)

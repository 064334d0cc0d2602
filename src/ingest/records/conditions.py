"""Check an SQL condition of another party before the database runs it. Only comparisons of columns with constants
pass.

The returned text is generated from the parsed tree, never copied from the input. So it cannot contain an executable
comment, a function, another table, or a column whose values must not leave the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from cdc.model.errors import UsageError

_ALLOWED = (
    sql.And, sql.Or, sql.Not, sql.Paren, sql.EQ, sql.NEQ, sql.GT, sql.GTE, sql.LT, sql.LTE, sql.Is, sql.Null,
    sql.Boolean, sql.In, sql.Between, sql.Like, sql.Column, sql.Identifier, sql.Literal, sql.HexString, sql.Neg,
)  # fmt: skip
_REMEDY = "compare columns with constants: =, <, >, IN (…), BETWEEN, LIKE, IS NULL, joined by AND, OR, NOT"
_LONGEST = 10_000  # characters


def condition(
    text: str, may_compare: Callable[[str], bool], *, dialect: str = "mysql", names: Mapping[str, str] | None = None
) -> str:
    """Return a WHERE condition that is safe to run and equivalent to `text`, in the same SQL dialect (sqlglot's name).

    `may_compare(column)` returns whether a condition may use a column. With `names`, only these columns are accepted,
    and the server's name of each is written with quotes: without them, a database may take a word such as ROWGUIDCOL
    for another column. Raises UsageError for a text with anything else, or of more than 10,000 characters.
    """
    if len(text) > _LONGEST:
        raise UsageError(f"the condition has {len(text)} characters", f"use at most {_LONGEST}")
    try:
        found = sqlglot.parse(text, dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        raise UsageError(f"{text[:200]!r} is not a condition", _REMEDY) from error
    if len(found) != 1 or found[0] is None:
        raise UsageError(f"{text[:200]!r} is not a condition", _REMEDY)
    parsed = found[0]
    for node in list(parsed.walk()):
        if type(node) not in _ALLOWED or (isinstance(node, sql.Column) and len(node.parts) != 1):
            raise UsageError(f"a condition must not contain {node.sql(dialect=dialect)[:200]!r}", _REMEDY)
        if isinstance(node, sql.Column) and not may_compare(_name(node, dialect)):
            raise UsageError(f"a condition must not use column {node.name}", "its values may not leave")
        if isinstance(node, sql.Column) and names is not None:
            if (name := _name(node, dialect)) not in names:
                raise UsageError(
                    f"a condition must not use {name}", "use names of columns exactly as the table has them"
                )
            node.set("this", sql.to_identifier(names[name], quoted=True))
    return parsed.sql(dialect=dialect, comments=False)


def _name(column: sql.Column, dialect: str) -> str:
    """Return the name that the server looks up. PostgreSQL lowers the ASCII letters of a name without quotes."""
    if dialect != "postgres" or column.this.quoted:
        return column.name
    return "".join(letter.lower() if letter.isascii() else letter for letter in column.name)

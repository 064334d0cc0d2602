"""Compiled expressions (`Typed`), the error for unsupported ones, and helpers to combine the conditions of failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from cdc.model.types import LogicalType


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A compiled expression with its type. `{i}` in `sql` stands for value number i of a joined row.

    `failed` is a Spark SQL condition: true where the result is NULL because of a failure. None if it cannot fail.
    The values of a joined row are numbered through all its tables (the *flat list* of `joins.query.plan`)."""

    sql: str
    type: LogicalType
    failed: str | None = None


class Unsupported(Exception):
    """Raised for an expression that is not supported. Has the node, the reason, and the nearest form that works."""

    def __init__(self, node: exp.Expr, what: str, expected: str) -> None:
        super().__init__(what)
        self.node, self.what, self.expected = node, what, expected


Resolve = Callable[[exp.Column], Typed]


def any_of(*conditions: str | None) -> str | None:
    """Return the conditions joined by OR, without the absent ones (None). None if all are absent."""
    there = [condition for condition in conditions if condition is not None]
    return f"({' OR '.join(there)})" if there else None


def guarded(guard: str, condition: str | None) -> str | None:
    """Return `condition`, restricted to rows where `guard` is true. Elsewhere the value is not computed and cannot
    fail.

    None if `condition` is None."""
    return None if condition is None else f"({guard} AND {condition})"


def refuse(node: exp.Expr, what: str, expected: str) -> NoReturn:
    """Raise Unsupported for a node: `what` is wrong, `expected` would work."""
    raise Unsupported(node, what, expected)


def escaped(text: str) -> str:
    """Return a Spark SQL string literal of `text`, with braces escaped for `str.format`."""
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + quoted.replace("{", "{{").replace("}", "}}") + "'"

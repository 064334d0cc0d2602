"""Describe what a rewritten query calls and returns: the Python functions in it, and its columns."""

from __future__ import annotations

from dataclasses import dataclass

from cdc.model.types import LogicalType
from joins.oracle.native import Deps


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A Python function that replaces an expression. `sql` is the compiled form over values of `types`.

    `text` is the original expression, for messages. `reason` says why its value is unknown, if that is known in
    advance."""

    name: str
    sql: str
    types: tuple[LogicalType, ...]
    type: LogicalType
    text: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """A function of the list of all values of a group, each of type `of`.

    Unless `alone`, the function has more arguments, and its result is unknown.
    """

    name: str
    function: str
    of: LogicalType
    type: LogicalType
    text: str
    alone: bool = True
    given: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """A column of a query, its type, and the functions that it depends on (`deps`)."""

    name: str
    type: LogicalType
    deps: Deps


@dataclass(frozen=True, slots=True)
class QueryShape:
    """The columns of a query, and the functions that decide which rows it has."""

    columns: tuple[Shown, ...]
    rows: Deps

"""The result of flattening (stage 2): a query without subqueries where possible, and without `*`.

Every column names its table. `joins.select.flatten` makes it, and shows an example."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from joins.select.rows import QueryRows, Shape
from joins.select.sql import Place, Relation


class ReadQuery(Protocol):
    """A subquery that stays separate: another query reads its rows. The classes are in `joins.select.bound`."""

    rows: QueryRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition whose columns name their tables. `place` is its position in the text, for errors.

    `text` is the original text if `expression` was rewritten; otherwise it is empty."""

    expression: exp.Expr
    place: Place
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatJoin:
    """A joined table. `alias` is a key of `Flat.relations`; `on` are its ON conditions. `inner` is false for LEFT
    and FULL. `cross`: if no equality connects the table, all of its rows meet all others. `single`: it must find at
    most one row."""

    alias: str
    inner: bool
    on: tuple[Condition, ...]
    full: bool = False
    cross: bool = False
    single: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatItem:
    """One column of the result: its name and expression. `text` as in `Condition`."""

    name: str
    expression: exp.Expr
    place: Place
    text: str = ""


@dataclass(slots=True, kw_only=True)
class Flat:
    """A flattened query.

        - `relations` and `shapes`: by alias, the tables that it reads, and their columns and keys. A table that comes
      from a merged subquery has the alias `subquery/table`.
    - `readings`: by alias, the relations that are separate queries.
    - `first`, `joins`, `where`, `items`, `group`, `having`, `qualify`: the clauses. `first` is the alias after FROM.
    - `partition`, `order`: for ROW_NUMBER(), names of items. Items that exist only for this purpose begin with `_`.
    - `scope`: by alias in the original query, the expression that each of its column names stands for."""

    relations: dict[str, Relation] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    readings: dict[str, ReadQuery] = field(default_factory=dict)
    first: str = ""
    joins: list[FlatJoin] = field(default_factory=list)
    where: list[Condition] = field(default_factory=list)
    items: list[FlatItem] = field(default_factory=list)
    group: list[Condition] = field(default_factory=list)
    having: list[Condition] = field(default_factory=list)
    qualify: list[Condition] = field(default_factory=list)
    partition: list[str] = field(default_factory=list)
    order: list[tuple[str, bool]] = field(default_factory=list)
    scope: dict[str, dict[str, exp.Expr]] = field(default_factory=dict)

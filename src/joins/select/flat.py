"""Represent a query over flat relations: every column with its table, without `*`. `joins.select.flatten` creates
it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from joins.select.rows import QueryRows, Shape
from joins.select.sql import Place, Relation


class ReadQuery(Protocol):
    """A query whose rows another one reads; `joins.select.bound` defines the kinds."""

    rows: QueryRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition over flat columns, and where it was written; `text` as in `FlatItem`."""

    expression: exp.Expr
    place: Place
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatJoin:
    """A table that is joined; `alias` is a key of `Flat.relations`."""

    alias: str
    inner: bool
    on: tuple[Condition, ...]
    full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatItem:
    """One column of the result; `text` is the original text if the expression differs from it."""

    name: str
    expression: exp.Expr
    place: Place
    text: str = ""


@dataclass(slots=True, kw_only=True)
class Flat:
    """The query over relations by alias (`outer/inner` for the tables of a merged query), and their `shapes`.

    `readings`: the relations that are separate queries. If the query's rows are numbered, `partition` and `order` name
    the items that define the numbering; items that the query cannot name have names that begin with `_`. `scope`: the
    expressions that its columns' names represent, by alias of the query.
    """

    relations: dict[str, Relation] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    readings: dict[str, ReadQuery] = field(default_factory=dict)
    first: str = ""
    joins: list[FlatJoin] = field(default_factory=list)
    where: list[Condition] = field(default_factory=list)
    items: list[FlatItem] = field(default_factory=list)
    group: list[Condition] = field(default_factory=list)
    having: list[Condition] = field(default_factory=list)
    partition: list[str] = field(default_factory=list)
    order: list[tuple[str, bool]] = field(default_factory=list)
    scope: dict[str, dict[str, exp.Expr]] = field(default_factory=dict)

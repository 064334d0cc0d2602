"""Shared parts of the generators: a column type with its literals, columns, tables, and small random choices."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from tests.databases.cases import Line

T = TypeVar("T")
# A unit of traffic: it yields lines one by one and receives whether the server accepted each.
Unit = Generator[Line, bool, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A column type with literals that a server accepts under some setting.

    `fresh` is a literal with `{n}` in it, for many different values; `prefix`: a key over it needs a length.
    """

    sql: str
    values: tuple[str, ...]
    fresh: str = ""
    prefix: bool = False
    number: bool = False


@dataclass(slots=True, kw_only=True)
class Column:
    """A column as the generator believes it to be; `computed` columns take no value."""

    name: str
    kind: Kind
    words: str = ""
    computed: bool = False

    def definition(self, quoted: str) -> str:
        """Return the column as in a CREATE TABLE."""
        return " ".join(part for part in (quoted, self.kind.sql, self.words) if part)


@dataclass(slots=True, kw_only=True)
class Table:
    """A table as the generator believes it to be; `key` has the columns that identify a row, if any do."""

    name: str
    columns: list[Column]
    key: tuple[str, ...]
    partitions: list[str] = field(default_factory=list)
    fresh: int = 0

    def column(self, name: str) -> Column | None:
        """Return the column of that name."""
        return next((column for column in self.columns if column.name == name), None)

    def writable(self) -> list[Column]:
        """Return the columns that take values."""
        return [column for column in self.columns if not column.computed]


def value(random: Random, column: Column, *, key: bool = False) -> str:
    """Return a literal for a column: for a key column mostly one of a few, so that later statements find the row."""
    kind = column.kind
    if kind.fresh and random.random() < (0.9 if key else 0.3):
        return kind.fresh.replace("{n}", str(random.randrange(40) + 10))
    return random.choice(kind.values or ("NULL",))


def some(random: Random, items: Sequence[T], least: int = 1, most: int = 3) -> list[T]:
    """Return a few different items, in random order."""
    number = min(len(items), random.randint(least, most))
    return random.sample(list(items), number)

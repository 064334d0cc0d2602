"""Merged tables: one table of a query over the tables of one name in all databases that match a pattern.

In an application with one database (PostgreSQL: schema) per tenant, `tenant_*.orders` means the table `orders` of every
tenant. Each of them is captured as a table of its own. They share one topic, and a query reads them as one table with
the database's name as first column of its key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from cdc.model.schema import Column, TableId, TableSchema

# longer names of databases and tables, escaped, may be shortened in a topic's name, which then does not name the table
LONGEST = 180
# the first column of a merged table, by the type of its source: the database, which PostgreSQL calls schema
_NAMES = {"postgresql": "schema_name"}
# databases of the servers themselves, which no pattern matches
_SYSTEM = frozenset({"information_schema", "mysql", "performance_schema", "sys", "pg_catalog", "pg_toast"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedTable:
    """The tables called `table` in all databases of `source` that match the pattern `database`.

    `*` in the pattern stands for any characters, `?` for one. `table_id` is the name of the merged table: its database
    is the pattern. `column` is the name of the column with the database's name.
    """

    table_id: TableId
    column: str = "database_name"

    def covers(self, table: TableId) -> bool:
        """Return whether a table is one of the merged ones."""
        mine = self.table_id
        return table.table == mine.table and table.source == mine.source and self.matches(table.database)

    def matches(self, database: str) -> bool:
        """Return whether the pattern matches a database's name."""
        if database in _SYSTEM or is_pattern(database):
            return False
        return expression_of(self.table_id.database).fullmatch(database) is not None

    def like(self) -> str:
        """Return the pattern for SQL's LIKE, with `!` as escape character. It may match more than the pattern."""
        text = re.sub("([!%_])", r"!\1", self.table_id.database)
        return text.replace("*", "%").replace("?", "_")

    def schema_of(self, schema: TableSchema) -> TableSchema:
        """Return the schema of the merged table if that of each of its tables is `schema`."""
        name = Column(name=self.column, column_type="varchar(64)", nullable=False, charset="utf8mb4")
        return replace(
            schema,
            table_id=self.table_id,
            columns=(name, *schema.columns),
            primary_key=(self.column, *schema.primary_key),
        )


def merged_table(table: TableId, source_type: str, column: str = "") -> MergedTable | None:
    """Return the merged table that a name in `tables:` declares; None if its database is no pattern.

    `column` is the name of its column with the database; by default it depends on the type of the source.
    """
    if not is_pattern(table.database):
        return None
    return MergedTable(table_id=table, column=column or _NAMES.get(source_type, "database_name"))


def is_pattern(database: str) -> bool:
    """Return whether the name of a database is a pattern."""
    return "*" in database or "?" in database


def merged_named(table: TableId, merged: Iterable[MergedTable]) -> MergedTable | None:
    """Return the merged table of that name; None if there is none."""
    return next((one for one in merged if one.table_id == table), None)


def merged_of(table: TableId, merged: Iterable[MergedTable]) -> MergedTable | None:
    """Return the merged table that contains a table; None if there is none."""
    return next((one for one in merged if one.covers(table)), None)


@lru_cache(1 << 10)
def expression_of(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern."""
    parts = (".*" if one == "*" else "." if one == "?" else re.escape(one) for one in pattern)
    return re.compile("".join(parts), re.DOTALL)


def overlap(one: str, other: str) -> bool:
    """Return whether some name matches both patterns."""
    known: dict[tuple[int, int], bool] = {}

    def some(i: int, j: int) -> bool:
        if (i, j) not in known:
            known[i, j] = found(i, j)
        return known[i, j]

    def found(i: int, j: int) -> bool:
        if i == len(one) and j == len(other):
            return True
        if i < len(one) and one[i] == "*":
            return some(i + 1, j) or (j < len(other) and some(i, j + 1))
        if j < len(other) and other[j] == "*":
            return some(i, j + 1) or (i < len(one) and some(i + 1, j))
        if i == len(one) or j == len(other):
            return False
        return (one[i] == other[j] or "?" in (one[i], other[j])) and some(i + 1, j + 1)

    return some(0, 0)

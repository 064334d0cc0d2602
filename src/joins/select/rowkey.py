"""Prove that the row key identifies the rows of a query's result (part of stage 4, see `joins.select`)."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from cdc.model.errors import TopologyError
from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.topology import Table, Topology
from joins.select.bind import Binder
from joins.select.bound import BoundTree
from joins.select.flat import FlatItem
from joins.select.pairing import PAIRS
from joins.select.parser import parse_query
from joins.select.rewrite.lists.explodes import ROWS as EXPLODED
from joins.select.rows import QueryColumn, keys_of
from joins.select.tree import Tree

_OF_LIST = "posexplode(…) AS pos, x, with pos and the key of the tables in query and row_key; or DISTINCT"
_OF_FULL_JOIN = "; of a FULL JOIN of groups by k, coalesce(a.k, b.k) AS k, and WHERE k IS NOT NULL in one of them"


class RowKey:
    """The row key of a query, for one of its possible trees and one key of the root table (`primary`).

    The proof has two parts. Each join of a tree finds at most one row, so a key of the root identifies the result
    rows. And the row key contains a key of the root: its columns are the root's, or equal to them by inner joins. If
    the table has no `row_key`, the key of the root is used."""

    def __init__(self, table: Table, bound: BoundTree, tree: Tree, primary: tuple[str, ...]) -> None:
        self.table, self.tree, self.shapes, self.primary = table, tree, bound.flat.shapes, primary
        self.items = {item.name: item for item in bound.flat.items}
        self.root = tree.root.alias

    def names(self) -> tuple[str, ...] | None:
        """Return the names of the result columns that form the row key. None if the root's key is not among the
        columns."""
        if self.table.row_key:
            return self.table.row_key
        found = []
        for column in self.primary:
            name = next((i.name for i in self.items.values() if self.column(i) == (self.root, column)), None)
            if name is None:
                return None
            found.append(name)
        return tuple(found) or None

    def columns(self) -> tuple[str, ...]:
        """Return the row key as columns of the root table. Call it only if `fault` returns None."""
        found = [self.column(self.items[name]) for name in self.names() or ()]
        return tuple(one[1] for one in found if one is not None)

    def column(self, item: FlatItem) -> tuple[str, str] | None:
        """Return (alias, column) of the table column that a result column shows. None for a computed column.

        If inner joins make several columns equal, the one nearest to the root is returned."""
        node = item.expression
        if not isinstance(node, exp.Column):
            return None
        found = self.tree.canonical(node.table, node.name)
        return found if self._type(*found) == self._type(node.table, node.name) else (node.table, node.name)

    def _type(self, alias: str, name: str) -> object:
        column = self.shapes[alias].column(name)
        assert column is not None  # joins.select.flatten refuses unknown columns
        return column.type

    def fault(self) -> tuple[str, str] | None:
        """Return what is wrong with the row key, and what would work. None if it identifies the rows."""
        root = self.root or "the groups"
        primary = self.primary
        if not primary and not self.root:
            expected = "a literal of its own in each, such as 'web' AS channel, and the key: row_key: [channel, id]"
            return "no key of the result: no column distinguishes the queries of UNION ALL", expected
        if not primary:
            return f"no key of the result: {root} has no primary key", "rows of a table with a primary key"
        names = self.names()
        if names is None:
            if self.root.startswith(PAIRS):
                what = "no row_key, and the query omits the key of a many-to-many join"
                return what, f"{', '.join(primary)} in it, or a join by the primary key"
            if not self.root:
                return self._no_groups_key(primary)
            return f"no row_key, and the query omits {root}'s key", f"{', '.join(primary)} of {root} in it"
        columns = []
        for name in names:
            if name not in self.items:
                return f"unknown column {name}", "one of " + ", ".join(self.items)
            found = self.column(self.items[name])
            if found is None and self.root.startswith(PAIRS):
                expected = f"plain columns that identify the pairs: {', '.join(primary)}"
                return f"column {name} is computed, and its rows are pairs of rows", expected + _OF_FULL_JOIN
            if found is None:
                return f"column {name} is computed", f"plain columns of {root}"
            if found[0] != self.root:
                return (
                    f"column {name} comes from the joined table {found[0]}",
                    f"columns of {root}, whose rows they are",
                )
            column = self.shapes[self.root].column(found[1])
            # the key of another query's rows may have NULLs, so more columns of it may, too
            may_be_null = isinstance(column, Column) and column.nullable
            if may_be_null and found[1] not in primary and not self.tree.met(*found):
                return f"column {name} may be NULL", "columns that are NOT NULL"
            columns.append(found[1])
        if missing := [column for column in primary if column not in columns]:
            if self.root == EXPLODED:
                return "row_key is not unique: a list may contain a value twice", _OF_LIST
            if self.root.startswith(PAIRS):
                shown, lacking = ([one for one in names_ if one[0] != "_"] for names_ in (primary, missing))
                what = "row_key is not unique: a many-to-many join makes a row of every pair, and"
                return (
                    f"{what} {(lacking or missing)[0]} is not in it",
                    f"{', '.join(shown)} in query and row_key, or a join by the primary key",
                )
            if not self.root:
                return self._no_groups_key(tuple(missing))
            what = f"no key of the result: {root}.{missing[0]}, of the primary key, is not in it"
            return what, f"{', '.join(primary)} of {root} in query and row_key"
        return None

    def _no_groups_key(self, missing: tuple[str, ...]) -> tuple[str, str]:
        columns = [self.shapes[""].column(name) for name in missing]
        shown = [column.origin for column in columns if isinstance(column, QueryColumn)]
        if shown == ["1"]:
            return "one row of all, without a key", "SELECT 'all' AS scope, … and row_key: [scope]"
        return f"no key of the groups: {', '.join(shown)} is not in it", "every column of GROUP BY in query and row_key"


def bound_query(topology: Topology, table: Table, schemas: Mapping[TableId, TableSchema]) -> tuple[Binder, BoundTree]:
    """Return a table's bound query with its binder.

    If the row key is not proved to be unique, other ways to read the query are tried: groups by fewer columns of GROUP
    BY that determine the others, joins by several tables as lookups, and rewrites that use NOT NULL. They are
    not the first choice, so that the plans of earlier versions stay the same."""
    query = parse_query(topology, table, schemas)
    binder = Binder(topology, schemas)
    bound = binder.query(query)
    if _is_proved(table, bound):
        return binder, bound
    exact = parse_query(topology, table, schemas, not_null=True)
    for one, keyed, lookups in (
        (query, table.row_key, False), (exact, None, False), (query, None, True), (exact, table.row_key, True),
    ):  # fmt: skip
        other = Binder(topology, schemas, keyed, lookups=lookups)
        try:
            found = other.query(one)
        except TopologyError:
            continue
        if _is_proved(table, found):
            return other, found
    return binder, bound


def _is_proved(table: Table, bound: BoundTree) -> bool:
    return any(key.fault() is None for key in row_keys(table, bound))


def row_keys(table: Table, bound: BoundTree) -> list[RowKey]:
    """Return the row key of a query for each of its possible trees and each key of the tree's root table."""
    return [
        RowKey(table, bound, tree, primary)
        for tree in bound.trees
        for primary in keys_of(bound.flat.shapes[tree.root.alias])
    ]

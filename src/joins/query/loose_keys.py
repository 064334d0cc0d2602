"""Find text columns that a query compares by their bytes, and the source by a collation that ignores differences.

For example, MySQL's default collation matches 'a' with 'A'. A join on such a column may lack rows here, a group may be
split, and a condition may not hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cdc.model.collations import Fold, exact_collation, folds, listed
from cdc.model.schema import TableId, TableSchema
from joins.query.nodes import Interval, Node, Pair, PlanSource, Root
from joins.query.plan import Fragment, Plan

_GROUPS = "is a key of GROUP BY, DISTINCT, EXISTS or IN"
_CONDITION = "is compared in a condition"
_SORTED = "is compared by min, max, DISTINCT or ORDER BY"
# how the compiler (`joins.query.expressions`) writes comparisons of a value
_COMPARED = re.compile(r"\{(\d+)\} (?:=|<>|<=>|<|<=|>|>=|IN|LIKE) |(?:=|<>|<=>|<|<=|>|>=) \{(\d+)\}\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseKey:
    """A text column whose collation ignores some differences, such as case.

    `folds` lists what it ignores. `other` is the column that a join compares it with; empty if no join does. `use` says
    what compares it."""

    table_id: TableId
    column: str
    collation: str
    folds: tuple[Fold, ...]
    use: str
    other: str = ""

    @property
    def found(self) -> str:
        """Return the problem, for a message."""
        effect = "rows that meet at the source may not meet here" if self.other else "equal values may differ here"
        return (
            f"{self.table_id}.{self.column} compares by {self.collation}, which folds {listed(self.folds)}, and "
            f"{self.use}: {effect}, where text compares by its bytes"
        )

    @property
    def remedy(self) -> str:
        """Return the advice for the user, for a message."""
        forms = {
            "case": "in one case",
            "accents": "with the same accents",
            "trailing spaces": "without trailing spaces",
        }
        write = f"write its values {', '.join(forms[fold] for fold in self.folds)}" + " on both sides" * bool(
            self.other
        )
        exact = exact_collation(self.collation)
        if exact == self.collation:
            return write
        name = f"{self.table_id.database}.{self.table_id.table}"
        return f"{write}, or ALTER TABLE {name} MODIFY {self.column} … COLLATE {exact}"


def loose_keys(plan: Plan, schemas: Mapping[TableId, TableSchema]) -> tuple[LooseKey, ...]:
    """Return the compared columns whose collation ignores case, accents or trailing spaces, each once, joins first."""
    found: dict[tuple[TableId, str], LooseKey] = {}
    for one, other in _joined(plan):
        for column, against in ((one, other), (other, one)):
            name = next((f"{node.of}.{node.columns[i]}" for node, i in _read(plan, *against)), "")
            for node, index in _read(plan, *column):
                for key in _loose(node, index, schemas, f"joins {name}", name):
                    found.setdefault((key.table_id, key.column), key)
    for fragment in plan.fragments:
        for node, index, use in _compared(fragment):
            for key in _loose(node, index, schemas, use):
                found.setdefault((key.table_id, key.column), key)
    return tuple(found.values())


def _read(plan: Plan, node: Node, index: int) -> Iterator[tuple[Node, int]]:
    """Yield the columns whose values a column shows: of a side of a many-to-many join, those of its own fragment."""
    if isinstance(node.source, PlanSource):
        yield node, index
        return
    ungrouped = [one for one in (plan.fragments[n] for n in node.source.fragments) if one.group is None]
    if not ungrouped:
        yield node, index
    for fragment in ungrouped:
        value, places = index if fragment.picks is None else fragment.picks[index], _places(fragment.root)
        if value < len(places):
            yield from _read(plan, *places[value])


def _joined(plan: Plan) -> Iterator[tuple[tuple[Node, int], tuple[Node, int]]]:
    """Yield the two columns of each equality of a join. Each column is a node and the index of the column there."""
    for node in plan.nodes():
        for lookup in node.lookups:
            for own, theirs in zip(lookup.columns, lookup.child.id_columns, strict=not lookup.constants):
                yield (node, own), (lookup.child, theirs)
    for fragment in plan.fragments:
        if isinstance(root := fragment.root, Interval | Pair):
            for own, theirs in zip(root.left_key, root.right_key, strict=True):
                yield (root.left, own), (root.right, theirs)


def _compared(fragment: Fragment) -> Iterator[tuple[Node, int, str]]:
    """Yield the columns that groups, orders and conditions compare, each as a node, an index there, and the use."""
    places = _places(fragment.root)
    group, finish = fragment.group, fragment.finish
    if group is not None:
        sorted_ = [group.arguments[argument] for bag in group.bags for argument in bag.arguments]
        for indexes, use in ((group.keys, _GROUPS), (sorted_, _SORTED)):
            yield from ((*places[index], use) for index in indexes if index < len(places))
    for expression in (*finish.computed, finish.where):
        if expression is not None:
            yield from ((*places[index], _CONDITION) for index in _in_comparisons(expression.sql))
    for node in fragment.root.walk():
        if node.filter is not None:
            yield from ((node, index, _CONDITION) for index in _in_comparisons(node.filter.sql))


def _places(root: Root) -> list[tuple[Node, int]]:
    """Return the node and the index there of each value of a whole row."""
    return [(node, index) for node in root.walk() for index in range(len(node.columns))]


def _in_comparisons(sql: str) -> list[int]:
    return [int(one or other) for one, other in _COMPARED.findall(sql)]


def _loose(
    node: Node, index: int, schemas: Mapping[TableId, TableSchema], use: str, other: str = ""
) -> Iterator[LooseKey]:
    if not isinstance(node.source, PlanSource):
        return  # reported where its values come from
    name, table_id = node.columns[index], node.source.table_id
    known = schemas[table_id].column(name)
    if known is None or node.types[index].kind != "string":
        return
    if known.collation is not None and (folded := folds(known.collation)):
        yield LooseKey(table_id=table_id, column=name, collation=known.collation, folds=folded, use=use, other=other)

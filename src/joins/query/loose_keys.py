"""Find text columns in join conditions that the source compares more loosely than Tailorbird, which compares bytes.

For example, MySQL's default collation matches 'a' with 'A'. A join on such a column may lack rows here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cdc.model.collations import Fold, exact_collation, folds, listed
from cdc.model.schema import TableId, TableSchema
from joins.query.nodes import Interval, Node, PlanSource
from joins.query.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseKey:
    """A text column in a join condition whose collation ignores some differences, such as case.

    `folds` lists what it ignores. `other` is the column that it is compared with."""

    table_id: TableId
    column: str
    collation: str
    folds: tuple[Fold, ...]
    other: str

    @property
    def found(self) -> str:
        """Return the problem, for a message."""
        return (
            f"{self.table_id}.{self.column} compares by {self.collation}, which folds {listed(self.folds)}, and joins "
            f"{self.other}: rows that meet at the source may not meet here, where text compares by its bytes"
        )

    @property
    def remedy(self) -> str:
        """Return the advice for the user, for a message."""
        forms = {
            "case": "in one case",
            "accents": "with the same accents",
            "trailing spaces": "without trailing spaces",
        }
        write = f"write its values {', '.join(forms[fold] for fold in self.folds)} on both sides"
        exact = exact_collation(self.collation)
        if exact == self.collation:
            return write
        name = f"{self.table_id.database}.{self.table_id.table}"
        return f"{write}, or ALTER TABLE {name} MODIFY {self.column} … COLLATE {exact}"


def loose_keys(plan: Plan, schemas: Mapping[TableId, TableSchema]) -> tuple[LooseKey, ...]:
    """Return the join columns whose collation ignores case, accents or trailing spaces, each once, in plan order."""
    found: dict[tuple[TableId, str], LooseKey] = {}
    for one, other in _compared(plan):
        for key in (*_loose(*one, *other, schemas), *_loose(*other, *one, schemas)):
            found.setdefault((key.table_id, key.column), key)
    return tuple(found.values())


def _compared(plan: Plan) -> Iterator[tuple[tuple[Node, int], tuple[Node, int]]]:
    """Yield the two columns of each equality of a join. Each column is a node and the index of the column there."""
    for node in plan.nodes():
        for lookup in node.lookups:
            for own, theirs in zip(lookup.columns, lookup.child.id_columns, strict=not lookup.constants):
                yield (node, own), (lookup.child, theirs)
    for fragment in plan.fragments:
        if isinstance(root := fragment.root, Interval):
            for own, theirs in zip(root.left_key, root.right_key, strict=True):
                yield (root.left, own), (root.right, theirs)


def _loose(
    node: Node, index: int, other: Node, column: int, schemas: Mapping[TableId, TableSchema]
) -> Iterator[LooseKey]:
    if not isinstance(node.source, PlanSource):
        return  # reported where its values come from
    name, table_id = node.columns[index], node.source.table_id
    known = schemas[table_id].column(name)
    if known is None or node.types[index].kind != "string":
        return
    if known.collation is not None and (folded := folds(known.collation)):
        against = f"{other.of}.{other.columns[column]}"
        yield LooseKey(table_id=table_id, column=name, collation=known.collation, folds=folded, other=against)

"""Find the tree of a flat query (part of stage 3): the root table, and how each other table is joined to it.

The root is the table with one row per result row. From the root, equalities that cover primary keys must lead to
every other table, so that each join finds at most one row. The written order of inner joins does not matter: in
`FROM customers c JOIN orders o ON o.customer_id = c.id` the root is orders. A LEFT JOIN leads from the tables before
it to its own table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from cdc.model.types import SPATIAL, Canonical, LogicalType
from cdc.topology.topology import Topology
from joins.select.flat import Condition, Flat, FlatJoin
from joins.select.rewrite.subqueries import is_scalar
from joins.select.rows import QueryColumn, keys_of
from joins.select.sql import Place, refuse

_INTEGERS = {"int8", "int16", "int32", "int64", "uint64"}
_INEXACT = {"float32", "float64", "json", "list", *SPATIAL}


@dataclass(slots=True, kw_only=True)
class Branch:
    """One table in a tree, with the join that leads to it from its `parent`.

    - `pairs`: (own column, parent's column) that the join equates.
    - `constants`: (own column, value) for key columns that conditions fix to a literal.
    - `residual`: further ON conditions of a LEFT JOIN, which also decide the match."""

    alias: str
    parent: Branch | None = None
    inner: bool = True
    pairs: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, Canonical], ...] = ()
    residual: tuple[Condition, ...] = ()
    children: list[Branch] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The root, all tables by alias, and the conditions that no join uses (`filters`).

    `branches` has the tables by alias."""

    root: Branch
    branches: Mapping[str, Branch]
    filters: tuple[Condition, ...]

    def canonical(self, alias: str, column: str) -> tuple[str, str]:
        """Return (alias, column) of the equal column that is nearest to the root, by the equalities of inner joins."""
        branch = self.branches[alias]
        while branch.parent is not None and branch.inner and (parents := dict(branch.pairs)).get(column):
            branch, column = branch.parent, parents[column]
        return branch.alias, column

    def optional(self, alias: str) -> bool:
        """Return whether a result row may lack a row of this table, because of a LEFT JOIN."""
        branch: Branch | None = self.branches[alias]
        while branch is not None:
            if branch.parent is not None and not branch.inner:
                return True
            branch = branch.parent
        return False

    def met(self, alias: str, column: str) -> bool:
        """Return whether the equality of an inner join implies that a column is never NULL in the result."""
        return not self.optional(alias) and any(
            (alias, column) in ((branch.alias, own), (branch.parent.alias, theirs))
            for branch in self.branches.values()
            if branch.parent is not None and not self.optional(branch.alias)
            for own, theirs in branch.pairs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Equality:
    condition: Condition
    sides: tuple[tuple[str, str], tuple[str, str]]

    def seen_from(self, alias: str) -> tuple[str, str, str] | None:
        """Return (own column, other alias, other column), as seen from the table `alias`. None if it does not use
        that table."""
        for (own, column), (other, theirs) in (self.sides, self.sides[::-1]):
            if own == alias != other:
                return column, other, theirs
        return None


def build_trees(topology: Topology, flat: Flat) -> list[Tree]:
    """Return every possible tree of a query, in the order of the tables. Empty if some join is not a lookup by key.

    Several roots are possible if tables are joined one to one. The row key then decides between them."""
    if any(join.full for join in flat.joins):
        return []
    builder = _Builder(topology, flat)
    core = [flat.first, *(join.alias for join in flat.joins if join.inner)]
    return [tree for alias in core if (tree := builder.build(alias)) is not None]


def why_no_tree(topology: Topology, flat: Flat) -> NoReturn:
    """Raise TopologyError for the first table that can be joined neither by key nor many to many."""
    _Builder(topology, flat).explain()


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """An equality that connects a table with the tables before it: `column` is its own, `other` is (alias, column)."""

    condition: Condition
    column: str
    other: tuple[str, str]


def meetings(topology: Topology, flat: Flat, alias: str, before: frozenset[str]) -> list[Meeting]:
    """Return the equalities, between columns of the same type, that connect a table with the tables in `before`."""
    builder = _Builder(topology, flat)
    join = next(join for join in flat.joins if join.alias == alias)
    conditions = [*join.on, *(flat.where if join.inner else ())]
    found: list[Meeting] = []
    for equality in (e for condition in conditions if (e := _equality(condition)) is not None):
        seen = equality.seen_from(alias)
        if seen is not None and seen[1] in before and builder.mismatch(alias, *seen) is None:
            found.append(Meeting(condition=equality.condition, column=seen[0], other=(seen[1], seen[2])))
    return found


class _Builder:
    def __init__(self, topology: Topology, flat: Flat) -> None:
        self.topology, self.flat, self.shapes = topology, flat, flat.shapes
        self.left = {join.alias: join for join in flat.joins if not join.inner}
        self.inner_on = [condition for join in flat.joins if join.inner for condition in join.on]
        pool = [*self.inner_on, *flat.where]
        self.pool = [e for condition in pool if (e := _equality(condition)) is not None]
        # a condition of an inner join can lead to an inner-joined table, even if it uses a left-joined one
        self.order = [flat.first, *(join.alias for join in flat.joins)]

    def build(self, root: str) -> Tree | None:
        """Return the tree whose root is the table `root`. None if some table cannot be reached from it."""
        branches = {root: Branch(alias=root)}
        used: list[Condition] = []
        progress = True
        while progress:
            progress = False
            for alias in self.order:
                if alias in branches:
                    continue
                found = self._attach(alias, branches)
                if found is not None:
                    branch, conditions = found
                    branches[alias] = branch
                    used += conditions
                    progress = True
        if len(branches) != len(self.order):
            return None
        for alias in self.order:
            branch = branches[alias]
            if branch.parent is not None:
                branch.parent.children.append(branch)
        filters = [c for c in [*self.inner_on, *self.flat.where] if not any(c is one for one in used)]
        return Tree(root=branches[root], branches=branches, filters=tuple(filters))

    def _attach(self, alias: str, branches: Mapping[str, Branch]) -> tuple[Branch, list[Condition]] | None:
        join = self.left.get(alias)
        equalities = self._of_left(join) if join is not None else self.pool
        constants = self._constants(alias, [*self.inner_on, *self.flat.where] if join is None else join.on)
        for parent in branches.values():
            pairs: dict[str, str] = {}
            used: list[Condition] = []
            for equality in equalities:
                seen = equality.seen_from(alias)
                if seen is None or seen[1] != parent.alias or seen[0] in pairs:
                    continue
                if self.mismatch(alias, seen[0], parent.alias, seen[2]) is None:
                    pairs[seen[0]] = seen[2]
                    used.append(equality.condition)
            key = next((key for key in keys_of(self.shapes[alias]) if key and {*key} <= {*pairs, *constants}), None)
            # only a subquery without an outer column is joined by constants alone: it has no other conditions
            alone = join is not None and is_scalar(alias)
            if key is None or not (pairs or alone):
                continue
            residual = (
                () if join is None or not pairs else tuple(c for c in join.on if not any(c is one for one in used))
            )
            if any(
                column.table not in (*branches, alias) for c in residual for column in c.expression.find_all(exp.Column)
            ):
                continue
            ordered = [name for name in self.shapes[alias].places() if name in pairs]
            fixed = tuple((name, constants[name]) for name in key if name not in pairs)
            branch = Branch(
                alias=alias,
                parent=parent,
                inner=join is None,
                pairs=tuple((c, pairs[c]) for c in ordered),
                constants=fixed,
                residual=residual,
            )
            if join is None:
                above: Branch | None = parent
                while above is not None:  # a required row makes the rows above it required, too
                    above.inner, above = True, above.parent
            return branch, used
        return None

    def _constants(self, alias: str, conditions: Sequence[Condition]) -> dict[str, Canonical]:
        """Return the columns of a table that a condition sets equal to a literal of the same type, with the values.

        The condition also remains a filter."""
        found: dict[str, Canonical] = {}
        for condition in conditions:
            node = condition.expression.unnest()
            if not isinstance(node, exp.EQ):
                continue
            for side, other in (
                (node.this.unnest(), node.expression.unnest()),
                (node.expression.unnest(), node.this.unnest()),
            ):
                if isinstance(side, exp.Column) and side.table == alias:
                    value = _literal(other, self._type(alias, side.name))
                    if value is not None:
                        found.setdefault(side.name, value)
        return found

    def _of_left(self, join: FlatJoin) -> list[_Equality]:
        return [equality for condition in join.on if (equality := _equality(condition)) is not None]

    def mismatch(self, alias: str, column: str, other: str, theirs: str) -> str | None:
        """Return why two columns cannot be compared exactly, for a message. None if they can."""
        left, right = self._type(alias, column), self._type(other, theirs)
        comparable = left == right or (left.kind in _INTEGERS and right.kind in _INTEGERS)
        if comparable and left.kind not in _INEXACT:
            return None
        return f"{self._text(alias, column)} ({left}) = {self._text(other, theirs)} ({right})"

    def _text(self, alias: str, column: str) -> str:
        """Return a column as the query names it; for one that a query of its own computes, the expression."""
        found = self.shapes[alias].column(column)
        computed = isinstance(found, QueryColumn) and column.startswith("_")
        return found.origin if computed and isinstance(found, QueryColumn) else f"{alias}.{column}"

    def _type(self, alias: str, column: str) -> LogicalType:
        found = self.shapes[alias].column(column)
        assert found is not None  # joins.select.flatten refuses unknown columns
        return found.type

    def explain(self) -> NoReturn:
        """Raise TopologyError for the first table that no join reaches from the table after FROM."""
        reached = {self.flat.first: Branch(alias=self.flat.first)}
        for join in self.flat.joins:
            found = self._attach(join.alias, reached)
            if found is None and not self._meets(join, frozenset(reached)):
                self._explain_join(join, list(reached))
            reached[join.alias] = Branch(alias=join.alias) if found is None else found[0]
        raise AssertionError("every table is reached")

    def _meets(self, join: FlatJoin, before: frozenset[str]) -> bool:
        """Return whether an equality connects the joined table with the tables in `before`, even if it covers no
        key."""
        equalities = self._of_left(join) if not join.inner else self.pool
        seen = [s for e in equalities if (s := e.seen_from(join.alias)) is not None and s[1] in before]
        return any(self.mismatch(join.alias, *one) is None for one in seen)

    def _explain_join(self, join: FlatJoin, reached: list[str]) -> NoReturn:
        alias, primary = join.alias, self.shapes[join.alias].primary_key
        place = join.on[0].place if join.on else self.flat.relations[alias].place
        if not primary:
            self._refuse(place, f"{alias} has no primary key", "a joined table that has one")
        equalities = self._of_left(join) if not join.inner else self.pool
        seen = [s for e in equalities if (s := e.seen_from(alias)) is not None and s[1] in reached]
        near = seen[0][1] if seen else reached[0]
        theirs = {own: other for own, alias_, other in seen if alias_ == near}
        form = "ON " + " AND ".join(f"{alias}.{c} = {near}.{theirs.get(c, f'{alias}_{c}')}" for c in primary)
        for own, other, column in seen:
            if (what := self.mismatch(alias, own, other, column)) is not None:
                self._refuse(place, what, "two columns of one exact type")
        self._refuse(place, f"no equality joins {alias}", form)

    def _refuse(self, place: Place, what: str, expected: str) -> NoReturn:
        refuse(self.topology, place, what, expected)


def _literal(node: exp.Expr, type_: LogicalType) -> Canonical:
    """Return the canonical value of a literal, if it is a text or integer of exactly this type. Otherwise None."""
    if isinstance(node, exp.Literal) and node.is_string and type_.kind == "string":
        return str(node.this)
    negative = isinstance(node, exp.Neg)
    number = node.this.unnest() if isinstance(node, exp.Neg) else node
    if isinstance(number, exp.Literal) and number.is_int and type_.kind in _INTEGERS:
        return -int(number.this) if negative else int(number.this)
    return None


def exact_types(flat: Flat, *nodes: exp.Expr) -> bool:
    """Return whether equal values of these columns are the same value: they have one type, which compares exactly."""
    columns = [flat.shapes[node.table].column(node.name) for node in nodes if isinstance(node, exp.Column)]
    types = {column.type for column in columns if column is not None}
    return len(types) == 1 and all(type_.kind not in _INEXACT for type_ in types)


def _equality(condition: Condition) -> _Equality | None:
    node = condition.expression.unnest()
    if not isinstance(node, exp.EQ):
        return None
    sides = [side.unnest() for side in (node.this, node.expression)]
    if not all(isinstance(side, exp.Column) for side in sides) or sides[0].table == sides[1].table:
        return None
    first, second = ((side.table, side.name) for side in sides)
    return _Equality(condition=condition, sides=(first, second))

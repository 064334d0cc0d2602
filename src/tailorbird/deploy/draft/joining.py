"""Choose the root tables of a draft, and the tables to join to each.

A root should be a fact table, such as order lines or payments: it refers to other tables, and no table refers to it.
The tables that it refers to are joined, nearest first. Each is joined only once, along the first path found. So
every join finds at most one row."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from cdc.model.schema import TableId
from cdc.model.types import SPATIAL, LogicalType
from tailorbird.deploy.draft.column_names import is_change_time, looks_like_name, looks_sorted
from tailorbird.deploy.draft.draft import DraftColumn, DraftJoin, DraftSource, DraftTable
from tailorbird.deploy.draft.naming import role, snake, untaken
from tailorbird.deploy.draft.shape import FoundTable, Reference

MOST_JOINS = 10
_ENOUGH = 30  # rows needed before all values being NULL is significant
DEEPEST = 4
# number of columns of a joined table, by its distance from the root
_MOST_COLUMNS = {1: 8, 2: 6, 3: 5, 4: 4}
_CHOICE = re.compile(r"enum|set\b|tinyint\(1\)|bit\(1\)", re.IGNORECASE)
_INTEGERS = {"int8", "int16", "int32", "int64", "uint64"}
_INEXACT = {"float32", "float64", "json", "list", *SPATIAL}


@dataclass(slots=True, kw_only=True)
class Model:
    """The tables that can be captured, and the references that a join can follow.

    `hidden` are the ignored columns by table. `unused` are the references that no join can follow, each with the
    reason."""

    tables: Mapping[TableId, FoundTable]
    hidden: Mapping[TableId, tuple[str, ...]]
    references: list[Reference] = field(default_factory=list)
    unused: list[tuple[Reference, str]] = field(default_factory=list)

    def of(self, table: TableId) -> list[Reference]:
        """Return the references from `table` to other tables."""
        return [each for each in self.references if each.child == table]

    def to(self, table: TableId) -> list[Reference]:
        """Return the references from other tables to `table`."""
        return [each for each in self.references if each.parent == table != each.child]

    def columns(self, table: FoundTable) -> list[str]:
        """Return the names of a table's captured columns."""
        hidden = self.hidden[table.table_id]
        return [column.name for column in table.schema.columns if column.name not in hidden]


def model_of(sources: tuple[DraftSource, ...]) -> Model:
    """Return the model of all tables and references in these sources."""
    tables = {t.table_id: t for source in sources for t in source.server.tables if t.name in source.ignored}
    hidden = {t.table_id: s.hidden(t) for s in sources for t in s.server.tables if t.table_id in tables}
    model = Model(tables=tables, hidden=hidden)
    for source in sources:
        for reference in source.server.references:
            why = _unusable(model, reference)
            if why:
                model.unused.append((reference, why))
            elif reference not in model.references:
                model.references.append(reference)
    return model


def comparable(left: LogicalType, right: LogicalType) -> bool:
    """Return whether a join can compare columns of these types exactly."""
    same = left == right or (left.kind in _INTEGERS and right.kind in _INTEGERS)
    return same and left.kind not in _INEXACT


def _unusable(model: Model, reference: Reference) -> str:
    child, parent = model.tables.get(reference.child), model.tables.get(reference.parent)
    if child is None or parent is None:
        gone = reference.parent if parent is None else reference.child
        return f"{gone.table} is not captured"
    if not set(parent.key) <= set(reference.referenced):
        return f"it refers to {'+'.join(reference.referenced)}, but the key of {parent.name} is {'+'.join(parent.key)}"
    for own, theirs in zip(reference.columns, reference.referenced, strict=True):
        first, second = child.schema.column(own), parent.schema.column(theirs)
        if first is None or second is None:
            return "one of its columns does not exist"
        if not comparable(first.type, second.type):
            return f"{first.column_type} and {second.column_type} are not compared exactly"
    return ""


def facts(model: Model, most: int) -> list[tuple[FoundTable, str]]:
    """Choose at most `most` root tables, best first, each with the reason.

    Tables that a better root already joins, and tables that are only referred to, are not chosen. However, each
    source gets at least one root, unless another root reads the source."""
    found: list[FoundTable] = []
    inside: set[TableId] = set()
    ranked = sorted(model.tables.values(), key=lambda table: _rank(model, table))
    firsts = {table.table_id.source: table for table in reversed(ranked)}
    for table in [*firsts.values(), *ranked]:
        source = table.table_id.source
        first = table is firsts[source] and all(each.source != source for each in inside)
        looked_up = not _parents(model, table) and model.to(table.table_id)
        if first or (len(found) < most and table.table_id not in inside and not looked_up):
            found.append(table)
            inside |= {join.table.table_id for join in _joins(model, table)[0]}
    found.sort(key=ranked.index)
    return [(table, _why(model, table)) for table in found]


def _parents(model: Model, table: FoundTable) -> list[TableId]:
    """Return the other tables that a table refers to, once each."""
    return list(dict.fromkeys(e.parent for e in model.of(table.table_id) if e.parent != table.table_id))


def _rank(model: Model, table: FoundTable) -> tuple[object, ...]:
    referred = {each.child for each in model.to(table.table_id)}
    alone = not _parents(model, table)
    return (bool(referred), alone, len(referred), _only_keys(model, table), -table.count, table.name)


def _only_keys(model: Model, table: FoundTable) -> bool:
    """Return whether a table consists of references only, like the link table of a many-to-many relation."""
    tied = {name for each in model.of(table.table_id) for name in each.columns}
    return all(name in tied or is_change_time(name) for name in model.columns(table))


def _why(model: Model, table: FoundTable) -> str:
    parents = [parent.table for parent in _parents(model, table)]
    children = list(dict.fromkeys(each.child.table for each in model.to(table.table_id)))
    refers = f"refers to {_named(parents)}" if parents else "refers to no other table that can be joined"
    referred = f"{_named(children)} {'refers' if len(children) == 1 else 'refer'} to it" if children else ""
    return f"{table.name} {refers}, and {referred or 'no other table refers to it'}"


def _named(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def joined(model: Model, table: FoundTable, why: str, name: str) -> DraftTable:
    """Draft the joined table `name` whose root is `table`. `why` is the reason for its choice."""
    empty: set[TableId] = set()
    while True:
        joins, left = _joins(model, table, empty)
        columns = tuple(_columns(model, joins, left))
        used = {column.alias for column in columns} | {join.parent for join in joins}
        idle = {join.table.table_id for join in joins[1:] if join.alias not in used}
        if not idle:
            return DraftTable(name=name, joins=tuple(joins), columns=columns, why=why, left=tuple(left))
        empty |= idle


def _joins(model: Model, root: FoundTable, empty: Container[TableId] = ()) -> tuple[list[DraftJoin], list[str]]:
    """Return the joins, root first and then from near to far, and the omitted joins with reasons.

    `empty` are tables that would add no column, so they are not joined."""
    joins = [DraftJoin(alias=snake(root.name), table=root)]
    left: list[str] = []
    for join in joins:  # grows while it is walked
        for reference in model.of(join.table.table_id):
            parent = model.tables[reference.parent]
            before = next((j for j in joins if j.table is parent and j.parent != join.alias), None)
            itself = reference.parent == reference.child
            if itself and join.by is not None and join.by.child == reference.child == join.by.parent:
                continue  # follow a self-reference only once
            if parent.table_id in empty:
                left.append(f"{reference} → {parent.name}: it contains only references")
            elif (looked := len(join.table.rows)) >= _ENOUGH and not _named_at_all(join.table, reference):
                left.append(f"{reference} → {parent.name}: NULL in all of {looked} rows read")
            elif before is not None and not itself:
                left.append(f"{reference} → {parent.name}: {parent.name} is joined already, as {before.alias}")
            elif join.depth >= DEEPEST:
                left.append(f"{reference} → {parent.name}: it is {DEEPEST + 1} joins from the root")
            elif len(joins) > MOST_JOINS:
                left.append(f"{reference} → {parent.name}: there are {MOST_JOINS} joins already")
            else:
                alias = _alias(reference, parent, join, {j.alias for j in joins})
                made = DraftJoin(alias=alias, table=parent, parent=join.alias, by=reference, depth=join.depth + 1)
                joins.append(made)
    read = {join.table.table_id for join in joins}
    left += [f"{r} → {r.parent.table}: {reason}" for r, reason in model.unused if r.child in read]
    return joins, left


def _named_at_all(table: FoundTable, reference: Reference) -> bool:
    """Return whether some row that was read has a value in the reference, which is NULL in the others."""
    return all(table.values(name) for name in reference.columns)


def _alias(reference: Reference, parent: FoundTable, join: DraftJoin, taken: set[str]) -> str:
    wanted = role(reference.columns[0]) if len(reference.columns) == 1 else snake(parent.name)
    if wanted in taken:
        wanted = f"{join.alias}_{wanted}"
    return untaken(wanted, taken)


def _columns(model: Model, joins: list[DraftJoin], left: list[str]) -> Iterator[DraftColumn]:
    taken: set[str] = set()
    for join in joins:
        names = model.columns(join.table)
        if join.by is not None:
            # references are not useful for people, and the referencing key is already in the result
            numbers = {name for each in model.of(join.table.table_id) for name in each.columns} | {*join.by.referenced}
            names = [name for name in names if name not in numbers and not is_change_time(name)]
            most = _MOST_COLUMNS[join.depth]
            best = sorted(names, key=lambda name: not _reporting(join.table, name))[:most]
            if more := [name for name in names if name not in best]:
                left.append(f"of {join.alias}, to keep rows short: {', '.join(more)}")
            names = [name for name in names if name in best]
        for name in names:
            column = join.table.schema.column(name)
            assert column is not None, "it is one of its own"
            output = untaken(_output(join, name), taken)
            taken.add(output)
            yield DraftColumn(alias=join.alias, table=join.table, column=column, output=output)


def _reporting(table: FoundTable, name: str) -> bool:
    column = table.schema.column(name)
    return (
        looks_like_name(name)
        or looks_sorted(name)
        or (column is not None and _CHOICE.match(column.column_type) is not None)
    )


def _output(join: DraftJoin, name: str) -> str:
    text, last = snake(name), join.alias.rpartition("_")[2]
    if join.by is None or text == join.alias or text.startswith(f"{join.alias}_"):
        return text
    if text == last or text.startswith(f"{last}_"):  # order_status + status_name
        return join.alias + text.removeprefix(last)
    return f"{join.alias}_{text}"

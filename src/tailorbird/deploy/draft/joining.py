"""Which tables hold facts, and what is joined to each along its references; pure.

A fact's table refers to others while nothing refers to it: orders' lines, payments. What it refers to is joined from
near to far, each table by the first way that leads to it, so that every join finds at most one row.
"""

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
_ENOUGH = 30  # rows that must have been read before it means anything that all are NULL
DEEPEST = 4
# columns taken of a joined table, by how far it is from the root
_MOST_COLUMNS = {1: 8, 2: 6, 3: 5, 4: 4}
_CHOICE = re.compile(r"enum|set\b|tinyint\(1\)|bit\(1\)", re.IGNORECASE)
_INTEGERS = {"int8", "int16", "int32", "int64", "uint64"}
_INEXACT = {"float32", "float64", "json", "list", *SPATIAL}


@dataclass(slots=True, kw_only=True)
class Model:
    """The tables that can be captured, with the columns that leave, and the references that a join can follow.

    `unused` are the other references, each with the reason.
    """

    tables: Mapping[TableId, FoundTable]
    hidden: Mapping[TableId, tuple[str, ...]]
    references: list[Reference] = field(default_factory=list)
    unused: list[tuple[Reference, str]] = field(default_factory=list)

    def of(self, table: TableId) -> list[Reference]:
        """The references of a table's rows."""
        return [each for each in self.references if each.child == table]

    def to(self, table: TableId) -> list[Reference]:
        """The references of others to a table's rows."""
        return [each for each in self.references if each.parent == table != each.child]

    def columns(self, table: FoundTable) -> list[str]:
        """Names of the columns that leave it."""
        hidden = self.hidden[table.table_id]
        return [column.name for column in table.schema.columns if column.name not in hidden]


def model_of(sources: tuple[DraftSource, ...]) -> Model:
    """What can be joined of what was found."""
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
    """Whether a join compares columns of these types exactly."""
    same = left == right or (left.kind in _INTEGERS and right.kind in _INTEGERS)
    return same and left.kind not in _INEXACT


def _unusable(model: Model, reference: Reference) -> str:
    child, parent = model.tables.get(reference.child), model.tables.get(reference.parent)
    if child is None or parent is None:
        gone = reference.parent if parent is None else reference.child
        return f"{gone.table} is not captured"
    if not set(parent.key) <= set(reference.referenced):
        return f"it leads to {'+'.join(reference.referenced)}, and the key of {parent.name} is {'+'.join(parent.key)}"
    for own, theirs in zip(reference.columns, reference.referenced, strict=True):
        first, second = child.schema.column(own), parent.schema.column(theirs)
        if first is None or second is None:
            return "one of its columns is not there"
        if not comparable(first.type, second.type):
            return f"{first.column_type} and {second.column_type} are not compared exactly"
    return ""


def facts(model: Model, most: int) -> list[tuple[FoundTable, str]]:
    """The tables whose rows the joined tables' rows are, best first, with the reason; at most so many.

    One that stands in the joins of a better one already is none, nor is one that only others refer to. But each source
    has one, as long as nothing else reads it.
    """
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
    """The other tables that it refers to, each once."""
    return list(dict.fromkeys(e.parent for e in model.of(table.table_id) if e.parent != table.table_id))


def _rank(model: Model, table: FoundTable) -> tuple[object, ...]:
    referred = {each.child for each in model.to(table.table_id)}
    alone = not _parents(model, table)
    return (bool(referred), alone, len(referred), _only_keys(model, table), -table.count, table.name)


def _only_keys(model: Model, table: FoundTable) -> bool:
    """Whether there is nothing in a table but what it refers to, as in one that ties two others together."""
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
    """The joined table whose rows are those of `table`."""
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
    """The root, then what is joined, from near to far; and what was not, with the reason.

    `empty`: tables that add no column.
    """
    joins = [DraftJoin(alias=snake(root.name), table=root)]
    left: list[str] = []
    for join in joins:  # grows while it is walked
        for reference in model.of(join.table.table_id):
            parent = model.tables[reference.parent]
            before = next((j for j in joins if j.table is parent and j.parent != join.alias), None)
            itself = reference.parent == reference.child
            if itself and join.by is not None and join.by.child == reference.child == join.by.parent:
                continue  # the row that a row of the same table names is not asked for the one that it names
            if parent.table_id in empty:
                left.append(f"{reference} → {parent.name}: nothing in it but numbers that lead on")
            elif (looked := len(join.table.rows)) >= _ENOUGH and not _named_at_all(join.table, reference):
                left.append(f"{reference} → {parent.name}: NULL in all of {looked} rows read")
            elif before is not None and not itself:
                left.append(f"{reference} → {parent.name}: {parent.name} is joined already, as {before.alias}")
            elif join.depth >= DEEPEST:
                left.append(f"{reference} → {parent.name}: it is {DEEPEST + 1} joins away")
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
    """Whether any row that was read refers to something."""
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
            # numbers that lead somewhere tell people nothing, and what led here stands before
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

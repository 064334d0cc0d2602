"""Choose the fields of a joined table for search, facets and display, each with the reason."""

from __future__ import annotations

import re

from tailorbird.deploy.draft.column_names import (
    POOR,
    is_change_time,
    looks_like_code,
    looks_like_name,
    looks_like_person,
    looks_sorted,
    time_rank,
)
from tailorbird.deploy.draft.draft import DraftColumn, DraftFields, DraftTable, ReasonedName

_MOST_SEARCHED = 10
_MOST_FACETS = 6
_MOST_SHOWN = 12
_FEW = 30  # maximum number of different values of a facet
_ENOUGH = 30  # rows needed before a small number of values is significant
_LONG = 12  # characters from which a text may contain words
_TEXT = re.compile(r"(var)?char\((\d+)\)|(tiny|medium|long)?text", re.IGNORECASE)
_TIMES = {"date", "datetime", "timestamp"}


def fields_of(table: DraftTable) -> DraftFields:
    """Choose the columns that the index searches and that the dashboard shows."""
    facets, search, time = _facets(table), _search(table), _time(table)
    return DraftFields(search=search, facets=facets, time=time, columns=_shown(table, search, facets, time))


def _base(column: DraftColumn) -> str:
    return re.split(r"[( ]", column.column.column_type.lower(), maxsplit=1)[0]


def _facets(table: DraftTable) -> tuple[ReasonedName, ...]:
    """Choose facets, in this order: enums and sets, booleans, categories, other texts with few values.

    Within each kind, columns with fewer values come first."""
    compared = _compared(table)
    found: list[tuple[int, int, ReasonedName]] = []
    for column in table.columns:
        if (column.alias, column.column.name) in compared:
            continue
        values = column.table.values(column.column.name)
        few = len(set(values))
        if (chosen := _choice(column, few, len(values), root=column.alias == table.root.alias)) is not None:
            rank, why = chosen
            found.append((rank, few, ReasonedName(name=column.output, why=why)))
    found.sort(key=lambda each: each[:2])
    return tuple(each for *_, each in found[:_MOST_FACETS])


def _choice(column: DraftColumn, few: int, read: int, *, root: bool) -> tuple[int, str] | None:
    """Return the rank of a column as a facet (lower is better) and the reason. None if it is unsuitable.

    `few` is the number of different values among the `read` rows."""
    base, kind, name = _base(column), column.column.type.kind, column.column.name
    if base in ("enum", "set"):
        return 0, base
    if kind == "bool" or column.column.column_type.lower().startswith("tinyint(1)"):
        return 1, "boolean"
    if kind != "string" or not 2 <= few <= _FEW or looks_like_code(name) or looks_like_person(name):
        return None
    sorted_under = looks_sorted(name) or looks_sorted(column.alias)
    if read >= _ENOUGH and few * (2 if sorted_under else 3) <= read:
        return (2 if sorted_under else 3), f"{few} different values in {read} rows"
    if not root and (sorted_under or looks_like_name(name)):
        return (2 if sorted_under else 3), f"{column.table.name} has {few} rows"
    return None


def _search(table: DraftTable) -> tuple[ReasonedName, ...]:
    compared = _compared(table)
    found: list[tuple[int, ReasonedName]] = []
    for column in table.columns:
        match = _TEXT.match(column.column.column_type)
        if match is None or _base(column) == "enum" or (column.alias, column.column.name) in compared:
            continue
        long = match[2] is None or int(match[2]) >= _LONG
        if long and not looks_like_code(column.column.name):
            name = column.column.name
            rank = 3 if looks_sorted(name) else 1 if looks_like_person(name) else 0 if looks_like_name(name) else 2
            found.append((rank, ReasonedName(name=column.output, why=column.column.column_type)))
    found.sort(key=lambda each: each[0])
    return tuple(each for _, each in found[:_MOST_SEARCHED])


def _time(table: DraftTable) -> ReasonedName | None:
    """Choose the time column: the best one of the root, or of a directly joined table if its name leaves no doubt."""
    near = {join.alias: join.depth for join in table.joins if join.depth <= 1}
    ranked: list[tuple[bool, int, int, DraftColumn]] = []
    for column in table.columns:
        if column.alias in near and column.column.type.kind in _TIMES:
            rank, depth = time_rank(column.column.name), near[column.alias]
            if depth == 1:
                rank = max(rank, 1)  # prefer the nearest joined table
            if depth == 0 or rank == 1:
                # a column that is NULL in most rows is not useful for sorting
                sparse = len(column.table.values(column.column.name)) * 2 < len(column.table.rows)
                ranked.append((sparse or rank >= POOR, depth, rank, column))
    ranked.sort(key=lambda each: each[:3])
    if not ranked:
        return None
    best, *others = (each[-1] for each in ranked)
    reported = f", rather than {', '.join(each.output for each in others[:2])}" if others else ""
    return ReasonedName(name=best.output, why=f"{best.column.column_type} of {best.table.name}{reported}")


def _shown(
    table: DraftTable, search: tuple[ReasonedName, ...], facets: tuple[ReasonedName, ...], time: ReasonedName | None
) -> tuple[str, ...]:
    """Choose the columns of the dashboard's table: key, time, then the most useful ones, as many as fit on a screen."""
    counted = {each.name for each in facets}
    words = [each.name for each in search if each.name not in counted]
    first = [*table.row_key, *([time.name] if time else []), *words[:5], *(each.name for each in facets), *words]
    long = {c.output for c in table.columns if _base(c).endswith("text") or c.column.type.kind in ("json", "bytes")}
    plain = [c.output for c in table.columns if not is_change_time(c.column.name)]
    wanted = [name for name in dict.fromkeys([*first, *plain]) if name not in long or name in table.row_key]
    kept = set(wanted[:_MOST_SHOWN])
    head = list(dict.fromkeys(first[: len(table.row_key) + (time is not None)]))
    return (*head, *(c.output for c in table.columns if c.output in kept and c.output not in head))


def _compared(table: DraftTable) -> set[tuple[str, str]]:
    """Return the key and reference columns as (alias, column). People rarely want to see them."""
    pairs = {(join.parent, name) for join in table.joins if join.by for name in join.by.columns}
    return pairs | {(table.root.alias, name) for name in table.root.table.key}

"""Rewrite explode() of a list as a UNION ALL of its members by their places, before parsing (part of stage 1).

    SELECT p.id, t.tag FROM p LATERAL VIEW posexplode(split(p.tags, ',')) t AS pos, tag
      SELECT _x.c0 AS id, _x.member AS tag FROM (
        SELECT p.id AS c0, <part 0 of p.tags> AS member, 0 AS place FROM p WHERE <p.tags has more than 0 parts>
        UNION ALL SELECT p.id AS c0, <part 1 of p.tags> AS member, 1 AS place FROM p WHERE …) _x

The place is a literal in each query, so it is a part of the row key. A list is a text that split() or string_to_array()
divides, or array(a, b). LATERAL VIEW, LATERAL, UNNEST, and explode() in the SELECT list are the same. What cannot be
rewritten stays, and is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from joins.query.functions.regular import NthPart, PartCount, separator_of
from joins.select.names import same_name, text_of
from joins.select.sql import conjuncts

ROWS = "_x"
_MEMBER, _PLACE = "member", "place"
MOST_PARTS = 20  # of a text that is split: each is a query
_CLAUSES = ("group", "having", "order", "qualify")


@dataclass(frozen=True, slots=True)
class _Found:
    """A list of a SELECT: the table's name that it gets, the names of its members and places, the number of
    the first place, and how to remove it."""

    list: exp.Expr
    alias: str
    member: str
    place: str
    outer: bool
    first: int
    remove: Callable[[], object]


@dataclass(frozen=True, slots=True)
class _Member:
    """One member of a list, and the conditions for its being there."""

    value: exp.Expr
    where: tuple[exp.Expr, ...]


def with_explodes(statement: exp.Expr) -> exp.Expr:
    """Rewrite every SELECT with one exploded list, in place."""
    for select in reversed(list(statement.find_all(exp.Select))):
        found = [*_laterals(select), *_joined(select), *_selected(select)]
        found = [one for one in found if not (one.outer and one.place)]  # the place of no member is NULL
        plain = len(found) == 1 and select.args.get("from_") is not None and not _has_star(select)
        if plain and (members := _members(found[0])):
            _rewrite(select, found[0], members)
    return statement


def _has_star(select: exp.Select) -> bool:
    return any(isinstance(one, exp.Star) or isinstance(one.this, exp.Star) for one in select.expressions)


def _named(node: exp.Expr, call: exp.Expr, outer: bool, remove: Callable[[], object]) -> Iterator[_Found]:
    """Yield the list of a call, whose table and columns an alias names."""
    alias = node.args.get("alias")
    names = [one.name for one in alias.args.get("columns") or ()] if alias is not None else []
    table = alias.name if alias is not None and alias.this is not None else ""
    placed = isinstance(call, exp.Posexplode)
    offset = call.args.get("offset") or node.args.get("offset")
    if isinstance(call, exp.Unnest):
        if len(call.expressions) != 1:
            return
        place = offset.name if isinstance(offset, exp.Identifier) else names[1] if offset and len(names) > 1 else ""
        yield _Found(call.expressions[0], table, names[0] if names else table, place, outer, 1, remove)
    elif isinstance(call, exp.Explode) and not call.expressions:
        names = names or (["pos", "col"] if placed else ["col"])
        if len(names) == 1 + placed:
            yield _Found(call.this, table, names[-1], names[0] if placed else "", outer, 0, remove)


def _laterals(select: exp.Select) -> Iterator[_Found]:
    for lateral in select.args.get("laterals") or ():
        outer = bool(lateral.args.get("outer")) or isinstance(lateral.this, exp.ExplodeOuter | exp.PosexplodeOuter)
        yield from _named(lateral, lateral.this, outer, lambda: select.set("laterals", None))


def _joined(select: exp.Select) -> Iterator[_Found]:
    for join in select.args.get("joins") or ():
        node = join.this
        call = node.this if isinstance(node, exp.Lateral) else node
        on = join.args.get("on")
        if not isinstance(call, exp.Unnest | exp.Explode) or join.side not in ("", "LEFT"):
            continue
        if (on is None or on == exp.true()) and not join.args.get("using"):
            kept = [one for one in select.args["joins"] if one is not join]
            yield from _named(node, call, join.side == "LEFT", lambda kept=kept: select.set("joins", kept or None))  # type: ignore[misc]  # the default binds it


def _selected(select: exp.Select) -> Iterator[_Found]:
    for item in select.expressions:
        call = item.unalias() if not isinstance(item, exp.Aliases) else item.this
        if not isinstance(call, exp.Explode) or call.expressions:
            continue
        names = [one.name for one in item.expressions] if isinstance(item, exp.Aliases) else [item.alias or "col"]
        placed = isinstance(call, exp.Posexplode)
        if len(names) != 1 + placed:
            continue
        outer = isinstance(call, exp.ExplodeOuter | exp.PosexplodeOuter)

        def remove(item: exp.Expr = item, names: list[str] = names) -> None:
            shown = [_shown(_PLACE, names[0])] if len(names) == 2 else []
            at = next(i for i, one in enumerate(select.expressions) if one is item)
            made = [*shown, _shown(_MEMBER, names[-1])]
            select.set("expressions", [*select.expressions[:at], *made, *select.expressions[at + 1 :]])

        yield _Found(call.this, "", "", "", outer, 0, remove)


def _shown(name: str, alias: str) -> exp.Expr:
    return exp.alias_(exp.column(name, table=ROWS), alias)


def _members(found: _Found) -> list[_Member]:
    """Return the members of a list. Empty if it is of another kind."""
    node = found.list.unnest()
    if isinstance(node, exp.Array):
        return [_Member(one.copy(), ()) for one in node.expressions]
    by = separator_of(node)
    if not by:
        return []
    text = node.this

    def count(*, most: bool = False) -> exp.Expr:
        made = PartCount(this=text.copy(), expression=exp.Literal.string(by))
        if most:
            made.set("most", exp.Literal.number(MOST_PARTS))
        return made

    members = []
    for number in range(MOST_PARTS):
        place = exp.Literal.number(number)
        value = NthPart(this=text.copy(), expression=exp.Literal.string(by), place=place)
        value.set("safe", True)
        where: tuple[exp.Expr, ...] = (
            exp.GT(this=count(), expression=place.copy()),
            exp.LTE(this=count(), expression=exp.Literal.number(MOST_PARTS)),
        )
        if number == 0:  # a longer list has no rows, and is reported once
            enough: exp.Expr = exp.GT(this=count(most=True), expression=place.copy())
            empty = exp.Is(this=text.copy(), expression=exp.Null())
            where = (exp.Paren(this=exp.or_(empty, enough)) if found.outer else enough,)
        members.append(_Member(value, where))
    return members


def _rewrite(select: exp.Select, found: _Found, members: list[_Member]) -> None:
    found.remove()
    names: dict[str, exp.Expr] = {}
    aliases = [item.alias for item in select.expressions if item.alias]
    where = select.args.get("where")
    conditions = list(conjuncts(None if where is None else where.this))
    above = [one for one in conditions if any(_is_own(column, found) for column in one.find_all(exp.Column))]
    below = [one for one in conditions if not any(one is other for other in above)]
    for item in list(select.expressions):
        if isinstance(item, exp.Column):
            alias = exp.Alias(alias=item.this.copy())
            item.replace(alias)
            alias.set("this", item)
    holder = exp.Tuple(expressions=[one.copy() for one in above])
    clauses = [one for key in _CLAUSES if (one := select.args.get(key)) is not None]
    for part in (*select.expressions, *clauses, holder):
        for column in list(part.find_all(exp.Column)):
            named = not isinstance(part, exp.Alias) and same_name(aliases, column.name) is not None
            named = named and part is not holder and column.find_ancestor(exp.AggFunc) is None
            if column.table == ROWS or (named and not column.table):
                continue
            if _is_own(column, found):
                place = found.place and column.name.casefold() == found.place.casefold()
                column.replace(exp.column(_PLACE if place else _MEMBER, table=ROWS))
                continue
            names.setdefault(text_of(column), column.copy())
            column.replace(exp.column(f"c{list(names).index(text_of(column))}", table=ROWS))
    branches = [_branch(select, names, below, one, number) for number, one in enumerate(members, found.first)]
    rows: exp.Expr = branches[0]
    for branch in branches[1:]:
        rows = exp.union(rows, branch, distinct=False, copy=False)
    alias_ = exp.TableAlias(this=exp.to_identifier(ROWS))
    select.set("from_", exp.From(this=exp.Subquery(this=rows, alias=alias_)))
    select.set("joins", None)
    select.set("where", exp.Where(this=exp.and_(*holder.expressions)) if above else None)


def _is_own(column: exp.Column, found: _Found) -> bool:
    """Return whether a column is a member of the list, or its place."""
    own = {name.casefold() for name in (found.member, found.place) if name}
    if column.table:
        return column.table.casefold() == found.alias.casefold() and column.name.casefold() in own
    return column.name.casefold() in own


def _branch(
    select: exp.Select, names: dict[str, exp.Expr], below: list[exp.Expr], member: _Member, number: int
) -> exp.Select:
    rows = exp.select(*(exp.alias_(one.copy(), f"c{i}") for i, one in enumerate(names.values())))
    rows.append("expressions", exp.alias_(member.value, _MEMBER))
    rows.append("expressions", exp.alias_(exp.Literal.number(number), _PLACE))
    for key in ("from_", "joins"):
        value = select.args.get(key)
        rows.set(key, [one.copy() for one in value] if isinstance(value, list) else value and value.copy())
    return rows.where(*(one.copy() for one in (*below, *member.where)))

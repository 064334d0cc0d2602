"""Rewrite ROLLUP, CUBE and GROUPING SETS as a UNION ALL of groups, before parsing (part of stage 1).

    SELECT o.a, sum(o.x) AS s, grouping(o.a) AS g FROM o GROUP BY ROLLUP (o.a)
      SELECT o.a AS a, sum(o.x) AS s, 0 AS g FROM o GROUP BY o.a
      UNION ALL SELECT NULL AS a, sum(o.x) AS s, 1 AS g FROM o GROUP BY NULL

where NULL is `CASE WHEN FALSE THEN o.a END`, which has the type of the column. As in Spark, the total of no rows is no
row. What cannot be rewritten stays, and is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations, product

from sqlglot import exp

from joins.query.aggregates import aggregates_in
from joins.select.names import same_name, text_of

_KEPT = {"expressions", "from_", "joins", "where", "group", "having", "with_"}
_MOST = 64  # queries that one GROUP BY may become
_SEVERAL = (exp.Rollup, exp.Cube, exp.GroupingSets)
ALIAS = "alias"  # key of an expression's meta: the result column by whose name GROUP BY wrote it
Names = tuple[str, ...]  # the SQL of some columns of GROUP BY


def with_grouping_sets(statement: exp.Expr) -> exp.Expr:
    """Return a statement in which every GROUP BY of several sets is rewritten."""
    top = exp.Paren(this=statement)
    for select in reversed(list(top.find_all(exp.Select))):
        group = select.args.get("group")
        if group is None or any(value for key, value in select.args.items() if key not in _KEPT):
            continue
        if any(item.find(exp.Window) for item in select.expressions):
            continue  # it reads the groups of all sets
        keys: dict[str, exp.Expr] = {}
        sets = _sets(group, select, keys)
        if not sets or len(sets) > _MOST:
            continue
        union: exp.Expr | None = None
        for one in sets:
            branch = _branch(select, keys, one)
            union = branch if union is None else exp.union(union, branch, distinct=False, copy=False)
        assert union is not None  # there is a set
        union.set("with_", select.args.get("with_"))
        select.replace(union)
    inner: exp.Expr = top.this
    inner.pop()
    return inner


def _sets(group: exp.Group, select: exp.Select, keys: dict[str, exp.Expr]) -> list[Names] | None:
    """Return the sets of a GROUP BY, and collect its columns in `keys`, by their SQL. None for a plain GROUP BY."""
    plain = [one for one in group.expressions if not isinstance(one, _SEVERAL)]
    several = [one for one in group.expressions if isinstance(one, _SEVERAL)]
    after = [one for key in ("rollup", "cube") for one in group.args.get(key) or []]  # GROUP BY a, b WITH ROLLUP
    if group.args.get("totals") or group.args.get("all") or len(after) > 1 or (after and several):
        return None
    if after:
        several, plain = [type(after[0])(expressions=after[0].expressions or plain)], []
    if not several:
        return None

    def names(node: exp.Expr) -> Names:
        found = [_meant(one, select) for one in (node.expressions if isinstance(node, exp.Tuple) else [node])]
        keys.update((text_of(one), one) for one in found)
        return tuple(text_of(one) for one in found)

    for one in group.expressions:  # in the order of the text, in which GROUPING_ID() has its bits
        for column in _columns(one):
            names(column)
    always = tuple(name for one in plain for name in names(one))
    made = [_expanded(one, names) for one in several]
    return [(*always, *(name for part in chosen for name in part)) for chosen in product(*made)]


def _columns(node: exp.Expr) -> list[exp.Expr]:
    """Return the entries of a part of GROUP BY, from left to right."""
    if isinstance(node, (exp.Tuple, *_SEVERAL)):
        return [column for one in node.expressions for column in _columns(one)]
    return [node]


def _expanded(node: exp.Expr, names: Callable[[exp.Expr], Names]) -> list[Names]:
    """Return the sets of one ROLLUP, CUBE or GROUPING SETS."""
    if isinstance(node, exp.GroupingSets):
        parts = [_expanded(one, names) if isinstance(one, _SEVERAL) else [names(one)] for one in node.expressions]
        return [one for part in parts for one in part]
    units = [names(one) for one in node.expressions]
    if isinstance(node, exp.Rollup):
        chosen = [units[:count] for count in range(len(units), -1, -1)]
    else:
        chosen = [list(some) for count in range(len(units), -1, -1) for some in combinations(units, count)]
    return [tuple(name for unit in some for name in unit) for some in chosen]


def _meant(node: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return what an entry of GROUP BY stands for: the expression of a column of the result, or itself."""
    node = node.unnest()
    if isinstance(node, exp.Literal) and node.is_int and 0 < int(node.name) <= len(select.expressions):
        item: exp.Expr = select.expressions[int(node.name) - 1].unalias()
        return item
    if isinstance(node, exp.Column) and not node.table:
        named = {item.alias: item.unalias() for item in select.expressions if item.alias}
        found: exp.Expr = named.get(same_name(named, node.name) or "", node)
        # the name may be that of a column of the table, which precedes that of the result
        if any(same_name([node.name], one.name) for one in found.find_all(exp.Column)) or any(aggregates_in(found)):
            return node
        found = found.copy()
        found.meta[ALIAS] = node.name
        return found
    return node


def _key_of(node: exp.Expr, keys: Mapping[str, exp.Expr]) -> str | None:
    """Return the column of GROUP BY that an expression is, with or without the table's name. None if it is none."""
    name = text_of(node)
    if name in keys or not isinstance(node, exp.Column):
        return name if name in keys else None
    same = [key for key, one in keys.items() if isinstance(one, exp.Column) and same_name([one.name], node.name)]
    return same[0] if len(same) == 1 and not (node.table and keys[same[0]].args.get("table")) else None


def _branch(select: exp.Select, keys: Mapping[str, exp.Expr], kept: Names) -> exp.Select:
    """Return the query for one of the sets: its groups, with NULL for the columns that the set lacks."""
    lacking = [name for name in keys if name not in kept]

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Grouping | exp.GroupingId):
            asked = node.expressions or ([node.this] if node.args.get("this") else list(keys.values()))
            columns = [_key_of(_meant(one, select), keys) for one in asked]
            if None in columns:
                return node.copy()  # the parser refuses it
            return exp.Literal.number(int("".join("01"[one in lacking] for one in columns), 2))
        # an aggregate and its FILTER read all rows of the group, as do subqueries
        if isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup | exp.Query):
            return node.copy()
        if (key := _key_of(node, keys)) in lacking:
            return exp.Case(ifs=[exp.If(this=exp.false(), true=node.copy())])
        if key is not None or isinstance(node, exp.Column):
            return node.copy()
        copy = node.copy()
        for child in list(copy.iter_expressions()):
            child.replace(replaced(child))
        return copy

    found = select.copy()
    found.set("with_", None)
    items = []
    for item in select.expressions:
        name, value = item.args.get("alias"), replaced(item.unalias())
        if name is None and isinstance(item, exp.Column) and not isinstance(item.this, exp.Star):
            name = item.this
        items.append(value if name is None else exp.Alias(this=value, alias=name.copy()))
    found.set("expressions", items)
    found.set("group", exp.Group(expressions=[replaced(one) for one in keys.values()]))
    if (having := select.args.get("having")) is not None:
        found.set("having", exp.Having(this=replaced(_with_values(having.this, select))))
    return found


def _with_values(having: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return HAVING with the expressions of result columns for their names: the second branch of a UNION has none."""
    named = {item.alias: item.unalias() for item in select.expressions if item.alias}
    top = exp.Paren(this=having.copy())
    for column in list(top.find_all(exp.Column)):
        name = None if column.table else same_name(named, column.name)
        if name is not None and not column.find_ancestor(exp.AggFunc, exp.Query):
            column.replace(exp.Paren(this=named[name].copy()))
    inner: exp.Expr = top.this
    return inner

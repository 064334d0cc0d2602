"""Rewrite aggregates over whole partitions as subqueries that are values (part of stage 1).

    SELECT o.id, sum(o.amount) OVER (PARTITION BY o.region) AS total FROM o WHERE o.id > 5
      SELECT o.id, (SELECT sum(_w.a0) FROM (SELECT o.amount AS a0, o.region AS p0 FROM o WHERE o.id > 5) _w
                    WHERE _w.p0 = o.region) AS total FROM o WHERE o.id > 5

`joins.select.rewrite.subqueries` then makes joins with groups of them. NULL is a partition, too, but equal to nothing:
its value is a subquery of its own, with `IS NULL`. `joins.select.flatten` omits it for a column that is never NULL.
`joins.select.over.windowed` computes the windows that this module leaves."""

from __future__ import annotations

from sqlglot import exp

from joins.query.aggregate_functions import CALLS
from joins.query.aggregates import aggregates_in
from joins.select.rewrite.subqueries import IF_NULL

_ROWS = "_w"  # the alias of the query's rows in the subquery
_MOST = 2  # columns of PARTITION BY: each doubles the subqueries
_FROM = ("from_", "joins", "where")
_GROUPED = ("group", "having")


def with_partitions(statement: exp.Expr) -> exp.Expr:
    """Rewrite the aggregates over whole partitions of every SELECT, in place."""
    for select in reversed(list(statement.find_all(exp.Select))):
        if select.args.get("from_") is None or select.args.get("distinct") is not None:
            continue
        items = [*select.expressions, *(one for key in ("order", "qualify") if (one := select.args.get(key)))]
        windows = [node for item in items for node in item.find_all(exp.Window) if _is_whole(node, select)]
        made = [(node, _value(node, select)) for node in windows]  # all, before the query changes
        for node, value in made:
            node.replace(value)
    return statement


def _is_whole(node: exp.Window, select: exp.Select) -> bool:
    """Return whether a window is an aggregate over whole partitions, by at most two columns of one table."""
    call = node.this.this if isinstance(node.this, exp.Filter) else node.this
    if not isinstance(call, CALLS) or isinstance(call, exp.ArrayAgg | exp.ArrayUniqueAgg):
        return False
    if any(node.args.get(key) is not None for key in ("order", "spec", "alias")):
        return False
    if node.find_ancestor(exp.Select) is not select:
        return False
    columns = node.args.get("partition_by") or []
    if len(columns) > _MOST or not all(isinstance(one, exp.Column) for one in columns):
        return False
    alone = not select.args.get("joins")
    tables = {one.table for one in columns}
    return alone or (len(tables) <= 1 and "" not in tables)


def _value(node: exp.Window, select: exp.Select) -> exp.Expr:
    """Return the value of a window: a subquery, or a CASE of one for each way in which its columns may be NULL."""
    first = select.args["from_"].this.alias_or_name
    columns = [one if one.table else exp.column(one.name, table=first) for one in node.args.get("partition_by") or []]
    cases: list[tuple[exp.Expr, exp.Expr]] = []
    for absent in range(2 ** len(columns) - 1, 0, -1):
        nulls = [one for i, one in enumerate(columns) if absent >> i & 1]
        cases.append((exp.and_(*(_is_null(one) for one in nulls)), _subquery(node.this, select, columns, absent)))
    whole = _subquery(node.this, select, columns, 0)
    return exp.Case(ifs=[exp.If(this=when, true=then) for when, then in cases], default=whole) if cases else whole


def _subquery(call: exp.Expr, select: exp.Select, columns: list[exp.Column], absent: int) -> exp.Expr:
    """Return the subquery for the rows whose columns are NULL where `absent` has a bit, and equal elsewhere."""
    grouped = any(select.args.get(key) for key in _GROUPED) or any(map(_aggregates, select.expressions))
    rows = exp.select(*(_named_items(select) if grouped else ()))
    own = "_" * max((len(item.alias_or_name) for item in rows.expressions), default=0)  # no item has such a long name
    for key in (*_FROM, *(_GROUPED if grouped else ())):
        value = select.args.get(key)
        rows.set(key, [one.copy() for one in value] if isinstance(value, list) else value and value.copy())
    found = exp.Paren(this=call.copy())
    names: dict[str, str] = {}
    for part in _read(found.this, grouped=grouped):
        if (name := names.get(part.sql())) is None:
            name = names[part.sql()] = f"a{len(names)}{own}"
            rows.append("expressions", exp.alias_(part.copy(), name))
        part.replace(exp.column(name, table=_ROWS))
    where = []
    for i, column in enumerate(columns):
        rows.append("expressions", exp.alias_(column.copy(), f"p{i}{own}"))
        mine = exp.column(f"p{i}{own}", table=_ROWS)
        where.append(_is_null(mine) if absent >> i & 1 else exp.EQ(this=mine, expression=column.copy()))
    if not rows.expressions:
        rows.append("expressions", exp.alias_(exp.Literal.number(1), "a0"))
    asked = exp.select(found.this).from_(exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier(_ROWS))))
    found_rows = exp.Subquery(this=asked.where(*where) if where else asked)
    found_rows.meta[IF_NULL] = tuple(column.copy() for i, column in enumerate(columns) if absent >> i & 1)
    return found_rows


def _named_items(select: exp.Select) -> list[exp.Expr]:
    """Return the items of a grouped query if its GROUP BY or HAVING uses their names or numbers. Otherwise none."""
    clauses = [one for key in _GROUPED if (one := select.args.get(key)) is not None]
    named = {item.alias for item in select.expressions if item.alias}
    group = select.args.get("group")
    numbers = group is not None and any(isinstance(one, exp.Literal) for one in group.expressions)
    used = {column.name for clause in clauses for column in clause.find_all(exp.Column) if not column.table}
    if not (numbers or used & named):
        return []
    items = [item.copy() for item in select.expressions]
    for item in items:  # a window is no part of GROUP BY and HAVING
        for node in list(item.find_all(exp.Window)):
            node.replace(exp.Literal.number(1))
    return items


def _read(call: exp.Expr, *, grouped: bool) -> list[exp.Expr]:
    """Return the parts of an aggregate that its rows must have: columns, and aggregates of groups."""
    inner = call.this if isinstance(call, exp.Filter) else call
    within = [part for child in inner.iter_expressions() for part in aggregates_in(child)] if grouped else []
    inside = {id(column) for part in within for column in part.find_all(exp.Column)}
    return [*within, *(column for column in call.find_all(exp.Column) if id(column) not in inside)]


def _aggregates(node: exp.Expr) -> bool:
    """Return whether an item aggregates rows, apart from what a window does."""
    if isinstance(node, exp.Window):
        inner = node.this.this if isinstance(node.this, exp.Filter) else node.this
        return any(map(_aggregates, inner.iter_expressions()))
    if isinstance(node, exp.AggFunc) and any(aggregates_in(node)):
        return True
    return not isinstance(node, exp.Query) and any(map(_aggregates, node.iter_expressions()))


def _is_null(column: exp.Column) -> exp.Expr:
    return exp.Is(this=column.copy(), expression=exp.Null())

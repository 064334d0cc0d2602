"""Rewrite groups by windows that overlap as groups of rows that are repeated, before parsing (part of stage 1).

    SELECT window(o.at, '1 hour', '30 minutes') AS w, count(*) AS n FROM o GROUP BY window(o.at, '1 hour', '30 minutes')
      SELECT _h.start AS w, count(*) AS n
      FROM (SELECT window(o.at, '30 minutes') AS start FROM o WHERE o.at IS NOT NULL
            UNION ALL SELECT window(o.at, '30 minutes') - INTERVAL 1800 SECOND AS start FROM o WHERE …) _h
      GROUP BY _h.start

Each row is in length / slide windows. As in Spark, rows without a time are in none. What cannot be rewritten stays, and
is refused."""

from __future__ import annotations

from sqlglot import exp

from joins.query.functions.windows import TimeWindow, seconds_of_text
from joins.select.names import same_name, text_of

_ROWS, _START = "_h", "start"
_MOST = 50  # windows that contain one row
_CLAUSES = ("group", "having", "order", "qualify")


def with_sliding_windows(statement: exp.Expr) -> exp.Expr:
    """Rewrite every SELECT with such windows, in place."""
    for select in reversed(list(statement.find_all(exp.Select))):
        group = select.args.get("group")
        windows = [] if group is None else list(group.find_all(TimeWindow))
        found = {text_of(one): one for one in windows if len(one.expressions) == 1}
        if len(found) == 1 and not select.is_star:
            _repeat(select, *found.values())
    return statement


def _repeat(select: exp.Select, window: TimeWindow) -> None:
    length, slide = (seconds_of_text(one) for one in (window.expression, window.expressions[0]))
    parts = [*select.expressions, *(one for key in _CLAUSES if (one := select.args.get(key)) is not None)]
    if not slide or length % slide or not 1 < length // slide <= _MOST or any(one.find(exp.Query) for one in parts):
        return
    if any(not isinstance(one.this, exp.RowNumber) for part in parts for one in part.find_all(exp.Window)):
        return  # the groups of a partition are joined by a key, which the repeated rows lack
    start = exp.column(_START, table=_ROWS)
    moment, text = window.this.copy(), text_of(window)
    names: dict[str, exp.Expr] = {}
    aliases = [item.alias for item in select.expressions if item.alias]
    for item in select.expressions:
        if isinstance(item, exp.Column):
            alias = exp.Alias(alias=item.this.copy())
            item.replace(alias)
            alias.set("this", item)
    for part in (*select.expressions, *(one for key in _CLAUSES if (one := select.args.get(key)) is not None)):
        for node in [one for one in part.find_all(TimeWindow) if text_of(one) == text]:
            node.replace(start.copy())
        for column in list(part.find_all(exp.Column)):
            named = not isinstance(part, exp.Alias) and same_name(aliases, column.name) is not None
            named = named and column.find_ancestor(exp.AggFunc) is None  # there it is a column of the tables
            if column.table == _ROWS or (named and not column.table):
                continue
            names.setdefault(text_of(column), column.copy())
            column.replace(exp.column(f"c{list(names).index(text_of(column))}", table=_ROWS))
    branches = [_branch(select, names, moment, slide, number) for number in range(length // slide)]
    rows: exp.Expr = branches[0]
    for branch in branches[1:]:
        rows = exp.union(rows, branch, distinct=False, copy=False)
    named_rows = exp.TableAlias(this=exp.to_identifier(_ROWS))
    select.set("from_", exp.From(this=exp.Subquery(this=rows, alias=named_rows)))
    select.set("joins", None)
    select.set("where", None)


def _branch(select: exp.Select, names: dict[str, exp.Expr], moment: exp.Expr, slide: int, number: int) -> exp.Select:
    """Return the rows with the start of the window that begins a number of slides before the last one."""
    start: exp.Expr = TimeWindow(this=moment.copy(), expression=exp.Literal.string(f"{slide} seconds"))
    if number:
        back = exp.Interval(this=exp.Literal.number(number * slide), unit=exp.var("SECOND"))
        start = exp.Sub(this=start, expression=back)
    rows = exp.select(*(exp.alias_(one.copy(), f"c{i}") for i, one in enumerate(names.values())))
    rows.append("expressions", exp.alias_(start, _START))
    for key in ("from_", "joins", "where"):
        value = select.args.get(key)
        rows.set(key, [one.copy() for one in value] if isinstance(value, list) else value and value.copy())
    return rows.where(exp.Not(this=exp.Is(this=moment.copy(), expression=exp.Null())))

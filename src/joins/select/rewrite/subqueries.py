"""Rewrite subqueries that are values, such as `(SELECT avg(x) FROM …)`, as joins with groups (part of stage 1).

    (SELECT 0.2 * avg(l.qty) FROM l WHERE l.part_id = p.id)
      LEFT JOIN (SELECT l.part_id AS k0, avg(l.qty) AS v0 FROM l GROUP BY l.part_id) _scalar0 ON _scalar0.k0 = p.id
      with the value 0.2 * _scalar0.v0

Without an equality with the outer query the groups are one row, of the key 1. A count without rows is 0. In a grouped
query every row of a group has the same value, so `max` of it is the value of the group.

A subquery without aggregates, `(SELECT p.name FROM p WHERE p.id = a.p_id)`, is a LEFT JOIN of its rows. The binder
refuses it unless the equalities find at most one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from joins.query.aggregates import aggregates_in
from joins.query.typed import refuse
from joins.select.names import text_of
from joins.select.rewrite.cases import tables_of
from joins.select.rewrite.existence import rewritten
from joins.select.rewrite.semijoin import correlated, must_be_select, unnested

SCALAR = "_scalar"  # begins the alias of such a join
IF_NULL = "if_null"  # key of a subquery's metadata: columns without whose NULL nothing reads it
_COUNTS = (exp.Count, exp.CountIf)
_AGGREGATE = "an aggregate such as max(x), or a LEFT JOIN by its key"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarJoin:
    """A join that replaces a subquery: `LEFT JOIN (query) alias ON …`. `at` is the subquery, for errors.

    It is read only where all columns of `if_null` are NULL. With `single` it must find at most one row by its key."""

    query: exp.Select
    alias: str
    on: tuple[exp.Expr, ...]
    at: exp.Expr
    if_null: tuple[exp.Column, ...] = ()
    single: bool = False


def without_subqueries(select: exp.Select, outer: frozenset[str]) -> tuple[exp.Select, list[ScalarJoin]]:
    """Replace the subqueries of a SELECT that are values. Return it with the joins that compute them.

    `outer` are the names of its tables. Raises Unsupported for subqueries that cannot be rewritten."""
    group, having, where, qualify = (select.args.get(key) for key in ("group", "having", "where", "qualify"))
    subqueries = _Subqueries(outer, None if group is None else group.expressions)
    items = [subqueries.replaced(node, grouped=group is not None) for node in select.expressions]
    conditions: dict[str, exp.Expr] = {}
    if having is not None:
        conditions["having"] = exp.Having(this=subqueries.replaced(having.this, grouped=True))
    if qualify is not None:
        conditions["qualify"] = exp.Qualify(this=subqueries.replaced(qualify.this, grouped=group is not None))
    if subqueries.joins and group is None and (having is not None or any(any(aggregates_in(one)) for one in items)):
        expected = "the aggregates in FROM (SELECT …) name, and the subquery around them"
        refuse(subqueries.joins[0].at, "a subquery with an aggregate of all rows", expected)
    if where is not None:
        conditions["where"] = exp.Where(this=subqueries.replaced(rewritten(where.this, outer)))
    if not subqueries.joins:
        return select, []
    found = select.copy()
    for key, node in conditions.items():
        found.set(key, node)
    found.set("expressions", [node.copy() for node in items])
    return found, subqueries.joins


class _Subqueries:
    """Replaces the subqueries of one SELECT and collects the joins. `outer` are the names of its tables.

    `grouped_by` are the expressions of its GROUP BY. None if it is not grouped."""

    def __init__(self, outer: frozenset[str], grouped_by: Sequence[exp.Expr] | None) -> None:
        self.outer, self.grouped_by = outer, grouped_by
        self.joins: list[ScalarJoin] = []
        self._known: dict[str, ScalarJoin] = {}

    def replaced(self, node: exp.Expr, *, grouped: bool = False) -> exp.Expr:
        """Return an expression without such subqueries. `grouped`: it is evaluated per group. Raises Unsupported."""
        if not any(_scalars(node)):
            return node
        copy = exp.Paren(this=node.copy())
        for subquery in list(_scalars(copy)):
            value = self._joined(subquery, grouped=grouped and subquery.find_ancestor(exp.AggFunc, exp.Filter) is None)
            subquery.replace(exp.Paren(this=value))
        found: exp.Expr = copy.this
        return found

    def _joined(self, subquery: exp.Subquery, *, grouped: bool) -> exp.Expr:
        inner = unnested(subquery)
        item = _item_of(subquery, inner)
        pairs, own = correlated(inner, self.outer)
        if (listed := item.find(exp.ArrayAgg, exp.ArrayUniqueAgg)) is not None:
            # of no rows it is an empty list, and not NULL
            refuse(listed, f"{listed.sql('spark')} in a subquery as a value", "a LEFT JOIN of a query with GROUP BY")
        for _, theirs in pairs:
            if not isinstance(theirs, exp.Column):
                refuse(theirs, f"{theirs.sql('spark')} compared with a subquery", "a plain column of the outer query")
            if grouped and text_of(theirs) not in [text_of(one) for one in self.grouped_by or ()]:
                refuse(theirs, f"{theirs.sql('spark')} in a subquery of groups", "a column of GROUP BY")
        keys = [mine for mine, _ in pairs] or [exp.Literal.number(1)]
        query = inner.copy()
        assert isinstance(query, exp.Select)
        query.set("distinct", None)  # there is one row
        query.set("where", exp.Where(this=exp.and_(*own)) if own else None)
        single = not any(aggregates_in(item))
        if single and not pairs:
            refuse(subquery, "a subquery of single rows as a value", _AGGREGATE)
        query.set("group", exp.Group(expressions=[key.copy() for key, _ in pairs]) if pairs and not single else None)
        query.set("expressions", [exp.alias_(key.copy(), f"k{i}", quoted=True) for i, key in enumerate(keys)])
        outside = [theirs.copy() for _, theirs in pairs] or [exp.Literal.number(1)]
        meaning = "; ".join(one.sql() for one in (query, *outside)) + "; one row" * single
        if meaning not in self._known:  # subqueries of the same rows share a join
            alias = f"{SCALAR}{len(self.joins)}"
            on = tuple(exp.EQ(this=_column(alias, f"k{i}"), expression=one) for i, one in enumerate(outside))
            self._known[meaning] = ScalarJoin(
                query=query, alias=alias, on=on, at=subquery, if_null=subquery.meta.get(IF_NULL, ()), single=single
            )
            self.joins.append(self._known[meaning])
        value = _value(item, self._known[meaning])
        return exp.Max(this=value) if grouped else value


def is_scalar(alias: str) -> bool:
    """Return whether an alias is one of a subquery that is a value, also within a query that FROM names (`q/alias`)."""
    return alias.rpartition("/")[2].startswith(SCALAR)


def _scalars(node: exp.Expr) -> Iterator[exp.Subquery]:
    """Yield the subqueries of an expression that are values, and not those of EXISTS and IN, or within others."""
    if isinstance(node, exp.Subquery):
        yield node
    elif not isinstance(node, exp.Query | exp.Exists):
        for child in node.iter_expressions():
            if not (isinstance(node, exp.In) and child is node.args.get("query")):
                yield from _scalars(child)


def _item_of(subquery: exp.Subquery, inner: exp.Expr) -> exp.Expr:
    """Return the only expression of a subquery, which must be over aggregates of all its rows."""
    must_be_select(inner)
    if len(inner.expressions) != 1:
        refuse(subquery, "a subquery of several columns as a value", "one column")
    for clause, name in (("group", "GROUP BY"), ("having", "HAVING"), ("qualify", "LIMIT"), ("order", "ORDER BY")):
        if inner.args.get(clause):
            refuse(subquery, f"a subquery with {name} as a value", _AGGREGATE)
    item: exp.Expr = inner.expressions[0].unalias()
    if not any(aggregates_in(item)):
        assert isinstance(inner, exp.Select)  # checked above
        outside = [one for one in item.find_all(exp.Column) if one.table and one.table not in tables_of(inner)]
        if outside or inner.args.get("distinct"):
            refuse(subquery, "a subquery of single rows as a value", _AGGREGATE)
        return item
    loose = [column for column in item.find_all(exp.Column) if column.find_ancestor(exp.AggFunc, exp.Filter) is None]
    if loose:
        refuse(subquery, f"{loose[0].sql('spark')}, which is not aggregated in a subquery", _AGGREGATE)
    return item


def _value(item: exp.Expr, join: ScalarJoin) -> exp.Expr:
    """Return the expression over the columns of a join, to whose query its aggregates are added."""
    if join.single:
        return _added(item, join)
    copy = exp.Paren(this=item.copy())
    for call in list(aggregates_in(copy)):
        value: exp.Expr = _added(call, join)
        function = call.this if isinstance(call, exp.Filter) else call
        if isinstance(function, _COUNTS):
            value = exp.Coalesce(this=value, expressions=[exp.Literal.number(0)])
        call.replace(value)
    found: exp.Expr = copy.this
    return found


def _added(node: exp.Expr, join: ScalarJoin) -> exp.Column:
    """Add an expression to the query of a join, and return its column."""
    known = {one.this.sql(): one.alias for one in join.query.expressions if one.alias.startswith("v")}
    if (name := known.get(node.sql())) is None:
        name = f"v{len(known)}"
        join.query.append("expressions", exp.alias_(node.copy(), name, quoted=True))
    return _column(join.alias, name)


def _column(alias: str, name: str) -> exp.Column:
    return exp.column(name, table=alias, quoted=True)

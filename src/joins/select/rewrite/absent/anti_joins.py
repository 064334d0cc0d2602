"""Rewrite a LEFT JOIN that looks for missing rows as NOT EXISTS (part of stage 1).

    SELECT c.id FROM c LEFT JOIN o ON o.customer_id = c.id WHERE o.id IS NULL
      SELECT c.id FROM c WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.customer_id = c.id)

The column must have a value in each row that ON finds: it is NOT NULL, or ON compares it. No other part of the query
may use the joined table."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Topology
from joins.select.names import sources_of
from joins.select.rewrite.full_joins import NeverNull
from joins.select.sql import conjuncts


def is_never_null(
    topology: Topology, schemas: Mapping[TableId, TableSchema], select: exp.Select, column: exp.Column
) -> bool:
    """Return whether a column of one of a SELECT's tables is NOT NULL in a captured table. In a row that an outer join
    lacks it is NULL all the same."""
    tables = [one for one in sources_of(select) if not column.table or one.alias_or_name == column.table]
    if len(tables) != 1 or not isinstance(tables[0], exp.Table):
        return False
    table_id = topology.table_id(tuple(part.name for part in tables[0].parts))
    schema = None if table_id is None else schemas.get(table_id)
    known = None if schema is None else schema.column(column.name)
    return known is not None and not known.nullable


def with_anti_joins(statement: exp.Expr, never_null: NeverNull) -> exp.Expr:
    """Return a statement in which every such join is rewritten."""
    found = statement.copy()
    for select in list(found.find_all(exp.Select)):
        for join in list(select.args.get("joins") or []):
            if join.side == "LEFT" and join.kind in ("", "OUTER") and join.args.get("on") is not None:
                _rewrite(select, join, never_null)
    return found


def _rewrite(select: exp.Select, join: exp.Join, never_null: NeverNull) -> None:
    alias, on, where = join.this.alias_or_name, join.args["on"], select.args.get("where")
    if where is None or any(one.side in ("RIGHT", "FULL") for one in select.args["joins"]):
        return
    absent = [one for one in conjuncts(where.this) if _is_absent(one, select, join, never_null)]
    if len(absent) != 1 or any(isinstance(one, exp.Star) for one in select.expressions):
        return
    within = {id(node) for part in (on, *absent) for node in part.walk()}
    if any(c.table in ("", alias) and id(c) not in within for c in select.find_all(exp.Column)):
        return
    rest = [one.copy() for one in conjuncts(where.this) if one is not absent[0]]
    rows = exp.select("1").from_(join.this.copy()).where(*(one.copy() for one in conjuncts(on)))
    select.set("where", exp.Where(this=exp.and_(*rest, exp.Not(this=exp.Exists(this=rows)))))
    select.set("joins", [one for one in select.args["joins"] if one is not join])


def _is_absent(node: exp.Expr, select: exp.Select, join: exp.Join, never_null: NeverNull) -> bool:
    """Return whether a condition is `x IS NULL` of a column that has a value in every row that the join finds."""
    if not isinstance(node, exp.Is) or not isinstance(node.expression, exp.Null):
        return False
    column = node.this.unnest()
    if not isinstance(column, exp.Column) or column.table != join.this.alias_or_name:
        return False
    for one in conjuncts(join.args["on"]):
        if isinstance(one, exp.EQ) and column in (one.this.unnest(), one.expression.unnest()):
            return True
    return never_null(select, column)

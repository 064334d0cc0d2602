"""Write the table of columns of an outer query that a subquery names without it (part of stage 1).

    FROM shop.orders WHERE EXISTS (SELECT * FROM shop.lines WHERE l_order = o_id)
      FROM shop.orders WHERE EXISTS (SELECT * FROM shop.lines WHERE l_order = orders.o_id)

This needs the columns of the tables. Without them, as when a topology is validated offline, an equality of two columns
in EXISTS is taken for one with the outer query: only its form is checked then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from sqlglot import exp

from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Topology
from joins.select.names import same_name

ColumnsOf = Callable[[exp.Table], Collection[str] | None]  # the columns of a captured table; None if unknown


def columns_in(topology: Topology, schemas: Mapping[TableId, TableSchema] | None) -> ColumnsOf | None:
    """Return the function that finds a table's columns in some schemas. None without schemas."""
    if schemas is None:
        return None

    def columns_of(node: exp.Table) -> Collection[str] | None:
        table_id = topology.table_id(tuple(part.name for part in node.parts))
        schema = None if table_id is None else schemas.get(table_id)
        return None if schema is None else [column.name for column in schema.columns]

    return columns_of


def with_outer_columns(statement: exp.Expr, columns_of: ColumnsOf | None) -> exp.Expr:
    """Add the tables of such columns everywhere in a statement, in place."""
    for where in list(statement.find_all(exp.Where)):
        inner = where.parent
        outer = _outer(inner) if isinstance(inner, exp.Select) else None
        if not isinstance(inner, exp.Select) or outer is None:
            continue
        if columns_of is None:
            _guess(inner, outer, where)
            continue
        for column in list(where.find_all(exp.Column)):
            if column.table or column.find_ancestor(exp.Select) is not inner:
                continue
            if any(_has(one, column.name, columns_of) is not False for one in _relations(inner)):
                continue
            owners = [one for one in _relations(outer) if _has(one, column.name, columns_of)]
            if len(owners) == 1 and owners[0].alias_or_name:
                column.set("table", exp.to_identifier(owners[0].alias_or_name))
    return statement


def _outer(inner: exp.Select) -> exp.Select | None:
    """Return the query around a subquery of an expression. None for a query in FROM, JOIN or WITH, or for the whole."""
    node: exp.Expr = inner
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.From | exp.Join | exp.CTE | exp.SetOperation):
            return None
        if isinstance(parent, exp.Select):
            return parent
        node = parent
    return None


def _guess(inner: exp.Select, outer: exp.Select, where: exp.Where) -> None:
    tables = {one.alias_or_name for one in _relations(outer)} - {one.alias_or_name for one in _relations(inner)}
    exists = isinstance(inner.parent, exp.Exists)
    if not exists or not tables or any(column.table in tables for column in where.find_all(exp.Column)):
        return
    for node in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
        one, other = (node.this, node.expression) if isinstance(node, exp.EQ) else (None, None)
        if isinstance(one, exp.Column) and isinstance(other, exp.Column) and not one.table and not other.table:
            other.set("table", exp.to_identifier(min(tables)))
            return


def _relations(select: exp.Select) -> list[exp.Expr]:
    source = select.args.get("from_")
    return [] if source is None else [source.this, *(join.this for join in select.args.get("joins") or ())]


def _has(relation: exp.Expr, name: str, columns_of: ColumnsOf) -> bool | None:
    """Return whether a table has a column. None if its columns are not known."""
    names: Collection[str] | None = None
    if isinstance(relation, exp.Table):
        names = columns_of(relation)
    elif isinstance(relation, exp.Subquery) and isinstance(relation.this, exp.Select) and not relation.this.is_star:
        names = [item.alias_or_name for item in relation.this.expressions]
    return None if names is None else same_name(dict.fromkeys(names), name) is not None

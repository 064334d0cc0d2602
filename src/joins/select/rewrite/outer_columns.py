"""Name the tables of an outer query's columns within its subqueries, where the query omits them.

    SELECT … FROM part WHERE 10 > (SELECT avg(qty) FROM lines WHERE part_id = id)
      … WHERE part_id = part.id

SQL looks a name up in the subquery's own tables first, and then in those of each enclosing query. So the columns of all
tables must be known. If they are not, as when a topology is validated offline, an equality of two columns in EXISTS is
taken for one with the outer query: only the form is checked then."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from sqlglot import exp
from sqlglot.errors import SqlglotError

from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Topology
from joins.select.names import same_name, sources_of
from joins.select.rewrite.limits import unused_order
from joins.select.sql import conjuncts
from joins.select.tokens import statements_of, written_statements

Columns = Sequence[str] | None  # None: not known
ColumnsOf = Callable[[tuple[str, ...]], Columns]
Scope = Mapping[str, Columns]


def with_outer_columns(statement: exp.Expr, columns_of: ColumnsOf | None) -> exp.Expr:
    """Return a statement in which columns of outer queries have the name of their table.

    `columns_of(parts)` returns the columns of the table or joined table that is named in FROM, None if they are not
    known. A name that may be one of an unknown table remains as it is. Without `columns_of`, no columns are known."""
    if not any(isinstance(node, exp.Query) and node.parent is not None for node in statement.find_all(exp.Query)):
        return statement
    found = statement.copy()
    if columns_of is None:
        for exists in found.find_all(exp.Exists):
            _guess(exists.this)
    else:
        _Names(columns_of, {}, []).query(found, ())
    return found


def unknown_in_orders(query: str, columns_of: ColumnsOf | None) -> list[exp.Expr]:
    """Return what each ORDER BY without effect names in vain: columns that neither the result nor the tables have, and
    numbers of no result column. The compiler leaves these clauses out, so the text is read again."""
    unknown = list[exp.Expr]()
    if columns_of is not None and re.search(r"\border\s+by\b", query, re.IGNORECASE):
        for statement in written_statements(query):
            if statement is not None and any(map(unused_order, statement.find_all(exp.Query))):
                _Names(columns_of, {}, unknown).query(statement, ())
    return unknown


class _Names:
    """Walks through queries. `named` are the columns of the queries in WITH. See `unknown_in_orders` for `unknown`."""

    def __init__(self, columns_of: ColumnsOf, named: Mapping[str, Columns], unknown: list[exp.Expr]) -> None:
        self.columns_of, self.named, self.unknown = columns_of, dict(named), unknown

    def query(self, node: exp.Expr, outer: tuple[Scope, ...]) -> Columns:
        """Name the columns within a query. `outer` are the enclosing queries' tables, the innermost first. Returns the
        columns of its result."""
        inner = _Names(self.columns_of, self.named, self.unknown)
        if isinstance(node, exp.Subquery | exp.Paren):
            return inner.query(node.this, outer)
        if (with_ := node.args.get("with_")) is not None:
            for one in with_.expressions:
                inner.named[one.alias] = inner.query(one.this, ())
        if isinstance(node, exp.SetOperation):
            first = inner.query(node.this, outer)
            inner.query(node.expression, outer)
            self._order(node, first, ({"": first},))
            return first
        return inner.select(node, outer) if isinstance(node, exp.Select) else None

    def select(self, select: exp.Select, outer: tuple[Scope, ...]) -> Columns:
        """Name the columns within a SELECT; see `query`."""
        joined = sources_of(select)
        scope = {one.alias_or_name or f"query{i}": self._columns(one) for i, one in enumerate(joined)}
        named = [one.alias_or_name for one in select.expressions]
        self._order(select, None if select.is_star else named, ({"": named}, scope, *outer))
        for node in list(_parts(select, joined)):
            if isinstance(node, exp.Column):
                hidden = same_name(named, node.name) is not None and not _is_before_result(node)
                if outer and not node.table and not hidden:
                    _name(node, (scope, *outer))
            else:
                self.query(node, (scope, *outer))
        return None if any(one.is_star for one in select.expressions) else named

    def _order(self, query: exp.Expr, shown: Columns, scopes: tuple[Scope, ...]) -> None:
        """Collect the unknown columns of a query's ORDER BY without effect. `shown` are the result's columns."""
        for one in unused_order(query):
            if isinstance(one, exp.Literal) and one.is_int:
                self.unknown += [one] if shown is not None and not 0 < int(one.name) <= len(shown) else []
            for column in one.find_all(exp.Column):
                inside = column.find_ancestor(exp.Query) is not query
                if not inside and not any(_has(scope, column) for scope in scopes):
                    self.unknown.append(column)

    def _columns(self, node: exp.Expr) -> Columns:
        """Return the columns of an entry of FROM. A query there cannot use the tables beside it."""
        if isinstance(node, exp.Table):
            parts = tuple(part.name for part in node.parts)
            return self.named[parts[0]] if len(parts) == 1 and parts[0] in self.named else self.columns_of(parts)
        return self.query(node, ())


def _has(scope: Scope, column: exp.Column) -> bool:
    """Return whether some tables may have a column."""
    tables = list(scope) if not column.table else [alias for alias in [same_name(scope, column.table)] if alias]
    return any((known := scope[one]) is None or same_name(known, column.name) is not None for one in tables)


def _is_before_result(column: exp.Column) -> bool:
    """Return whether a column is in WHERE or ON, which know no names of result columns."""
    return not isinstance(column.find_ancestor(exp.Where, exp.Join, exp.Select), exp.Select)


def _parts(node: exp.Expr, joined: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield the columns and the queries within a SELECT, but not those in its FROM and WITH, or within a query."""
    for child in node.iter_expressions():
        if isinstance(child, exp.Column | exp.Query):
            if not any(child is one for one in joined):
                yield child
        elif not isinstance(child, exp.With):
            yield from _parts(child, joined)


def _name(column: exp.Column, scopes: tuple[Scope, ...]) -> None:
    """Set the table of a column if an outer query's tables have it, and not the inner ones."""
    inner = set[str]()
    for at, scope in enumerate(scopes):
        owners = [alias for alias, known in scope.items() if known is None or same_name(known, column.name) is not None]
        if owners:
            if at and len(owners) == 1 and scope[owners[0]] is not None and owners[0] not in inner:
                column.set("table", exp.to_identifier(owners[0], quoted=True))
            return
        inner |= scope.keys()


def _guess(inner: exp.Expr) -> None:
    """Give the first equality of two columns in a subquery an outer table, unless the subquery names one."""
    outer = None if inner.parent is None else inner.parent.find_ancestor(exp.Select)
    where = inner.args.get("where")
    if outer is None or where is None:
        return
    names = {one.alias_or_name for one in sources_of(outer)} - {one.alias_or_name for one in sources_of(inner)}
    if not names or any(column.table in names for column in where.find_all(exp.Column)):
        return
    for node in conjuncts(where.this):
        sides = [node.this.unnest(), node.expression.unnest()] if isinstance(node, exp.EQ) else []
        loose = [side for side in sides if isinstance(side, exp.Column) and not side.table]
        if loose and all(isinstance(side, exp.Column) for side in sides):
            loose[-1].set("table", exp.to_identifier(min(names), quoted=True))
            return


def columns_in(topology: Topology, schemas: Mapping[TableId, TableSchema] | None) -> ColumnsOf | None:
    """Return the function that finds the columns of a captured or joined table of a topology. None without schemas."""
    if schemas is None:
        return None

    def columns(parts: tuple[str, ...]) -> Columns:
        if len(parts) == 1 and parts[0] in topology.tables:
            return _result(topology.tables[parts[0]].query)
        table_id = topology.table_id(parts)
        schema = None if table_id is None else schemas.get(table_id)
        if schema is None:
            return None
        gone = (name for name, _ in (*schema.former, *schema.left_out))  # read, or refused, as columns of the table
        return [*schema.places(), *gone]

    return columns


def _result(query: str) -> Columns:
    """Return the columns of another joined table, whose own compilation reports what is wrong in its query."""
    try:
        statement = statements_of(query)[0]
    except (SqlglotError, IndexError):
        return None
    names = statement.named_selects if isinstance(statement, exp.Query) else []
    return None if "*" in names else names

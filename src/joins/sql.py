"""A topology's SELECT → the shape that can be kept right today: one fact table, left joins along its foreign keys.

    SELECT o.id, o.status, c.name AS customer, p.*
    FROM shop.orders o
    LEFT JOIN crm.customers c ON c.id = o.customer_id
    LEFT JOIN shop.products p ON p.id = o.product_id

Everything else is refused at the line where it stands, with the nearest form that works. What needs the tables' columns
(primary keys, types, `p.*`) is checked in `joins.plan`, once the schemas are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import TokenType

from cdc.schema import TableId
from cdc.topology import Table, Topology

_FORM = "SELECT a.x, b.y AS z FROM source.facts a LEFT JOIN source.dimension b ON b.id = a.b_id"
# What each clause that is not kept yet should become. Aggregates, filters and unions have an issue of their own.
_CLAUSES = {
    "with_": ("WITH", "the tables themselves after FROM and LEFT JOIN"),
    "distinct": ("DISTINCT", "a plain SELECT: the row key makes rows distinct"),
    "where": ("WHERE", "no WHERE: filter in the index or the dashboard"),
    "group": ("GROUP BY", "one row of the result per row of the table after FROM"),
    "having": ("HAVING", "one row of the result per row of the table after FROM"),
    "order": ("ORDER BY", "no ORDER BY: rows are stored in the order of row_key"),
    "sort": ("SORT BY", "no SORT BY: rows are stored in the order of row_key"),
    "limit": ("LIMIT", "no LIMIT: the table holds every row"),
    "offset": ("OFFSET", "no OFFSET: the table holds every row"),
    "laterals": ("LATERAL VIEW", "a plain column"),
    "hint": ("a hint", "no hint"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table as the query names it; `line` counts from 0 within the query."""

    alias: str
    table_id: TableId
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftJoin:
    """`LEFT JOIN relation ON relation.key = fact.fact_column`."""

    relation: Relation
    key: str
    fact_column: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """One column of the result, `alias.column AS name`; `alias.*` has neither column nor name."""

    alias: str
    column: str | None
    name: str | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """A query of the supported shape."""

    fact: Relation
    joins: tuple[LeftJoin, ...]
    columns: tuple[Selected, ...]

    def relations(self) -> dict[str, Relation]:
        """Every relation by its alias, the fact first."""
        return {r.alias: r for r in (self.fact, *(join.relation for join in self.joins))}

    def tables(self) -> frozenset[TableId]:
        """The source tables that the query reads."""
        return frozenset(relation.table_id for relation in self.relations().values())


def check_query(topology: Topology, table: Table) -> list[str] | None:
    """Names of the result's columns, checked as far as is possible without the tables' schemas.

    Called by `tailorbird validate`. None when an `alias.*` leaves the names open. TopologyError for a query outside the
    supported shape, a table that is not captured, or a row_key that the result does not hold.
    """
    select = parse_query(topology, table)
    if any(selected.column is None for selected in select.columns):
        return None
    names = [selected.name for selected in select.columns if selected.name]
    aliases = {selected.name: selected.alias for selected in select.columns}
    for name in table.row_key:
        check_row_key_column(topology, table, name, aliases.get(name), select.fact.alias)
    return names


def check_row_key_column(topology: Topology, table: Table, name: str, alias: str | None, fact: str) -> None:
    """Refuse a row key column that the result lacks, or that a join supplies: a missing match would make it NULL."""
    if alias is None:
        what, expected = f"unknown column {name}", "names of columns in the query's result"
    elif alias != fact:
        what, expected = (
            f"column {name} comes from the joined table {alias}",
            f"columns of {fact}, the table after FROM",
        )
    else:
        return
    raise topology.error(f"tables.{table.name}.row_key", what, expected)


def parse_query(topology: Topology, table: Table) -> Select:
    """The query's shape; TopologyError with file, line and the nearest supported form for anything else."""
    return _Parser(topology, table).parse()


class _Parser:
    def __init__(self, topology: Topology, table: Table) -> None:
        self.topology, self.table = topology, table

    def refuse(self, node: exp.Expr | None, what: str, expected: str) -> NoReturn:
        self.refuse_at(_line(node) if node is not None else 0, what, expected)

    def refuse_at(self, line: int, what: str, expected: str) -> NoReturn:
        raise self.topology.error(f"tables.{self.table.name}.query", what, expected, line_offset=line)

    def parse(self) -> Select:
        select = self._select()
        source = select.args.get("from_")
        if source is None:
            self.refuse(select, "no FROM", _FORM)
        relations: dict[str, Relation] = {}
        fact = self._relation(source.this, relations)
        joins = tuple(self._join(join, fact, relations) for join in select.args.get("joins") or ())
        columns: list[Selected] = []
        for expression in select.expressions:
            columns.append(self._selected(expression, relations))
        seen: set[str] = set()
        for selected in columns:
            if selected.name in seen:
                self.refuse_at(selected.line, f"column {selected.name} twice", "AS with another name")
            if selected.name:
                seen.add(selected.name)
        return Select(fact=fact, joins=joins, columns=tuple(columns))

    def _select(self) -> exp.Select:
        try:
            self._refuse_stray_commas()
            statements = sqlglot.parse(self.table.query, dialect="spark")
        except ParseError as error:
            first = error.errors[0] if error.errors else {}
            what = f"not SQL: {first.get('description', error)}".rstrip(".")
            self.refuse_at((first.get("line") or 1) - 1, what, _FORM)
        except SqlglotError as error:
            self.refuse_at(0, f"not SQL: {error}".replace("\n", " "), _FORM)
        if len(statements) != 1 or statements[0] is None:
            self.refuse_at(0, "not one statement", "one SELECT")
        statement = statements[0]
        if isinstance(statement, exp.SetOperation):
            self.refuse(statement.expression, statement.key.upper(), "one SELECT per table")
        if not isinstance(statement, exp.Select):
            self.refuse(statement, f"{statement.key.upper()}", "a SELECT: " + _FORM)
        for key, value in statement.args.items():
            if value and key not in ("expressions", "from_", "joins"):
                name, expected = _CLAUSES.get(key, (key.strip("_").upper(), _FORM))
                self.refuse(value[0] if isinstance(value, list) else value, f"{name} is not supported yet", expected)
        return statement

    def _refuse_stray_commas(self) -> None:
        # sqlglot reads over them
        tokens = sqlglot.tokenize(self.table.query, read="spark")
        for token, after in pairwise(tokens):
            if token.token_type == TokenType.COMMA and after.token_type in (TokenType.COMMA, TokenType.FROM):
                self.refuse_at(after.line - 1, f"not SQL: {after.text} after a comma", "a column after each comma")

    def _relation(self, node: exp.Expr, relations: dict[str, Relation]) -> Relation:
        if not isinstance(node, exp.Table):
            self.refuse(node, f"a {node.key} where a table is expected", "source.table or source.database.table")
        if extra := [
            key for key, value in node.args.items() if value and key not in ("this", "db", "catalog", "alias")
        ]:
            self.refuse(node, f"{extra[0].upper()} on a table", "source.table alias")
        parts = tuple(part.name for part in node.parts)
        table_id = self.topology.table_id(parts)
        if table_id is None:
            what = f"unknown table {'.'.join(parts)}"
            self.refuse(node, what, "one of " + ", ".join(self._known_tables()))
        alias = node.alias or node.name
        if alias in relations:
            self.refuse(node, f"{alias} names two tables", "an alias of its own for each table")
        relation = Relation(alias=alias, table_id=table_id, line=_line(node))
        relations[alias] = relation
        return relation

    def _known_tables(self) -> list[str]:
        known = []
        for source in self.topology.sources.values():
            for table in source.tables:
                known.append(f"{source.name}.{table.table}" if table.database == source.database else str(table))
        return known

    def _join(self, join: exp.Join, fact: Relation, relations: dict[str, Relation]) -> LeftJoin:
        kind = " ".join(str(join.args[key]).upper() for key in ("method", "side", "kind") if join.args.get(key))
        left = f"LEFT JOIN source.table b ON b.id = {fact.alias}.b_id"
        if kind not in ("LEFT", "LEFT OUTER"):
            self.refuse(join, f"{kind + ' ' if kind else ''}JOIN is not supported yet", left)
        relation = self._relation(join.this, relations)
        form = f"ON {relation.alias}.id = {fact.alias}.{relation.alias}_id, one equality with {fact.alias}"
        condition = join.args.get("on")
        condition = condition.unnest() if condition is not None else None
        if join.args.get("using"):
            self.refuse(join, "USING is not supported yet", form)
        if condition is None or isinstance(condition, exp.Boolean):  # sqlglot reads a missing ON as TRUE
            self.refuse(join, "a join without ON", form)
        sides = (condition.this, condition.expression) if isinstance(condition, exp.EQ) else ()
        columns = {side.table: side.name for side in sides if isinstance(side, exp.Column)}
        if set(columns) != {relation.alias, fact.alias}:
            self.refuse(condition, f"ON {condition.sql(dialect='spark')}", form)
        return LeftJoin(
            relation=relation, key=columns[relation.alias], fact_column=columns[fact.alias], line=_line(condition)
        )

    def _selected(self, node: exp.Expr, relations: dict[str, Relation]) -> Selected:
        column = node.this if isinstance(node, exp.Alias) else node
        text = column.sql(dialect="spark")
        first = next(iter(relations))
        if not isinstance(column, exp.Column) or len(column.parts) > 2:
            example = (
                f"{first}.*" if isinstance(column, exp.Star) else f"a column such as {first}.id, or {first}.id AS x"
            )
            self.refuse(node, f"{text} is not supported yet", example)
        alias = column.table or (first if len(relations) == 1 else "")
        if not alias:
            self.refuse(node, f"column {text} without its table", f"{first}.{text}")
        if alias not in relations:
            self.refuse(node, f"unknown table {alias} in {text}", "one of " + ", ".join(relations))
        if isinstance(column.this, exp.Star):
            if column.this.args.get("except_") or column.this.args.get("replace") or column.this.args.get("rename"):
                self.refuse(node, f"{text} is not supported yet", f"{alias}.* or single columns")
            return Selected(alias=alias, column=None, name=None, line=_line(node))
        name = node.alias or column.name
        if name.startswith("_"):
            self.refuse(node, f"column {name}", "a name that does not begin with _ (those are reserved): AS another")
        return Selected(alias=alias, column=column.name, name=name, line=_line(node))


def _line(node: exp.Expr) -> int:
    """Line of a node within the query, from 0: that of the first token below it that remembers one."""
    lines = [n.meta["line"] for n in node.walk() if "line" in n.meta]
    return min(lines, default=1) - 1

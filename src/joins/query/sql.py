"""A topology's SELECT → its shape: tables, joins, conditions, columns; everything else is refused where it stands.

    SELECT o.id, upper(o.status) AS status, c.name AS customer, n.name AS nation, p.*
    FROM shop.orders o
    JOIN crm.customers c ON c.id = o.customer_id
    LEFT JOIN crm.nations n ON n.id = c.nation_id
    LEFT JOIN shop.products p ON p.id = o.product_id
    WHERE o.amount > 0 AND c.status = 'active'

A table of the topology may be read like a source's (`FROM orders_wide w`): its query is put in its place. What needs
the tables' columns (primary keys, types, `p.*`) is checked in `joins.query.compiler`, once the schemas are known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import TokenType

from cdc.topology.topology import Table, Topology
from cdc.words.schema import TableId
from joins.query.expressions import Unsupported
from joins.query.functions import PATTERN, check_shape, pattern_for

FORM = "SELECT a.x, b.y AS z FROM source.facts a LEFT JOIN source.dimension b ON b.id = a.b_id WHERE a.x > 0"
# What each clause that is not kept yet should become. Aggregates and unions have an issue of their own.
_CLAUSES = {
    "with_": ("WITH", "a table of its own under `tables:`, named after FROM or JOIN"),
    "distinct": ("DISTINCT", "a plain SELECT: the row key makes rows distinct"),
    "group": ("GROUP BY", "one row of the result per row of one table"),
    "having": ("HAVING", "WHERE"),
    "windows": ("WINDOW", "one row of the result per row of one table"),
    "qualify": ("QUALIFY", "WHERE"),
    "order": ("ORDER BY", "no ORDER BY: rows are stored in the order of row_key"),
    "sort": ("SORT BY", "no SORT BY: rows are stored in the order of row_key"),
    "cluster": ("CLUSTER BY", "no CLUSTER BY: rows are stored in the order of row_key"),
    "distribute": ("DISTRIBUTE BY", "no DISTRIBUTE BY: rows are stored in the order of row_key"),
    "limit": ("LIMIT", "no LIMIT: the table holds every row"),
    "offset": ("OFFSET", "no OFFSET: the table holds every row"),
    "laterals": ("LATERAL VIEW", "a plain column"),
    "hint": ("a hint", "no hint"),
}
_NOT_YET = {
    "RIGHT": "the tables exchanged: FROM {table} LEFT JOIN …",
    "FULL": "JOIN or LEFT JOIN",
    "SEMI": "JOIN on the primary key of {table}",
    "ANTI": "LEFT JOIN {table} … WHERE {alias}.<its key> IS NULL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Line (from 0) and column (from 1) within a query, and whose query it is."""

    table: str
    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table as the query names it: a captured one, or (`view`) another table of the topology."""

    alias: str
    table_id: TableId | None
    view: str | None
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """`[LEFT] JOIN relation ON condition AND condition …`; no conditions after a comma or CROSS JOIN."""

    relation: Relation
    inner: bool
    on: tuple[exp.Expr, ...]
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of the list after SELECT; of `alias.*` only `star` is set, `*` has the empty one."""

    expression: exp.Expr | None
    name: str
    star: str | None
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """A query of the supported shape; `where` are its conditions, all of which must be true."""

    first: Relation
    joins: tuple[Join, ...]
    where: tuple[exp.Expr, ...]
    items: tuple[Item, ...]
    relations: dict[str, Relation] = field(default_factory=dict)


def refuse(topology: Topology, place: Place, what: str, expected: str) -> NoReturn:
    """TopologyError at a place of a query."""
    path = f"tables.{place.table}.query"
    where = f" (query line {place.line + 1}, column {place.column})"
    raise topology.error(path, what + where, expected, line_offset=place.line)


def place_of(table: str, node: exp.Expr) -> Place:
    """Where a node begins: at the first token below it that remembers its place."""
    found = [(n.meta["line"], n.meta["start"], n.meta["col"]) for n in node.walk() if "line" in n.meta]
    line, _, column = min(found, default=(1, 0, 1))
    first = min((n for n in node.walk() if "line" in n.meta), key=lambda n: int(n.meta["start"]), default=None)
    length = 0 if first is None else first.meta["end"] - first.meta["start"]
    return Place(table=table, line=line - 1, column=max(1, column - length))


def conjuncts(condition: exp.Expr | None) -> tuple[exp.Expr, ...]:
    """The parts of a condition that must all be true."""
    if condition is None:
        return ()
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        return (*conjuncts(condition.this), *conjuncts(condition.expression))
    return (condition,)


def parse_query(topology: Topology, table: Table) -> Select:
    """The query's shape; TopologyError with file, line, column and the nearest supported form for anything else."""
    return _Parser(topology, table).parse()


class _Parser:
    def __init__(self, topology: Topology, table: Table) -> None:
        self.topology, self.table = topology, table
        self.relations: dict[str, Relation] = {}

    def refuse(self, node: exp.Expr | None, what: str, expected: str) -> NoReturn:
        start = Place(table=self.table.name, line=0, column=1)
        refuse(self.topology, start if node is None else place_of(self.table.name, node), what, expected)

    def refuse_at(self, line: int, column: int, what: str, expected: str) -> NoReturn:
        refuse(self.topology, Place(table=self.table.name, line=line, column=column), what, expected)

    def parse(self) -> Select:
        select = self._select()
        source = select.args.get("from_")
        if source is None:
            self.refuse(select, "no FROM", FORM)
        first = self._relation(source.this)
        joins = tuple(self._join(join) for join in select.args.get("joins") or ())
        where = select.args.get("where")
        conditions = conjuncts(None if where is None else where.this)
        for condition in conditions:
            self._check(condition)
        self._check_joined(first, joins, conditions)
        items = tuple(self._item(expression) for expression in select.expressions)
        seen: set[str] = set()
        for item in items:
            if item.name in seen:
                refuse(self.topology, item.place, f"column {item.name} twice", "AS with another name")
            if item.name:
                seen.add(item.name)
        return Select(first=first, joins=joins, where=conditions, items=items, relations=self.relations)

    def _select(self) -> exp.Select:
        try:
            self._refuse_stray_commas()
            self._refuse_patterns()
            statements = sqlglot.parse(self.table.query, dialect="spark")
        except ParseError as error:
            first = error.errors[0] if error.errors else {}
            what = f"not SQL: {first.get('description', error)}".rstrip(".")
            self.refuse_at((first.get("line") or 1) - 1, first.get("col") or 1, what, FORM)
        except SqlglotError as error:
            self.refuse_at(0, 1, f"not SQL: {error}".replace("\n", " "), FORM)
        if len(statements) != 1 or statements[0] is None:
            self.refuse_at(0, 1, "not one statement", "one SELECT")
        statement = statements[0]
        if isinstance(statement, exp.SetOperation):
            self.refuse(statement.expression, f"{statement.key.upper()} is not supported yet", "one SELECT per table")
        if not isinstance(statement, exp.Select):
            self.refuse(statement, f"{statement.key.upper()}", "a SELECT: " + FORM)
        for key, value in statement.args.items():
            if value and key not in ("expressions", "from_", "joins", "where"):
                name, expected = _CLAUSES.get(key, (key.strip("_").upper(), FORM))
                self.refuse(value[0] if isinstance(value, list) else value, f"{name} is not supported yet", expected)
        return statement

    def _refuse_stray_commas(self) -> None:
        # sqlglot reads over them
        tokens = sqlglot.tokenize(self.table.query, read="spark")
        for token, after in pairwise(tokens):
            if token.token_type == TokenType.COMMA and after.token_type in (TokenType.COMMA, TokenType.FROM):
                what = f"not SQL: {after.text} after a comma"
                self.refuse_at(after.line - 1, after.col, what, "a column after each comma")
            if token.token_type == after.token_type == TokenType.STRING:
                # Spark reads '' within a text as a quote, sqlglot as the end of one text and the begin of another
                what = f"two texts side by side: '{token.text}' '{after.text}'"
                self.refuse_at(after.line - 1, after.col, what, "a quote as \\', texts joined by ||")

    def _refuse_patterns(self) -> None:
        """Patterns of date_format as they were written: sqlglot turns them into its own, and back into others."""
        tokens = sqlglot.tokenize(self.table.query, read="spark")
        for i, token in enumerate(tokens[:-1]):
            if token.text.lower() != "date_format" or tokens[i + 1].token_type != TokenType.L_PAREN:
                continue
            depth, last = 0, tokens[i + 1]
            for after in tokens[i + 1 :]:
                depth += (after.token_type == TokenType.L_PAREN) - (after.token_type == TokenType.R_PAREN)
                if depth == 0:
                    break
                last = after
            quotes = 2 * (last.token_type == TokenType.STRING)
            if quotes and re.fullmatch(PATTERN, last.text):
                continue
            expected = f"of yyyy MM dd HH mm ss and - / : . _ and blanks: '{pattern_for(last.text)}'"
            shown = f"'{last.text}'" if quotes else last.text
            self.refuse_at(
                last.line - 1, last.col - len(last.text) - quotes + 1, f"pattern {shown} of date_format", expected
            )

    def _relation(self, node: exp.Expr) -> Relation:
        if not isinstance(node, exp.Table):
            self.refuse(node, f"a {node.key} where a table is expected", "a table of its own under `tables:`")
        if extra := [
            key for key, value in node.args.items() if value and key not in ("this", "db", "catalog", "alias")
        ]:
            self.refuse(node, f"{extra[0].upper()} on a table", "source.table alias")
        parts = tuple(part.name for part in node.parts)
        view = parts[0] if len(parts) == 1 and parts[0] in self.topology.tables else None
        table_id = None if view else self.topology.table_id(parts)
        if table_id is None and view is None:
            what = f"unknown table {'.'.join(parts)}"
            self.refuse(node, what, "one of " + ", ".join(self._known_tables()))
        alias = node.alias or node.name
        if alias in self.relations:
            self.refuse(node, f"{alias} names two tables", "an alias of its own for each table")
        relation = Relation(alias=alias, table_id=table_id, view=view, place=place_of(self.table.name, node))
        self.relations[alias] = relation
        return relation

    def _known_tables(self) -> list[str]:
        known = []
        for source in self.topology.sources.values():
            for table in source.tables:
                known.append(f"{source.name}.{table.table}" if table.database == source.database else str(table))
        return known + [name for name in self.topology.tables if name != self.table.name]

    def _join(self, join: exp.Join) -> Join:
        words = [str(join.args[key]).upper() for key in ("method", "side", "kind") if join.args.get(key)]
        kind = " ".join(words)
        if kind not in ("", "INNER", "CROSS", "LEFT", "LEFT OUTER"):
            form = next((form for word, form in _NOT_YET.items() if word in words), "JOIN … ON, or LEFT JOIN … ON")
            expected = form.format(table=join.this.sql("spark"), alias=join.this.alias_or_name)
            self.refuse(join, f"{kind} JOIN is not supported yet", expected)
        relation = self._relation(join.this)
        if join.args.get("using"):
            column = join.args["using"][0].name
            self.refuse(join, "USING is not supported yet", f"ON {relation.alias}.{column} = a.{column}")
        condition = join.args.get("on")
        if isinstance(condition, exp.Boolean) and condition.this:  # sqlglot reads a missing ON as TRUE
            condition = None
        if condition is None and kind.startswith("LEFT"):
            self.refuse(join, "a join without ON", f"ON {relation.alias}.id = a.{relation.alias}_id")
        on = conjuncts(condition)
        for part in on:
            self._check(part)
        place = place_of(self.table.name, condition if condition is not None else join)
        return Join(relation=relation, inner=not kind.startswith("LEFT"), on=on, place=place)

    def _check_joined(self, first: Relation, joins: tuple[Join, ...], where: tuple[exp.Expr, ...]) -> None:
        """Each joined table needs an equality with another one; which keys they cover is known with the schemas."""
        pool = [*(part for join in joins if join.inner for part in join.on), *where]
        for join in joins:
            alias = join.relation.alias
            for part in pool if join.inner else join.on:
                part = part.unnest()
                sides = [part.this.unnest(), part.expression.unnest()] if isinstance(part, exp.EQ) else []
                tables = [side.table for side in sides if isinstance(side, exp.Column)]
                if len(tables) == 2 and (alias in tables or "" in tables) and tables != [alias, alias]:
                    break
            else:
                form = f"ON {alias}.id = {first.alias}.{alias}_id"
                refuse(self.topology, join.place, f"no equality joins {alias}", form)

    def _check(self, node: exp.Expr) -> None:
        """Refuse an unknown table in a column's name, and what no expression may hold."""
        try:
            check_shape(node)
        except Unsupported as error:
            self.refuse(error.node, error.what, error.expected)
        for column in node.find_all(exp.Column):
            if len(column.parts) > 2 or (column.table and column.table not in self.relations):
                known = ", ".join(self.relations)
                self.refuse(column, f"unknown table {column.table} in {column.sql('spark')}", f"one of {known}")

    def _item(self, node: exp.Expr) -> Item:
        inner, place = node.unalias(), place_of(self.table.name, node)
        star = inner if isinstance(inner, exp.Star) else inner.this if isinstance(inner, exp.Column) else None
        if isinstance(star, exp.Star):
            alias = inner.table if isinstance(inner, exp.Column) else ""
            if any(star.args.values()):
                self.refuse(node, f"{inner.sql('spark')} is not supported yet", f"{alias or 't'}.* or single columns")
            if alias and alias not in self.relations:
                self.refuse(node, f"unknown table {alias} in {alias}.*", "one of " + ", ".join(self.relations))
            return Item(expression=None, name="", star=alias, place=place)
        self._check(inner)
        name = node.alias or (inner.name if isinstance(inner, exp.Column) else "")
        if not name:
            self.refuse(node, f"{inner.sql('spark')} without a name", f"{inner.sql('spark')} AS name")
        if name.startswith("_"):
            self.refuse(node, f"column {name}", "a name that does not begin with _ (those are reserved): AS another")
        return Item(expression=inner, name=name, star=None, place=place)


def check_query(topology: Topology, table: Table) -> list[str] | None:
    """Names of the result's columns, checked as far as is possible without the tables' schemas.

    Called by `tailorbird validate`. None when a `*` leaves the names open. TopologyError for a query outside the
    supported shape, a table that is not captured, or a row_key that the result does not hold.
    """
    select = parse_query(topology, table)
    tables_of(topology, table)
    if any(item.star is not None for item in select.items):
        return None
    names = [item.name for item in select.items]
    for name in table.row_key:
        if name not in names:
            what, expected = f"unknown column {name}", "names of columns in the query's result"
            raise topology.error(f"tables.{table.name}.row_key", what, expected)
    return names


def tables_of(topology: Topology, table: Table, readers: tuple[str, ...] = ()) -> frozenset[TableId]:
    """The captured tables that a query reads, through other tables of the topology as well.

    TopologyError when a table is read by its own query.
    """
    found: set[TableId] = set()
    for relation in parse_query(topology, table).relations.values():
        if relation.table_id is not None:
            found.add(relation.table_id)
        elif relation.view is not None:
            if relation.view in (*readers, table.name):
                way = " → ".join((*readers, table.name, relation.view))
                refuse(topology, relation.place, f"{relation.view} reads itself: {way}", "tables without a circle")
            found |= tables_of(topology, topology.tables[relation.view], (*readers, table.name))
    return frozenset(found)

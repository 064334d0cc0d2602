"""Rewrite the scalar expressions of a query for DuckDB, so that they give the results of the join.

DuckDB and Spark differ in many expressions (`dayofweek`, `CAST(2.50 AS INT)`, `upper('ß')`). DuckDB evaluates only
what is known to be the same in both: columns, literals, AND, OR, NOT, IS NULL, and comparisons and COALESCE of one
type. Every other expression is compiled as the join does it (`joins.query.expressions`). A call of a Python function
replaces it, which evaluates the compiled form (`joins.evaluate`). Aggregates are treated likewise
(`joins.oracle.collected`).

Each result column records the functions that it depends on. If a function cannot compute some value, its columns are
not compared. If the function decides which rows exist, no row is compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.oracle.called import Collected, QueryShape, Scalar, Shown
from joins.oracle.native import Deps, Rewritten, alike, counted, is_negative, key_of, operands, together, with_parts
from joins.oracle.window_calls import over, split, with_expression
from joins.query.aggregates import Keeping, aggregates_in, read_by
from joins.query.finish import compiled, text_of_expression, value
from joins.query.group import Result
from joins.query.typed import Typed, Unsupported
from joins.query.value_types import BOOL, FLOAT64, INT32, STRING

_NONE: Deps = frozenset()
ORDER = "order"  # replaces the compiled form of the sort key of a TIME
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_NATIVE = (exp.And, exp.Or, exp.Not, exp.Is, exp.Exists)


@dataclass(slots=True)
class _Scope:
    """The names that are visible in a SELECT: columns by relation, and those of the enclosing SELECT (`outer`).

    If the SELECT is grouped, `leaves` are the rewritten GROUP BY expressions by their SQL. `again` are the columns that
    a table shares with those before it, by USING or NATURAL, in lower case."""

    relations: dict[str, dict[str, Shown]] = field(default_factory=dict)
    outer: _Scope | None = None
    leaves: dict[str, Rewritten] = field(default_factory=dict)
    again: dict[str, set[str]] = field(default_factory=dict)

    def column(self, node: exp.Column) -> Shown | None:
        """Return the column that a name refers to, in this SELECT or an enclosing one. None if there is none."""
        for same in (str, str.casefold):  # SQL ignores the case of names
            for alias, columns in self.relations.items():
                for name, column in columns.items() if not node.table or alias == node.table else ():
                    if same(name) == same(node.name):
                        return column
        return None if self.outer is None else self.outer.column(node)


def name_of(*parts: object) -> str:
    """Return the name of the DuckDB function for these parts. Equal parts give equal names."""
    return "tb_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


class Scalars:
    """Rewrites one query and collects the functions that it calls. `tables` are the columns of DuckDB's tables."""

    def __init__(self, tables: Mapping[str, Mapping[str, LogicalType]]) -> None:
        self._tables = tables
        self.functions: dict[str, Scalar | Collected] = {}

    def query(self, node: exp.Expr, outer: _Scope | None = None) -> QueryShape:
        """Rewrite a query in place."""
        if isinstance(node, exp.Subquery | exp.Paren):
            return self.query(node.this, outer)
        if isinstance(node, exp.Union):
            return self._union(node, outer)
        assert isinstance(node, exp.Select), node  # the only other query that is read
        return self._select(node, outer)

    def _union(self, node: exp.Union, outer: _Scope | None) -> QueryShape:
        one, other = self.query(node.this, outer), self.query(node.expression, outer)
        columns = [
            Shown(a.name, together(a.type, b.type), a.deps | b.deps)
            for a, b in zip(one.columns, other.columns, strict=True)
        ]
        rows = one.rows | other.rows
        if node.args.get("distinct"):
            rows |= frozenset().union(*(column.deps for column in columns))
        return QueryShape(tuple(columns), rows)

    def _select(self, node: exp.Select, outer: _Scope | None) -> QueryShape:
        scope, rows = _Scope(outer=outer), _NONE
        rows |= self._relation(node.args["from_"].this, scope)
        for join in node.args.get("joins") or ():
            known = {name.casefold() for columns in scope.relations.values() for name in columns}
            rows |= self._relation(join.this, scope)
            alias, using = join.this.alias_or_name, {one.name.casefold() for one in join.args.get("using") or ()}
            own = {name.casefold() for name in scope.relations[alias]}
            scope.again[alias] = known & own if join.method == "NATURAL" else using
        for join in node.args.get("joins") or ():
            if (on := join.args.get("on")) is not None:
                rows |= self._put(join, "on", on, scope)
        if (where := node.args.get("where")) is not None:
            rows |= self._put(where, "this", where.this, scope)
        items = [(item.alias_or_name, item.unalias()) for item in node.expressions]
        rows |= self._grouped(node, scope, dict(items))
        shown, made = list[Shown](), list[exp.Expr]()
        for name, item in items:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                wanted = item.table if isinstance(item, exp.Column) else ""
                for alias, columns in scope.relations.items() if not wanted else [(wanted, scope.relations[wanted])]:
                    again = set[str]() if wanted else scope.again.get(alias, set())
                    shown += [column for column in columns.values() if column.name.casefold() not in again]
                made.append(item)
                continue
            found_item = self._expression(item, scope)
            shown.append(Shown(name, found_item.type, found_item.deps))
            made.append(exp.alias_(found_item.sql, name or "value", quoted=True))  # of a scalar subquery
        named = {name: item for name, item in items if name}
        for key in ("having", "qualify"):
            if (clause := node.args.get(key)) is not None:
                said = _said(clause.this, named, scope)
                rows |= self._put(clause, "this", said, scope)
        node.set("expressions", made)
        if node.args.get("distinct"):
            rows |= frozenset().union(*(column.deps for column in shown))
        return QueryShape(tuple(shown), rows)

    def _relation(self, relation: exp.Expr, scope: _Scope) -> Deps:
        if isinstance(relation, exp.Table):
            columns = self._tables[relation.name]
            scope.relations[relation.alias_or_name] = {name: Shown(name, t, _NONE) for name, t in columns.items()}
            return _NONE
        asked = self.query(relation, None)
        scope.relations[relation.alias_or_name] = {column.name: column for column in asked.columns}
        return asked.rows

    def _put(self, parent: exp.Expr, key: str, node: exp.Expr, scope: _Scope) -> Deps:
        found = self._expression(node, scope)
        parent.set(key, found.sql)
        return found.deps

    def _grouped(self, node: exp.Select, scope: _Scope, items: Mapping[str, exp.Expr]) -> Deps:
        """Rewrite GROUP BY and return the functions that it depends on.

        The names of result columns in it are expanded. Other expressions may then use the GROUP BY expressions as
        they are."""
        group = node.args.get("group")
        if group is None:
            return _NONE
        leaves, made, rows, listed = dict[str, Rewritten](), list[exp.Expr](), _NONE, list(items.values())
        for one in group.expressions:
            said = one
            if isinstance(one, exp.Literal) and not one.is_string:
                said = listed[int(one.name) - 1]
            elif isinstance(one, exp.Column) and not one.table and scope.column(one) is None:
                said = items.get(one.name, one)
            found = self._expression(said, scope)
            leaves[key_of(said)] = found
            # DuckDB would read a literal as a column's number
            made.append(one if isinstance(said.unnest(), exp.Literal | exp.Boolean) else found.sql.copy())
            rows |= found.deps
        group.set("expressions", made)
        scope.leaves |= leaves
        return rows

    # -- expressions

    def _expression(self, node: exp.Expr, scope: _Scope) -> Rewritten:
        """Return the rewritten form of an expression. The node itself stays unchanged, except for subqueries in it."""
        if isinstance(node, exp.Paren):
            inner = self._expression(node.this, scope)
            return Rewritten(exp.Paren(this=inner.sql), inner.type, inner.deps)
        if (leaf := self._leaf(node, scope)) is not None:
            return leaf
        if isinstance(node, exp.Literal | exp.Boolean | exp.Null) or is_negative(node):
            return Rewritten(node.copy(), self._typed(node, scope).type)
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._in_query(node, scope)
        if isinstance(node, _NATIVE):
            return self._native(node, scope)
        if (moved := self._moved(node, scope)) is not None:
            return moved
        if isinstance(node, (*_COMPARISONS, exp.In, exp.Between, exp.Coalesce)):
            parts = [self._expression(part, scope) for part in operands(node)]
            if alike([part.type for part in parts]):
                type_ = parts[0].type if isinstance(node, exp.Coalesce) else BOOL
                return Rewritten(with_parts(node, parts), type_, frozenset().union(*(part.deps for part in parts)))
        return self._function(node, scope)

    def _moved(self, node: exp.Expr, scope: _Scope) -> Rewritten | None:
        """Rewrite `column ± INTERVAL …`, as joins by time use it. None for other expressions. DuckDB computes it
        alike."""
        if not isinstance(node, exp.Add | exp.Sub) or not isinstance(node.expression.unnest(), exp.Interval):
            return None
        moment = self._expression(node.this, scope)
        if moment.type.kind not in ("datetime", "timestamp"):
            return None
        copy = node.copy()
        copy.set("this", moment.sql)
        return Rewritten(copy, moment.type, moment.deps)

    def _leaf(self, node: exp.Expr, scope: _Scope) -> Rewritten | None:
        """Return an expression that stays unchanged: a column, a GROUP BY expression, an aggregate, a row number.

        None for any other expression."""
        if (known := scope.leaves.get(key_of(node))) is not None:
            return Rewritten(known.sql.copy(), known.type, known.deps)
        if isinstance(node, exp.Column):
            column = scope.column(node)
            return Rewritten(node.copy(), STRING if column is None else column.type, column.deps if column else _NONE)
        if isinstance(node, exp.Subquery):
            copy = node.copy()
            asked = self.query(copy, scope)
            return Rewritten(copy, asked.columns[0].type, asked.rows | asked.columns[0].deps)
        if isinstance(node, exp.Window):
            return self._window(node, scope)
        if next(aggregates_in(node), None) is node:
            return self._aggregate(node, scope)
        return None

    def _native(self, node: exp.Expr, scope: _Scope) -> Rewritten:
        copy, deps = node.copy(), _NONE
        if isinstance(copy, exp.Exists):
            asked = self.query(copy.this, scope)
            return Rewritten(copy, BOOL, asked.rows)
        for key in ("this", "expression"):
            child = copy.args.get(key)
            if isinstance(child, exp.Expr) and not isinstance(child, exp.Null | exp.Boolean):
                deps |= self._put(copy, key, child, scope)
        return Rewritten(copy, BOOL, deps)

    def _in_query(self, node: exp.In, scope: _Scope) -> Rewritten:
        copy = node.copy()
        deps = self._put(copy, "this", copy.this, scope)
        asked = self.query(copy.args["query"], scope)
        return Rewritten(copy, BOOL, deps.union(asked.rows, *(column.deps for column in asked.columns)))

    def _window(self, node: exp.Window, scope: _Scope) -> Rewritten:
        call, added = split(node)
        partition = [self._expression(one, scope) for one in call.partition]
        written = [] if node.args.get("order") is None else node.args["order"].expressions
        order = [self._sortable(self._expression(one.this, scope)) for one in written]
        entries = [with_expression(one, found.sql) for one, found in zip(written, order, strict=True)]
        cut = len(entries) - len(added)
        deps = _NONE.union(*(one.deps for one in (*partition, *order)))
        if call.kind == "aggregate":
            found = self._aggregate(call.call, scope, within=scope)
            function, type_, deps = found.sql, found.type, deps | found.deps
        else:
            function, type_ = call.call.copy(), FLOAT64 if call.kind in ("percent_rank", "cume_dist") else INT32
            if call.argument is not None:
                argument = self._expression(call.argument, scope)
                function.set("this", argument.sql)
                type_, deps = argument.type, deps | argument.deps
            if call.default is not None:
                deps |= self._put(function, "default", call.default, scope)
        sql = over(call, function, [one.sql for one in partition], entries[:cut], entries[cut:])
        whole = call.argument is None and type_ == INT32
        return Rewritten(exp.cast(sql, "INT") if whole else sql, type_, deps)

    def _sortable(self, node: Rewritten) -> Rewritten:
        """Return an expression that DuckDB orders like the join. A TIME is replaced by its duration."""
        if node.type.kind == "time":
            return self._call("order", [node], lambda: Typed(sql="", type=node.type), "the order of a TIME")
        return node

    def _typed(self, node: exp.Expr, scope: _Scope) -> Typed:
        return compiled(node, lambda column: Typed(sql="", type=self._expression(column, scope).type))

    def _function(self, node: exp.Expr, scope: _Scope) -> Rewritten:
        """Return the call of a Python function that replaces an expression."""
        inputs: dict[str, Rewritten] = {}
        places: dict[str, int] = {}

        def opened(part: exp.Expr) -> exp.Expr:
            leaf = self._leaf(part, scope)
            if leaf is not None:
                text = leaf.sql.sql("duckdb")
                inputs.setdefault(text, leaf)
                name = f"_p{list(inputs).index(text)}"
                places[name] = list(inputs).index(text)
                return exp.column(name)
            copy = part.copy()
            for key, child in list(copy.args.items()):
                if isinstance(child, exp.Expr):
                    copy.set(key, opened(child))
                elif isinstance(child, list):
                    copy.set(key, [opened(one) if isinstance(one, exp.Expr) else one for one in child])
            return copy

        whole = opened(node)
        given = list(inputs.values())

        def resolve(column: exp.Column) -> Typed:
            at = places[column.name]
            return value(column, at, given[at].type)

        return self._call("scalar", given, lambda: compiled(whole, resolve), text_of_expression(node))

    def _call(self, kind: str, given: list[Rewritten], compile_: Callable[[], Typed], text: str) -> Rewritten:
        try:
            typed = compile_()
        except Unsupported as error:
            return self._unknown(text, error.what)
        sql = ORDER if kind == "order" else typed.sql
        types = tuple(one.type for one in given)
        type_ = LogicalType(kind="int64") if kind == "order" else typed.type
        name = name_of(kind, sql, types, type_)
        self.functions[name] = Scalar(name=name, sql=sql, types=types, type=type_, text=text)
        arguments = [one.sql.copy() for one in given] or [exp.Literal.number(0)]
        call = exp.Anonymous(this=name, expressions=arguments)
        return Rewritten(call, type_, frozenset({name}).union(*(one.deps for one in given)))

    def _unknown(self, text: str, reason: str) -> Rewritten:
        name = name_of("untold", text, reason)
        self.functions[name] = Scalar(name=name, sql="", types=(), type=STRING, text=text, reason=reason)
        return Rewritten(exp.Anonymous(this=name, expressions=[exp.Literal.number(0)]), STRING, frozenset({name}))

    # -- aggregates

    def _aggregate(self, call: exp.Expr, scope: _Scope, *, within: _Scope | None = None) -> Rewritten:
        """Return the call that replaces an aggregate function. Its arguments are evaluated per row, before grouping,
        or `within` a scope."""
        below = within or _Scope(scope.relations, scope.outer)
        read = read_by(call, lambda node: self._expression(node, below).type)
        parts = [self._expression(part, below) for part in read]
        deps = frozenset().union(*(part.deps for part in parts))
        try:
            keeping = Keeping()
            result = keeping.add(call, [(i, part.type) for i, part in enumerate(parts)])
        except Unsupported as error:
            return self._unknown(text_of_expression(call), error.what)
        turned = keeping.bags[0].descending if keeping.bags else ()
        sql = counted(result, parts, turned) or self._collected(result, parts)
        return Rewritten(
            sql, result.type, deps | {str(one.this) for one in sql.find_all(exp.Anonymous)} & {*self.functions}
        )

    def _collected(self, result: Result, parts: list[Rewritten]) -> exp.Expr:
        part, alone = parts[0], len(parts) == 1
        name = name_of("collected", result.function, part.type, result.type, alone, *result.given)
        self.functions[name] = Collected(
            name=name, function=result.function, of=part.type, type=result.type, text=result.text, alone=alone,
            given=result.given,
        )  # fmt: skip
        x = f"({part.sql.sql('duckdb')})"  # NOT binds less than IS NULL
        return exp.maybe_parse(f"{name}(coalesce(list({x}) FILTER (WHERE {x} IS NOT NULL), []))", dialect="duckdb")


def _said(node: exp.Expr, named: Mapping[str, exp.Expr], scope: _Scope) -> exp.Expr:
    """Return a condition in which names of the query's own result columns are replaced by their expressions."""
    top = exp.Paren(this=node.copy())
    for column in list(top.find_all(exp.Column)):
        if not column.table and column.name in named and column.find_ancestor(exp.Select) is None:
            found, known = named[column.name], scope.column(column) is not None
            if known and column.find_ancestor(exp.AggFunc, exp.Window) is not None:
                continue  # within an aggregate or a window, a name means the tables' column
            if not known or not isinstance(found, exp.Column):
                column.replace(exp.Paren(this=found.copy()))
    inner: exp.Expr = top.this
    return inner

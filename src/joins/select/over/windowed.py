"""Bind a query with window functions (part of stage 3).

    SELECT o.id, o.amount - lag(o.amount) OVER (PARTITION BY o.kind ORDER BY o.day) AS more FROM shop.orders o

reads an inner query of single rows or groups (`id`, `amount`, `_v0` = kind, `_v1` = day). For each PARTITION BY and
ORDER BY, a `BoundWindow` adds the values of its functions (`_f0`, …) to these rows. The outer query computes the
expressions over both: `SELECT id, amount - _f0 AS more`. QUALIFY is its WHERE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NoReturn, Protocol

from sqlglot import exp

from cdc.model.types import LogicalType
from cdc.topology.topology import Topology
from joins.query.aggregates import Keeping, aggregates_in, arguments_of, widens
from joins.query.finish import text_of_expression
from joins.query.typed import Unsupported
from joins.query.value_types import FLOAT64, INT32, spark_type
from joins.query.windows import WindowCall, call_of, windows_in
from joins.select.bound import BoundFunction, BoundTree, BoundWindow
from joins.select.flat import Condition, Flat, FlatItem
from joins.select.over.topn import Ties, check_order, name_key, ties_of_rows, visible
from joins.select.rows import QueryColumn, QueryRows
from joins.select.sql import Place, Select, place_of, refuse

_DOUBLES = ("percent_rank", "cume_dist")
_NO_COLUMNS = (exp.Literal, exp.Boolean, exp.DataTypeParam)


class Binding(Protocol):
    """The parts of the binder that windows use (implemented by `joins.select.bind`)."""

    topology: Topology
    ties: Ties

    def tree(self, flat: Flat, place: Place) -> BoundTree:
        """Bind a flat query that has no groups."""
        ...

    def arguments(self, flat: Flat, call: exp.Expr, place: Place) -> list[exp.Expr]:
        """Return the expressions over single rows that an aggregate function reads."""
        ...


def windowed(
    binder: Binding,
    flat: Flat,
    select: Select,
    inner: Callable[[Flat], BoundTree],
    reading: Callable[[BoundWindow, Place], Flat],
) -> BoundTree:
    """Return the bound form of a query with window functions.

    `inner` binds the query without them, `reading` returns a query of all columns of a bound one. Adds to the
    binder's `ties`."""
    return _Windowed(binder, flat, select, inner, reading).run()


class _Windowed:
    def __init__(
        self,
        binder: Binding,
        flat: Flat,
        select: Select,
        inner: Callable[[Flat], BoundTree],
        reading: Callable[[BoundWindow, Place], Flat],
    ) -> None:
        self.binder, self.flat, self.select, self.inner, self.reading = binder, flat, select, inner, reading
        nodes = [item.expression for item in flat.items] + [one.expression for one in flat.qualify]
        found = {node.sql(): node for one in nodes for node in windows_in(one)}
        self.calls = {text: (node, call_of(node)) for text, node in found.items()}
        self.groups = {one.expression.sql() for one in flat.group}
        self.items = [item for item in flat.items if not windows_in(item.expression)]
        self.names = {item.expression.sql(): item.name for item in reversed(self.items)}
        self.functions: dict[str, str] = {}  # the column of a window function, by its text

    def refuse(self, place: Place, what: str, expected: str) -> NoReturn:
        refuse(self.binder.topology, place, what, expected)

    def run(self) -> BoundTree:
        place = self.select.place
        places = {text: place_of(self.select.table, node) for text, (node, _) in self.calls.items()}
        arguments = {text: self._arguments(call, places[text]) for text, (_, call) in self.calls.items()}
        for text, (_, call) in self.calls.items():
            for node in (*call.parts(), *arguments[text]):
                self._name(node, places[text])
        above = [(item, self._above(item.expression)) for item in self.flat.items]
        where = [(one, self._above(one.expression)) for one in self.flat.qualify]
        tree = name_key(self.binder.topology, self.inner(replace(self.flat, items=self.items)), self.binder.tree)
        for node, call in self.calls.values():
            if call.needs_ties:
                original = place_of(self.select.table, node)
                ties = ties_of_rows(self.binder.topology, self.flat, self.select, tree, original)
                self.binder.ties[original] = ties
        for texts in _by_order(self.calls):
            read = self._window(tree, texts, arguments, places)
            tree = self.binder.tree(self.reading(read, place), place)
        outer = visible(tree.flat)
        outer.items = [replace(item, expression=node, text=_said(item, node)) for item, node in above]
        outer.where = [
            Condition(expression=node, place=one.place, text=text_of_expression(one.expression)) for one, node in where
        ]
        return self.binder.tree(outer, place)

    def _arguments(self, call: WindowCall, place: Place) -> list[exp.Expr]:
        """Return the expressions that an aggregate function reads, as they are added up."""
        if call.kind != "aggregate" or not self._plain():
            return arguments_of(call.call) if call.kind == "aggregate" else []
        return self.binder.arguments(self.flat, call.call, place)

    def _plain(self) -> bool:
        """Return whether the query has no groups, so that its rows are those of its tables."""
        return not self.select.grouped

    def _name(self, node: exp.Expr, place: Place) -> str:
        """Return the name of a column of the inner query; add one if there is none."""
        text = node.sql()
        if text not in self.names:
            self.names[text] = f"_v{len(self.names)}"
            self.items.append(FlatItem(name=self.names[text], expression=node.copy(), place=place))
        return self.names[text]

    def _above(self, node: exp.Expr) -> exp.Expr:
        """Return an expression over the columns of the inner query and of the window functions."""
        if isinstance(node, exp.Window):
            name = self.functions.setdefault(node.sql(), f"_f{len(self.functions)}")
            return _column(name)
        aggregated = next(aggregates_in(node), None) is node
        known = node.sql() in self.names or node.sql() in self.groups
        if (known or aggregated or isinstance(node, exp.Column)) and not isinstance(node, _NO_COLUMNS):
            return _column(self._name(node, self.select.place))
        copy = node.copy()
        for child in list(copy.iter_expressions()):
            child.replace(self._above(child))
        return copy

    def _window(
        self, tree: BoundTree, texts: Sequence[str], arguments: dict[str, list[exp.Expr]], places: dict[str, Place]
    ) -> BoundWindow:
        """Return the rows of a query with the values of functions that have the same PARTITION BY and ORDER BY."""
        call, place = self.calls[texts[0]][1], places[texts[0]]
        columns = {column.name: column for column in tree.rows.columns}
        partition = list(dict.fromkeys(self.names[node.sql()] for node in call.partition))
        order = [(self.names[node.sql()], descending) for node, descending in call.order]
        said = {self.names[node.sql()]: (node, place) for node in (*call.partition, *(one for one, _ in call.order))}
        check_order(self.binder.topology, columns, partition, [name for name, _ in order], said)
        held = list(dict.fromkeys(self.names[node.sql()] for text in texts for node in arguments[text]))
        keeping, found, added = Keeping(), list[BoundFunction](), list[QueryColumn]()
        for text in texts:
            node, one = self.calls[text]
            if one.kind == "aggregate":
                type_ = self._aggregate(keeping, one.call, arguments[text], held, columns, places[text])
            else:
                type_ = self._type(one, columns)
            argument, default = (None if n is None else self.names[n.sql()] for n in (one.argument, one.default))
            if default is not None and columns[default].type != type_:
                what = f"the default of {text_of_expression(one.call)} is {columns[default].type}, not {type_}"
                expected = f"CAST({text_of_expression(one.default or node)} AS {spark_type(type_)})"
                self.refuse(places[text], what, expected)
            name, result = self.functions[text], max(0, len(keeping.results) - 1)
            found.append(BoundFunction(name=name, call=one, argument=argument, default=default, result=result))
            added.append(QueryColumn(name=name, type=type_, nullable=True, origin=text_of_expression(node)))
        key = tree.rows.primary_key
        return BoundWindow(
            inner=tree,
            partition=tuple(partition),
            order=(*order, *((name, False) for name in key)),
            ordered=len(dict.fromkeys(name for name, _ in order)),
            functions=tuple(found),
            arguments=tuple(held),
            keeping=keeping,
            rows=QueryRows(columns=(*tree.rows.columns, *added), primary_key=key, also=tree.rows.also),
        )

    def _aggregate(
        self,
        keeping: Keeping,
        call: exp.Expr,
        arguments: list[exp.Expr],
        held: list[str],
        columns: dict[str, QueryColumn],
        place: Place,
    ) -> LogicalType:
        """Add an aggregate function to those of a window, and return its type."""
        self._refuse_floats(call, arguments, columns, place)
        given = [held.index(self.names[node.sql()]) for node in arguments]
        try:
            return keeping.add(call, [(at, columns[held[at]].type) for at in given]).type
        except Unsupported as error:
            self.refuse(place, error.what.replace("`", ""), error.expected)

    def _refuse_floats(
        self, call: exp.Expr, arguments: list[exp.Expr], columns: dict[str, QueryColumn], place: Place
    ) -> None:
        """Raise TopologyError for a sum of a FLOAT of groups, which would have to be widened before."""
        if widens(call) and columns[self.names[arguments[0].sql()]].type.kind == "float32":
            text = text_of_expression(arguments[0])
            self.refuse(place, f"FLOAT in {text_of_expression(call)}", f"CAST({text} AS DOUBLE)")

    def _type(self, call: WindowCall, columns: dict[str, QueryColumn]) -> LogicalType:
        if call.argument is not None:
            return columns[self.names[call.argument.sql()]].type
        return FLOAT64 if call.kind in _DOUBLES else INT32


def _by_order(calls: dict[str, tuple[exp.Window, WindowCall]]) -> Iterable[list[str]]:
    """Return the texts of functions, grouped by their PARTITION BY and ORDER BY."""
    found: dict[str, list[str]] = {}
    for text, (_, call) in calls.items():
        order = [(node.sql(), descending) for node, descending in call.order]
        found.setdefault(repr(([node.sql() for node in call.partition], order)), []).append(text)
    return found.values()


def _said(item: FlatItem, node: exp.Expr) -> str:
    """Return the original text of an expression that is computed from window functions."""
    return item.text if isinstance(node, exp.Column) and item.text else text_of_expression(item.expression)


def _column(name: str) -> exp.Expr:
    return exp.column(name, table="", quoted=True)

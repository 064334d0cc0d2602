"""Remove from table definitions what a host's policy keeps on the host.

Statements do not leave the host, because they contain literals and comments. Neither do definitions of tables outside
the policy. Hidden columns (ignored or masked) keep their names and types, without labels of ENUM and SET, and without
defaults. The result is complete enough to resume from: the log names its columns, and the server has the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from cdc.model.filters import TableRule
from cdc.model.history import DatabaseState, Record, SchemaChange, TableState, restated
from cdc.model.schema import Column, TableId
from cdc.packed import unpacked
from cdc.topology.topology import Source
from ingest.ddl.catalog import Catalog, ColumnDefinition, TableDefinition, TableName, table_from_json
from ingest.ddl.columns import ROW_END, ROW_START

NOT_UNDERSTOOD = "a statement was not understood"
_LABELLED = re.compile(r"\s*(enum|set)\s*\(", re.IGNORECASE)
_FLAGS = ("AUTO_INCREMENT", "INVISIBLE", ROW_START, ROW_END)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """The part of a source's table definitions that a policy allows to leave the host: tables with a rule.

    `rule` returns the rule of a table; None if nothing of it may leave. `databases` are those of the source. Names are
    as the server stores them.
    """

    source: str
    databases: frozenset[str]
    rule: Callable[[TableId], TableRule | None]

    def catalog(self, catalog: Catalog) -> Catalog:
        """Return the catalog without labels of hidden columns, and without texts of statements."""
        tables = {name: self._table(name, table) for name, table in catalog.tables.items()}
        return replace(catalog, tables=tables, unknown=dict.fromkeys(catalog.unknown, NOT_UNDERSTOOD))

    def columns(self, table: TableId, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        """Return the columns of a table without labels of hidden ones."""
        rule = self.rule(table)
        if rule is None:
            return columns
        return tuple(
            replace(column, column_type=without_labels(column.column_type)) if rule.hides(column.name) else column
            for column in columns
        )

    def keeps(self, name: TableName) -> bool:
        """Return whether the history may contain the table; an empty table name means the database itself."""
        return self.rule(self._id(name)) is not None if name[1] else name[0] in self.databases

    def _id(self, name: TableName) -> TableId:
        return TableId(source=self.source, database=name[0], table=name[1])

    def stored(self, change: SchemaChange) -> SchemaChange:
        """Return a change as the history stores it: without its statement, other tables, and values."""
        return replace(
            change, ddl="", tables=tuple(self._state(state) for state in change.tables if self._keeps_state(state)),
            databases=tuple(one for one in change.databases if self._keeps_state(one)),
        )  # fmt: skip

    def record(self, record: Record) -> Record:
        """Return a record of the history as it would be stored now: an earlier version, or an earlier policy, may have
        let more leave. Without it, a tombstone."""
        return restated(record, self._kept)

    def _kept(self, state: TableState | DatabaseState) -> TableState | DatabaseState | None:
        if not self._keeps_state(state):
            return None
        return self._state(state) if isinstance(state, TableState) else state

    def _keeps_state(self, state: TableState | DatabaseState) -> bool:
        if isinstance(state, DatabaseState):
            return self.keeps((state.database, ""))
        return self.keeps((state.table_id.database, state.table_id.table))

    def _table(self, name: TableName, table: TableDefinition) -> TableDefinition:
        rule = self.rule(self._id(name))
        if rule is None or not any(rule.hides(column.name) for column in table.columns):
            return table
        columns = tuple(
            replace(column, column_type=without_labels(column.column_type)) if rule.hides(column.name) else column
            for column in table.columns
        )
        return replace(table, columns=columns)

    def _state(self, state: TableState) -> TableState:
        rule = self.rule(state.table_id) or TableRule()
        schema, detail = state.schema, state.detail
        if schema is not None:
            columns = self.columns(state.table_id, schema.columns)
            schema = replace(schema, columns=tuple(_valueless(c) if rule.hides(c.name) else c for c in columns))
        if detail is not None:
            table = table_from_json(unpacked(detail))
            detail = replace(table, columns=tuple(_column(column, rule) for column in table.columns)).to_json()
        unknown = NOT_UNDERSTOOD if state.unknown else ""
        return replace(state, schema=schema, detail=detail, unknown=unknown)


def restriction_of(source: Source) -> Restriction | None:
    """Return what the policy of the source's host lets leave; None without a policy.

    A table that the policy allows is part of the history even if it is not captured, so that it can be added later.
    """
    permitted = source.permitted
    if permitted is None:
        return None

    def rule(table: TableId) -> TableRule | None:
        return None if permitted(table) is None else source.rule_of(table)

    return Restriction(source=source.name, databases=source.databases, rule=rule)


def without_values(table: TableDefinition, rule: TableRule) -> TableDefinition:
    """Return a definition without the values that older rows have in hidden columns."""
    if not any(rule.hides(column.name) for column in table.columns):
        return table
    return replace(table, columns=tuple(_column(column, rule) for column in table.columns))


def without_labels(column_type: str) -> str:
    """Return a column's type with one empty label in place of the labels of ENUM or SET."""
    found = _LABELLED.match(column_type)
    return f"{found[1].lower()}('')" if found else column_type


def _valueless(column: Column) -> Column:
    """Return a column without its default; that it is NULL may be known."""
    return replace(column, default=None, default_known=column.default_known and column.default is None)


def _column(column: ColumnDefinition, rule: TableRule) -> ColumnDefinition:
    """Return a definition without parts of statements, and without the values of a hidden column."""
    words = column.rest.upper()
    flags = [flag for flag in _FLAGS if flag in words] + (["AS (?)"] if "AS (" in words else [])
    column = replace(column, default="", rest=" ".join(flags))
    if not rule.hides(column.name):
        return column
    known = column.initial_known and column.initial is None
    kind = without_labels(column.column_type)
    return replace(column, column_type=kind, initial=None, initial_known=known)

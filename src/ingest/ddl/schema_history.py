"""Apply statements and table metadata to the schema history, and restore the catalog at any position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cdc.model.event import Position
from cdc.model.history import DatabaseState, History, SchemaChange, TableState
from cdc.model.schema import Column, TableId, TableSchema
from cdc.packed import unpacked
from cdc.persistent import changed_keys, persistent
from ingest.ddl.catalog import (
    Catalog,
    ColumnDefinition,
    Key,
    TableDefinition,
    TableName,
    column_definition,
    definition_of,
    table_from_json,
)
from ingest.ddl.columns import ROW_END, ROW_START, period
from ingest.ddl.defaults import converted_initial, shown_initial
from ingest.ddl.dialect import Dialect
from ingest.ddl.statements import apply


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Result of a statement: history and catalog after it, and the schema change to store (None: nothing changed).

    `database` is the session's default database afterwards. `error` is why the statement was not understood.
    `rewritten` is as in `statements.Applied`.
    """

    history: History
    catalog: Catalog
    change: SchemaChange | None
    database: str
    error: str | None = None
    rewritten: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)


def follow(
    history: History,
    catalog: Catalog,
    sql: str,
    *,
    source: str,
    position: Position,
    database: str,
    dialect: Dialect,
    session: int = 0,
    shown: Callable[[Catalog], Catalog] | None = None,
    keeps: Callable[[TableName], bool] | None = None,
) -> Followed:
    """Apply one statement of a source's log to the history and to the catalog before it. `position` is the one after
    it.

    Capture calls it for every statement in order, and commits `change` together with its position. `shown` removes from
    tables that the statement changed what must not be stored; `catalog` no longer contains it. The change contains only
    what `keeps` accepts: tables, and databases (with an empty table name).
    """
    applied = apply(catalog, sql, database=database, dialect=dialect, session=session)
    after = _shown_catalog(catalog, applied.catalog, shown) if shown else applied.catalog
    states: list[TableState] = []
    for state in _table_states(history, catalog, after, source):
        if keeps is not None and not keeps((state.table_id.database, state.table_id.table)):
            continue
        held = history.held(state.table_id, position.sequence)
        if held:  # the statement is read again; the stored state may have been amended since
            after = _with_state(after, held)
        states.append(held or state)
    databases = tuple(
        _database(source, name, after)
        for name in _changed_databases(catalog, after)
        if keeps is None or keeps((name, ""))
    )
    change = None
    if states or databases:
        change = SchemaChange(position=position, ddl=sql, tables=tuple(states), databases=databases)
        history = history.record(change)
    return Followed(
        history=history, catalog=after, change=change, database=applied.database, error=applied.error,
        rewritten=applied.rewritten,
    )  # fmt: skip


def _shown_catalog(before: Catalog, after: Catalog, shown: Callable[[Catalog], Catalog]) -> Catalog:
    """Return the catalog `after` a statement, with the tables that it changed as `shown` returns them."""
    names = changed_keys(before.tables, after.tables) | changed_keys(before.unknown, after.unknown)
    tables = {name: after.tables[name] for name in names if name in after.tables}
    unknown = {name: after.unknown[name] for name in names if name in after.unknown}
    limited = shown(replace(after, tables=tables, unknown=unknown))
    return replace(
        after,
        tables=persistent(after.tables).updated(limited.tables),
        unknown=persistent(after.unknown).updated(limited.unknown),
    )


def _changed_databases(before: Catalog, after: Catalog) -> list[str]:
    if before.databases is after.databases and before.collations is after.collations:
        return []
    return sorted(
        name
        for name in {*before.databases, *after.databases}
        if (name in before.databases) != (name in after.databases)
        or before.databases.get(name) != after.databases.get(name)
        or before.collations.get(name) != after.collations.get(name)
    )


def _database(source: str, name: str, catalog: Catalog) -> DatabaseState:
    return DatabaseState(
        source=source,
        database=name,
        charset=catalog.databases.get(name),
        collation=catalog.collations.get(name),
        gone=name not in catalog.databases,
    )


def _table_states(history: History, before: Catalog, after: Catalog, source: str) -> Iterator[TableState]:
    for name in sorted(changed_keys(before.tables, after.tables) | changed_keys(before.unknown, after.unknown)):
        table_id = TableId(source=source, database=name[0], table=name[1])
        last = history.last_state(table_id)
        old, new = before.tables.get(name), after.tables.get(name)
        if new is not None:
            if new != old:
                yield _known(last, table_id, new)
        elif name not in after.unknown:
            yield TableState(table_id=table_id, schema=None, version=last.version if last else 0)
        elif before.unknown.get(name) != after.unknown[name]:
            yield TableState(
                table_id=table_id,
                schema=None,
                version=last.version if last else 0,
                unknown=after.unknown[name] or "its statement was not understood",
            )


def _known(last: TableState | None, table_id: TableId, table: TableDefinition) -> TableState:
    """Return the state of a table whose columns are known. Its version increases only if they differ from the last
    ones."""
    version = last.version if last else 0
    schema = table.schema(table_id, version)
    if last is None or last.unknown or last.schema != schema:
        schema = table.schema(table_id, version + 1)
    return TableState(table_id=table_id, schema=schema, version=schema.version, detail=table.to_json())


def begun(catalog: Catalog, source: str, position: Position) -> SchemaChange:
    """Return the first change of a history: the server's catalog at a position."""
    databases = tuple(_database(source, name, catalog) for name in sorted(catalog.databases))
    states = tuple(_table_states(History(), Catalog(), catalog, source))
    return SchemaChange(position=position, ddl="", tables=states, databases=databases)


def adopted(history: History, before: Catalog, after: Catalog, *, source: str, position: Position) -> SchemaChange:
    """Return the change from one catalog of a server to a later one, if the statements between them are not known."""
    databases = tuple(_database(source, name, after) for name in _changed_databases(before, after))
    states = tuple(_table_states(history, before, after, source))
    return SchemaChange(position=position, ddl="", tables=states, databases=databases)


def reported(
    history: History, catalog: Catalog, table_id: TableId, columns: Iterable[Column], primary_key: Iterable[str],
    *, position: Position,
) -> Followed:  # fmt: skip
    """Apply a table definition from metadata in the log, information_schema or an operator. It ends a quarantine.

    It amends the table's last change, because the columns have been these since then. A new table is known from
    `position` on. A definition that is already known changes nothing. Other keys and the default character set stay as
    they are; a new table takes those of its database.
    """
    name: TableName = (table_id.database, table_id.table)
    known = catalog.tables.get(name)
    key = tuple(primary_key)
    definitions = tuple(_enriched(definition_of(c), known) for c in columns)
    others = tuple(k for k in known.keys if k.kind != "primary") if known else ()
    primary = (Key(name="PRIMARY", kind="primary", columns=key),) if key else ()
    charset = known.charset if known else catalog.databases.get(name[0])
    collation = known.collation if known else catalog.collations.get(name[0])
    keys = (*primary, *others)
    table = TableDefinition(columns=definitions, keys=keys, charset=charset, collation=collation)
    if known is not None:
        table = replace(known, columns=definitions, keys=keys)
    if known and known.schema(table_id, 0) == table.schema(table_id, 0):
        return Followed(history=history, catalog=catalog, change=None, database=name[0])
    last = history.last_state(table_id)
    state = _known(last, table_id, table)
    change = SchemaChange(position=position, ddl="", tables=(state,))
    if last is None:
        history = history.record(change)
    else:
        history, number = history.amend(state)
        change = replace(change, position=replace(position, sequence=number))
    return Followed(history=history, catalog=catalog.with_table(name, table), change=change, database=name[0])


def _enriched(column: ColumnDefinition, known: TableDefinition | None) -> ColumnDefinition:
    """Return a column of the log's metadata, completed with attributes of the known column that metadata lacks."""
    held = known.column(column.name) if known else None
    if held is None:
        return column
    if not column.initial_known and held.initial_known:
        initial, sure = converted_initial(held.initial, held.column_type, column.column_type, nullable=column.nullable)
        column = replace(column, initial=initial, initial_known=sure)
    same = column.charset == held.charset and column.collation is None
    return replace(column, collation=held.collation) if same else column


def _with_state(catalog: Catalog, state: TableState) -> Catalog:
    name = (state.table_id.database, state.table_id.table)
    if state.unknown:
        return catalog.with_unknown(name, state.unknown)
    if state.schema is None:
        return catalog.without_table(name)
    return catalog.with_table(name, _definition(state.detail, state.schema))


def catalog_at(history: History, source: str, position: Position, default_charset: str | None) -> Catalog:
    """Return the catalog at a position, for a capture that resumes there.

    `default_charset` is the server's character_set_server. Temporary tables are not restored. Statements about them
    then name tables that do not exist, which quarantines no captured table.
    """
    found = [d for d in history.databases_at(position) if d.source == source]
    catalog = Catalog(
        default_charset=default_charset,
        databases={d.database: d.charset for d in found},
        collations={d.database: d.collation for d in found if d.collation},
    )
    tables: dict[TableName, TableDefinition] = {}
    for state in history.tables_at(position):
        if state.table_id.source != source:
            continue
        if state.unknown:
            catalog = _with_state(catalog, state)
        elif state.schema is not None:
            tables[state.table_id.database, state.table_id.table] = _definition(state.detail, state.schema)
    return replace(catalog, tables=tables)


def _definition(detail: Mapping[str, Any] | None, schema: TableSchema) -> TableDefinition:
    if detail is not None:
        return table_from_json(unpacked(detail))
    columns = tuple(definition_of(column) for column in schema.columns)
    key = (Key(name="PRIMARY", kind="primary", columns=schema.primary_key),) if schema.primary_key else ()
    return TableDefinition(columns=columns, keys=key)


Row = Mapping[str, object]
_PERIODS = {"ROW START": ROW_START, "ROW END": ROW_END}


def catalog_of(
    columns: Iterable[Row], statistics: Iterable[Row], tables: Iterable[Row], schemata: Iterable[Row],
    default_charset: str | None, dialect: Dialect | None = None,
) -> Catalog:  # fmt: skip
    """Return the catalog from rows of a server's information_schema.

    Column names are in lower case. COLUMNS is ordered by ordinal_position, STATISTICS by seq_in_index. TABLES needs
    `character_set_name` (joined by collation), `table_type` and `engine`; SCHEMATA needs `default_character_set_name`.
    Defaults are read if COLUMNS has `column_default` and `extra`, and `dialect` is given. Of `generation_expression`,
    only period columns are used.
    """
    parts: dict[TableName, list[ColumnDefinition]] = {}
    for row in columns:
        name = (str(row["table_schema"]), str(row["table_name"]))
        parts.setdefault(name, []).append(_shown(row, dialect))
    keys: dict[TableName, dict[str, list[str]]] = {}
    unique: set[tuple[TableName, str]] = set()
    for row in statistics:
        name, index = (str(row["table_schema"]), str(row["table_name"])), str(row["index_name"])
        column = row["column_name"]
        keys.setdefault(name, {}).setdefault(index, []).append("" if column is None else str(column))
        if not int(str(row["non_unique"])):
            unique.add((name, index))
    found: dict[TableName, TableDefinition] = {}
    for row in tables:
        name, charset = (str(row["table_schema"]), str(row["table_name"])), row["character_set_name"]
        found[name] = TableDefinition(
            columns=tuple(parts.get(name, ())),
            keys=tuple(
                Key(
                    name=index,
                    kind="primary" if index == "PRIMARY" else "unique" if (name, index) in unique else "plain",
                    columns=tuple(names),
                )
                for index, names in keys.get(name, {}).items()
            ),
            charset=None if charset is None else str(charset),
            collation=_text(row.get("table_collation")),
            engine=str(row.get("engine") or ""),
            sequence=row.get("table_type") == "SEQUENCE",
            versioned=period(parts.get(name, ())) if row.get("table_type") == "SYSTEM VERSIONED" else None,
        )
    schemata = list(schemata)
    databases = {str(row["schema_name"]): str(row["default_character_set_name"]) for row in schemata}
    collations = {
        str(row["schema_name"]): str(row["default_collation_name"])
        for row in schemata
        if row.get("default_collation_name")
    }
    return Catalog(default_charset=default_charset, databases=databases, collations=collations, tables=found)


def _shown(row: Row, dialect: Dialect | None) -> ColumnDefinition:
    """Return a column from a row of COLUMNS."""
    charset = row["character_set_name"]
    initial, known = shown_initial(row, dialect) if dialect and "column_default" in row else (None, False)
    return column_definition(
        name=str(row["column_name"]),
        column_type=str(row["column_type"]),
        nullable=row["is_nullable"] == "YES",
        charset=None if charset is None else str(charset),
        collation=_text(row.get("collation_name")),
        rest=_PERIODS.get(str(row.get("generation_expression") or "").upper())
        or _rest(str(row.get("extra") or "").upper()),
        initial=initial,
        initial_known=known,
    )


def _rest(extra: str) -> str:
    """Return the part of EXTRA that `ingest.ddl.rewrites` needs. The expression of a generated column is not known."""
    if "GENERATED" in extra and "DEFAULT_GENERATED" not in extra:
        return "AS (?)"
    return "AUTO_INCREMENT" if "AUTO_INCREMENT" in extra else ""


def _text(value: object) -> str | None:
    return None if value is None else str(value)

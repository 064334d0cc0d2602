"""Track the tables of a source and their schema history up to the current position in its log.

Decoders look up columns that the log does not name; the publisher looks up schemas and keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc.model.errors import Skippable
from cdc.model.escapes import meanings
from cdc.model.event import Position
from cdc.model.filters import TableRule, shape_of
from cdc.model.history import History, SchemaChange, history_from_records, records
from cdc.model.history import Record as HistoryRecord
from cdc.model.identifiers import fold_identifier
from cdc.model.naming import distinguished, escaped_table
from cdc.model.schema import Column, TableId, TableSchema
from ingest.binlog.format.columns import ColumnHint, LoggedColumn
from ingest.binlog.reading.effects import TableEffect, effects
from ingest.ddl.catalog import Catalog, Key
from ingest.ddl.dialect import Dialect
from ingest.ddl.schema_history import Followed, adopted, begun, catalog_at, follow, reported
from ingest.events.changed import TablesChanged
from ingest.events.columns import same_columns
from ingest.events.hidden import Trim, hints_of, trim_of
from ingest.events.left_out import Kind, LeftOutTable, Refused, absent, refused_kind, unnamed
from ingest.events.log_events import Row, StatementLogged, TableAltered, TableDescribed
from ingest.events.published import not_captured, published
from ingest.events.restricted import Restriction

_LONGEST_PAUSE = 600.0  # seconds between attempts to read a table that cannot be read
_WORD = re.compile(r"[\w$]+")
_BEGINNING = Position(file="", pos=0, gtid_set="", sequence=0)


class Tables:
    """Tables of one source at its current log position. `captured(database, table)` applies the topology's filters.

    `listed`: tables in the topology, existing or not. `kinds`: type and engine of the server's relations. `refused`:
    tables that cannot be captured → (reason, remedy). `passed`: tables that are left out, by `database.table`;
    `reported`: those already logged. `unsettled`: the set of tables that are left out may have changed. `restriction`
    is what a policy of the host lets leave of their definitions; None: all.
    """

    def __init__(
        self,
        source: str,
        databases: Iterable[str],
        captured: Callable[[str, str], bool],
        dialect: Dialect,
        default_charset: str | None = None,
        rule_of: Callable[[TableId], TableRule | None] = lambda table: None,
        listed: Iterable[TableId] = (),
        kinds: Mapping[tuple[str, str], Kind] | None = None,
        refused: Refused | None = None,
        restriction: Restriction | None = None,
    ) -> None:
        self._rule_of, self.restriction = rule_of, restriction
        self._listed, self._kinds, self._refused = frozenset(listed), dict(kinds or {}), dict(refused or {})
        self.passed, self.reported, self.unsettled = dict[str, LeftOutTable](), set[str](), True
        self._unread, self._pause, self._again = dict[TableId, Skippable](), 0.0, 0.0
        self.source, self._captured = source, captured
        self.databases = frozenset(fold_identifier(database) for database in databases)
        # database names that are not plain words, as they appear in quotes
        self._odd = [name.replace(q, 2 * q) for name in self.databases if not _WORD.fullmatch(name) for q in '`"']
        self._dialect, self._default_charset = dialect, default_charset
        self.history, self.catalog = History(), Catalog(default_charset=default_charset)
        self.postponed = frozenset[tuple[str, str]]()  # not captured before a snapshot reads them, see `log_scan`
        self.written = 0  # history records since the history was last rewritten
        self._unknown, self._shown = True, dict[TableId, tuple[str, ...]]()

    def captured(self, database: str, table: str) -> bool:
        """Return whether a table is captured. Names are as in the log, a statement or the topology."""
        return (name := self._dialect.table_name(database, table)) not in self.postponed and self._captured(*name)

    def effects(self, event: StatementLogged) -> list[TableEffect]:
        """Return a statement's effects on whole tables, with names as the server stores them."""
        name = self._dialect.table_name
        found: list[TableEffect] = []
        for effect in effects(event.database, event.sql):
            (database, table), to = name(effect.database, effect.table), effect.to and name(*effect.to)
            found.append(replace(effect, database=database, table=table, to=to))
        return found

    def begin(self, catalog: Catalog) -> TablesChanged:
        """Start the schema history with the tables in the server's catalog."""
        change = begun(catalog, self.source, _BEGINNING)
        self.history, self.catalog = History().record(change), catalog
        return self._changed(change)

    def restore(self, found: Iterable[HistoryRecord], position: Position) -> None:
        """Load the schema history from its records, and move to a position."""
        self.history = history_from_records(found, self.source)
        self.catalog = catalog_at(self.history, self.source, position, self._default_charset)
        self._unknown = self.unsettled = True

    def forget(self, position: Position) -> None:
        """Drop the history before a position. No reader returns to before it."""
        self.history, self.written = self.history.since(position), 0

    def concerns(self, database: str, sql: str) -> bool:
        """Return whether a statement may affect a database with captured tables. It may return True for others."""
        low = fold_identifier(sql[:100_000])
        return (
            fold_identifier(database) in self.databases
            or any(word in self.databases for word in _WORD.findall(low))
            or any(name in low for name in self._odd)
        )

    def schema_at(self, table: tuple[str, str], position: Any) -> Sequence[ColumnHint] | None:
        """Return a captured table's current columns, or None if unknown. Implements `ingest.binlog.SchemaSource`."""
        known = self.catalog.tables.get(self._dialect.table_name(*table)) if self.captured(*table) else None
        if known is None:
            return None
        hints = hints_of(known, self._dialect)
        by_name = (self._rule_of(self.id_of(table)) or TableRule()).by_name
        return [replace(hint, name="") for hint in hints] if by_name else hints

    def trim(self, table: TableId, columns: Sequence[LoggedColumn]) -> Trim | None:
        """Return what to remove from rows of a table that are logged with these columns; None if nothing."""
        return trim_of(self.catalog.tables.get((table.database, table.table)), columns)

    def schema(self, table: TableId) -> TableSchema:
        """Return the published schema of a table now. Raises Skippable with the reason if it cannot be published."""
        state = self.history.last_state(table)
        if state is None or state.schema is None:
            why = state.unknown if state and state.unknown else "it is not known"
            raise Skippable(f"the columns of table {table} are not known: {why}", "`tailorbird schema set`")
        if why_not := self._refused.get((table.database, table.table)):
            raise Skippable(*why_not)
        self._refuse_kind(table)
        return self._published(state.schema)

    def why_left_out(self, table: TableId) -> Skippable | None:
        """Return why a table is left out. None if its rows are published, or in quarantine."""
        name = (table.database, table.table)
        if name in self._refused:
            return Skippable(*self._refused[name])
        if name not in self.catalog.tables:
            wanted = table in self._listed and name not in self.catalog.unknown
            return absent(table, self._kinds.get(name)) if wanted else None
        try:
            self.schema(table)
        except Skippable as error:
            return error
        return self._unread.get(table)

    def left_out(self) -> dict[TableId, Skippable]:
        """Return all tables that are left out, with the reasons; sequences only if the topology lists them."""
        known = [self.id_of(name) for name in (*self.catalog.tables, *self._refused) if self.captured(*name)]
        found: dict[TableId, Skippable] = {}
        for table in sorted({*known, *self._listed}, key=str):
            why = self.why_left_out(table)
            if why is not None and (table in self._listed or not self._is_sequence(table)):
                found[table] = why
        return found

    def pass_over(self, table: TableId, why: Skippable, rows: int, ms: int) -> None:
        """Count skipped rows of a table that is left out. `ms` is their commit time at the source."""
        if self._is_sequence(table) and table not in self._listed:
            return
        name = table.name
        held = self.passed.get(name)
        since, before = (held["since_ms"], held["rows"]) if held else (ms, 0)
        self.passed[name] = LeftOutTable(since_ms=since, rows=before + rows, why=why.message, remedy=why.hint)
        self.unsettled = self.unsettled or held is None

    def cannot_read(self, tables: Mapping[TableId, Skippable], now: float, ask: float) -> None:
        """Leave out tables that a snapshot could not read. They are retried after a pause that grows each time."""
        self._unread |= tables
        self._pause = min(max(6 * ask, 2 * self._pause), _LONGEST_PAUSE)
        self._again, self.unsettled = now + self._pause, True

    def try_again(self, now: float) -> None:
        """Stop leaving out tables that could not be read, if their pause is over."""
        if self._unread and now >= self._again:
            self._unread.clear()
            self.unsettled = True

    def show(self, kinds: Mapping[tuple[str, str], Kind], refused: Refused | None) -> None:
        """Set type and engine of the server's relations, and (unless None) which tables cannot be captured."""
        refused = dict(self._refused if refused is None else refused)
        self.unsettled = self.unsettled or (self._kinds, self._refused) != (kinds, refused)
        self._kinds, self._refused = dict(kinds), refused

    def unnamed(self, table: TableId) -> None:
        """Leave out a table of which the log does not name the columns, if its rows may only be decoded by name."""
        name = (table.database, table.table)
        if (self._rule_of(table) or TableRule()).by_name and name not in self._refused:
            self._refused[name], self.unsettled = unnamed(table), True

    @property
    def asks(self) -> list[TableId]:
        """Return the captured tables to look up on the server: left out, or with unknown columns or engine."""
        unknown = [name for name in self.catalog.unknown if self.captured(*name)]
        unkind = [
            name
            for name, table in self.catalog.tables.items()
            if self._kinds and not table.engine and name not in self._kinds and self.captured(*name)
        ]
        found = [TableId(source=self.source, database=d, table=t) for d, t in (*unknown, *unkind)]
        return [*found, *(table for table in map(self.named, self.passed) if table not in found)]

    def _is_sequence(self, table: TableId) -> bool:
        known = self.catalog.tables.get(name := (table.database, table.table))
        return (known is not None and known.sequence) or self._kinds.get(name, ("", ""))[0].upper() == "SEQUENCE"

    def _refuse_kind(self, table: TableId) -> None:
        known = self.catalog.tables.get(name := (table.database, table.table))
        engine = (known.engine if known else "") or self._kinds.get(name, ("", ""))[1] or ""
        if why := refused_kind(table, engine, sequence=self._is_sequence(table)) or self._without_topic(table):
            raise why

    def _without_topic(self, table: TableId) -> Skippable | None:
        """Return why Kafka refuses the table's topic: another table's topic differs from it only in `.` and `_`."""
        if len(self.databases) < 2:
            return None
        topic, own = distinguished(escaped_table(table)), (table not in self._listed, table.name)
        for other in (self.id_of(name) for name in self.catalog.tables if name[0] != table.database):
            first = (other not in self._listed, other.name) < own and self.captured(other.database, other.table)
            if first and distinguished(escaped_table(other)) == topic:
                return Skippable(
                    f"table {table}: Kafka cannot distinguish its topic from that of {other}",
                    "capture one of the two only (under `filter_policy: accept`, list the other without options)",
                )
        return None

    def read_schema(self, table: TableId) -> TableSchema:
        """Return `schema` with the server's types of masked columns, for snapshots, which mask after reading."""
        published = self.schema(table)
        kept = {column.name for column in published.columns}
        return replace(published, columns=tuple(c for c in self.catalog_columns(table) if c.name in kept))

    def catalog_columns(self, table: TableId) -> tuple[Column, ...]:
        """Return all columns of a table, including ignored ones. Raises Skippable as `schema` does."""
        self.schema(table)
        state = self.history.last_state(table)
        assert state is not None, "it has a schema"
        assert state.schema is not None, "it has a schema"
        return state.schema.columns

    def named(self, name: str) -> TableId:
        """Return the table that `database.table` means in signals and checkpoints.

        Names may contain dots: the split that names a captured table is chosen, otherwise that at the first dot.
        """
        whole, *splits = meanings(name, "")
        splits = splits or [whole]
        return self.id_of(next((split for split in splits if self.captured(*split)), splits[0]))

    def id_of(self, name: tuple[str, str]) -> TableId:
        """Return a table's id from its database and name, as the log, a statement or the topology writes them."""
        database, table = self._dialect.table_name(*name)
        return TableId(source=self.source, database=database, table=table)

    def exists(self, table: TableId) -> bool:
        """Return whether a table exists at the current position, even if its columns are not known."""
        name = (table.database, table.table)
        return name in self.catalog.tables or name in self.catalog.unknown

    def shape(self, table: TableId) -> Callable[[Row], None] | None:
        """Return the function that removes and masks columns of an image in place; None if there is nothing to do.

        It removes ignored columns and those whose type is not captured.
        """
        rule = self._rule_of(table) or TableRule(exact_case=True)
        state = self.history.last_state(table)
        if state is not None and state.schema is not None:
            untyped = [column.name for column in not_captured(state.schema)]
            rule = replace(rule, ignored_columns=(*rule.ignored_columns, *untyped))
        return shape_of(rule)

    def hides(self, table: TableId, *columns: str) -> bool:
        """Return whether columns of a table are ignored or masked: any of `columns`; if none are given, any at all."""
        rule = self._rule_of(table)
        if rule is None or not columns:
            return rule is not None and shape_of(rule) is not None
        return any(rule.hides(column) for column in columns)

    def where(self, table: TableId) -> str:
        """Return the condition that limits the rows of a table's first snapshot; empty if there is none."""
        rule = self._rule_of(table)
        return rule.where if rule else ""

    def adopt(self, catalog: Catalog, position: Position) -> TablesChanged:
        """Replace all known tables by those of the server's catalog, from a position on."""
        change = adopted(self.history, self.catalog, catalog, source=self.source, position=position)
        self.history, self.catalog = self.history.record(change), catalog
        return self._changed(change)

    def publishable(self, table: TableId) -> Iterator[TableSchema]:
        """Yield the schema of a table if it is captured and can be published; otherwise nothing."""
        if self.captured(table.database, table.table):
            try:
                yield self.schema(table)
            except Skippable:
                return

    @property
    def can_be_read(self) -> bool:
        """Return whether the source is a database with tables to read, and not a stream of messages."""
        return self._dialect.server in ("mysql", "mariadb", "postgresql")

    def schemas(self) -> Iterator[TableSchema]:
        """Yield the schemas of all captured tables that can be published."""
        for database, name in sorted(self.catalog.tables):
            if self.captured(database, name):
                yield from self.publishable(self.id_of((database, name)))

    def take_left_out(self) -> list[TableSchema]:
        """Return schemas with columns of unsupported types, each only once until these columns change."""
        if not self._unknown:
            return []
        self._unknown = False
        before, schemas = self._shown, list(self.schemas())
        self._shown = {schema.table_id: tuple(name for name, _ in schema.left_out) for schema in schemas}
        return [s for s in schemas if s.left_out and self._shown[s.table_id] != before.get(s.table_id)]

    def statement(self, event: StatementLogged, position: Position) -> TablesChanged:
        """Apply a statement. `position` is the one after it; a change of a table takes its sequence number."""
        dialect, limit = self._dialect.in_mode_bits(event.sql_mode), self.restriction
        known = {name for name in (*self.catalog.tables, *self.catalog.unknown) if self.captured(*name)}
        followed = follow(
            self.history, self.catalog, event.sql, source=self.source, position=position,
            database=dialect.database_name(event.database), dialect=dialect, session=event.session,
            shown=limit.catalog if limit else None, keeps=limit.keeps if limit else None,
        )  # fmt: skip
        found = self.effects(event)
        made = {(effect.database, effect.table) for effect in found if effect.kind == "create"}
        touched = tuple(  # a table that CREATE OR REPLACE drops exists afterwards, and is empty
            replace(effect, kind="truncate") if (effect.database, effect.table) in made else effect
            for effect in found
            if effect.kind != "create" and (self._ours(effect, known) or effect.kind == "drop_database")
        )
        rewritten = (name for name in followed.rewritten if self.captured(*name))
        return replace(self._took(followed), effects=touched, rewritten=tuple(map(self.id_of, rewritten)))

    def described(self, event: TableDescribed, position: Position) -> TablesChanged:
        """Apply columns and key that the log or an operator states. It ends a quarantine, or changes nothing."""
        if self.restriction:
            event = event._replace(columns=self.restriction.columns(event.table, event.columns))
        known = self.catalog.tables.get((event.table.database, event.table.table))
        if known is not None and (known.primary_key == event.primary_key or not event.primary_key):
            held = known.schema(event.table, 0)
            if same_columns(held.columns, event.columns):
                return TablesChanged()
        return self._took(
            reported(self.history, self.catalog, event.table, event.columns, event.primary_key, position=position)
        )

    def altered(self, event: TableAltered, position: Position) -> TablesChanged:
        """Apply a server's definition of a table from a position on. A known definition changes nothing."""
        name = (event.table.database, event.table.table)
        if self.catalog.tables.get(name) == event.definition:
            return TablesChanged()
        return self.adopt(self.catalog.with_table(name, event.definition), position)

    def _ours(self, effect: TableEffect, known: set[tuple[str, str]]) -> bool:
        return (effect.database, effect.table) in known or (effect.to is not None and self.captured(*effect.to))

    def _took(self, followed: Followed) -> TablesChanged:
        self.history, self.catalog = followed.history, followed.catalog
        return self._changed(followed.change) if followed.change else TablesChanged()

    def _changed(self, change: SchemaChange) -> TablesChanged:
        self._unknown = self.unsettled = True
        schemas: list[TableSchema] = []
        refused: dict[TableId, str] = {}
        for state in change.tables:
            if not self.captured(state.table_id.database, state.table_id.table):
                continue
            if state.schema is None and not state.unknown:
                self._kinds.pop((state.table_id.database, state.table_id.table), None)
                continue
            try:
                schemas.append(self.schema(state.table_id))
            except Skippable as error:
                refused[state.table_id] = str(error)
        written = tuple(records(self.restriction.stored(change) if self.restriction else change))
        self.written += len(written)
        return TablesChanged(history=written, schemas=tuple(schemas), refused=refused, numbered=True)

    def _published(self, schema: TableSchema) -> TableSchema:
        return published(schema, self._keys(schema), self._rule_of(schema.table_id))

    def is_unique(self, schema: TableSchema) -> bool:
        """Return whether record keys of a table are unique. Otherwise reading in chunks along the key may miss rows."""
        nullable = {column.name for column in schema.columns if column.nullable}
        return not nullable & set(schema.primary_key) and any(
            key.kind in ("primary", "unique") and set(key.columns) == set(schema.primary_key)
            for key in self._keys(schema)
        )

    def _keys(self, schema: TableSchema) -> tuple[Key, ...]:
        known = self.catalog.tables.get((schema.table_id.database, schema.table_id.table))
        return known.keys if known else ()

"""Track the tables of a source and their schema history up to the current position in its log.

Decoders look up columns that the log does not name; the publisher looks up schemas and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc.model.errors import Skippable
from cdc.model.event import Position
from cdc.model.filters import TableRule, shape_of
from cdc.model.history import ChangeRecords, History, SchemaChange, history_from_records
from cdc.model.history import Record as HistoryRecord
from cdc.model.patterns import MergedTable
from cdc.model.schema import Column, TableId, TableSchema
from cdc.persistent import changed_keys
from ingest.binlog.format.columns import ColumnHint, LoggedColumn
from ingest.binlog.reading.effects import TableEffect
from ingest.ddl.catalog import Catalog, Key, TableName, with_former
from ingest.ddl.dialect import Dialect
from ingest.ddl.schema_history import Followed, adopted, begun, catalog_at, follow, reported
from ingest.events.changed import TablesChanged
from ingest.events.columns import same_columns
from ingest.events.hidden import Trim, hints_of, trim_of
from ingest.events.known_tables import KnownTables
from ingest.events.left_out import Kind, Refused, SkippedTables, TopicNames, absent, refused_kind, unnamed
from ingest.events.log_events import Row, StatementLogged, TableAltered, TableDescribed
from ingest.events.published import MergedSchemas, not_captured, published
from ingest.events.restricted import Restriction

_BEGINNING = Position(file="", pos=0, gtid_set="", sequence=0)


class Tables(KnownTables, SkippedTables):
    """Tables of one source at its current log position, with their schema history.

    `listed`: tables in the topology, existing or not. `kinds`: type and engine of the server's relations. `refused`:
    tables that cannot be captured → (reason, remedy). `restriction` is what a policy of the host lets leave of their
    definitions; None: all.
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
        merged: Iterable[MergedTable] = (),
    ) -> None:
        self.merged = MergedSchemas(merged := tuple(merged))
        self._rule_of, self.restriction = rule_of, restriction
        self._listed, self._kinds, self._refused = frozenset(listed), dict(kinds or {}), dict(refused or {})
        KnownTables.__init__(self, source, databases, captured, dialect, default_charset, merged)
        SkippedTables.__init__(self)
        self._topics, self._engineless = TopicNames(), set[TableName]()  # tables whose engine no statement names
        self.history = History()
        self.written = 0  # history records since the history was last rewritten
        # tables with new columns since `take_left_out`; None: all. And their columns that it returned last.
        self._retyped: set[TableId] | None = None
        self._shown = dict[TableId, tuple[tuple[str, str], ...]]()
        # by table: the schema on the server and the keys, and the schema that is published for them
        self._derived = dict[TableId, tuple[TableSchema, tuple[Key, ...], TableSchema]]()
        self._fit = frozenset[TableId]()  # tables of merged tables that may fit now, or no longer

    def _catalog_changed(self, before: Catalog) -> None:
        for name in changed_keys(before.tables, self.catalog.tables):
            table, new = self.id_of(name), self.catalog.tables.get(name)
            self._engineless.discard(name)
            if new is not None and not new.engine:
                self._engineless.add(name)
            if new is None:
                self._derived.pop(table, None)
            if (new is None or name not in before.tables) and len(self.databases) > 1:
                (self._topics.remove if new is None else self._topics.add)(table)
                self.decide_again(self._topics.others(table))
            self.decide_again((table,))
            if self.merged.contains(table):
                state = self.history.last_state(table)
                self._fit |= self.merged.put(table, None if state is None else state.schema, self._published)
        self.decide_again(self._fit)
        self.decide_again(map(self.id_of, changed_keys(before.unknown, self.catalog.unknown)))

    def begin(self, catalog: Catalog) -> TablesChanged:
        """Start the schema history with the tables in the server's catalog."""
        change = begun(catalog, self.source, _BEGINNING)
        self.history, self.catalog = History().record(change), catalog
        return self._changed(change)

    def restore(self, found: Iterable[HistoryRecord], position: Position) -> None:
        """Load the schema history from its records, and move to a position."""
        self.history = history_from_records(found, self.source)
        self.catalog = catalog_at(self.history, self.source, position, self._default_charset)
        self._retyped = None
        self.decide_again(None)

    def forget(self, position: Position) -> None:
        """Drop the history before a position. No reader returns to before it."""
        self.history, self.written = self.history.since(position), 0

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
        found = self._published(state.schema)
        self.merged.refuse(found)
        return found

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

    def left_out(self, among: Iterable[TableId] | None = None) -> dict[TableId, Skippable]:
        """Return the tables that are left out, with the reasons; sequences only if the topology lists them.

        `among`: only these tables are looked at; None: all.
        """
        if among is None:
            among = {*map(self.id_of, (*self.catalog.tables, *self._refused)), *self._listed}
        found: dict[TableId, Skippable] = {}
        for table in sorted(filter(self._may_be_left_out, among), key=str):
            why = self.why_left_out(table)
            if why is not None and (table in self._listed or not self._is_sequence(table)):
                found[table] = why
        return found

    def _may_be_left_out(self, table: TableId) -> bool:
        name = (table.database, table.table)
        known = name in self.catalog.tables or name in self._refused
        return table in self._listed or (known and self.captured(*name))

    def pass_over(self, table: TableId, why: Skippable, rows: int, ms: int) -> None:
        """Count skipped rows of a table that is left out. `ms` is their commit time at the source."""
        if not self._is_sequence(table) or table in self._listed:
            self.skip(table, why, rows, ms)

    def show(self, kinds: Mapping[tuple[str, str], Kind], refused: Refused | None) -> None:
        """Set type and engine of the server's relations, and (unless None) which tables cannot be captured."""
        refused = dict(self._refused if refused is None else refused)
        changed = {name for name, _ in {*self._kinds.items()} ^ {*kinds.items()}}
        changed |= {name for name, _ in {*self._refused.items()} ^ {*refused.items()}}
        self._kinds, self._refused = dict(kinds), refused
        self.decide_again(map(self.id_of, changed))

    def unnamed(self, table: TableId) -> None:
        """Leave out a table of which the log does not name the columns, if its rows may only be decoded by name."""
        name = (table.database, table.table)
        if (self._rule_of(table) or TableRule()).by_name and name not in self._refused:
            self._refused[name] = unnamed(table)
            self.decide_again((table,))

    @property
    def asks(self) -> list[TableId]:
        """Return the captured tables to look up on the server: left out, or with unknown columns or engine."""
        unknown = [name for name in self.catalog.unknown if self.captured(*name)]
        unkind = [
            name
            for name in sorted(self._engineless if self._kinds else ())
            if name not in self._kinds and self.captured(*name)
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
        own = (table not in self._listed, table.name)
        for other in sorted(self._topics.others(table)):
            first = (other not in self._listed, other.name) < own and self.captured(other.database, other.table)
            if first and other.database != table.database:
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
        retyped, self._retyped = self._retyped, set()
        before = {table: self._shown.pop(table, ()) for table in (retyped if retyped is not None else [*self._shown])}
        schemas = self.schemas() if retyped is None else (s for t in sorted(retyped) for s in self.publishable(t))
        found = [schema for schema in schemas if schema.left_out]
        self._shown |= {schema.table_id: schema.left_out for schema in found}
        return [s for s in found if [n for n, _ in s.left_out] != [n for n, _ in before.get(s.table_id, ())]]

    def statement(self, event: StatementLogged, position: Position) -> TablesChanged:
        """Apply a statement. `position` is the one after it; a change of a table takes its sequence number."""
        dialect, limit = self._dialect.in_mode_bits(event.sql_mode), self.restriction
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
            if effect.kind != "create" and (self._ours(effect) or effect.kind == "drop_database")
        )
        existed = self._concerned(followed, found)
        before = {schema.table_id: schema for table in existed for schema in self.publishable(table)}
        rewritten = tuple(self.id_of(name) for name in followed.rewritten if self.captured(*name))
        return replace(
            self._took(followed), effects=touched, rewritten=rewritten, existed=existed, before=before
        )  # fmt: skip

    def _concerned(self, followed: Followed, effects: Iterable[TableEffect]) -> tuple[TableId, ...]:
        """Return the captured tables, existing before a statement, that it changes or names."""
        names = changed_keys(self.catalog.tables, followed.catalog.tables)
        names |= changed_keys(self.catalog.unknown, followed.catalog.unknown)
        for effect in effects:
            names |= {(effect.database, effect.table), *([effect.to] if effect.to else [])}
        tables = {self.id_of(name) for name in names if self.captured(*name)}
        return tuple(sorted(filter(self.exists, tables)))

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
        known = self.catalog.tables.get(name)
        if known == with_former(known, event.definition):
            return TablesChanged()
        return self.adopt(self.catalog.with_table(name, event.definition), position)

    def _ours(self, effect: TableEffect) -> bool:
        table = self.id_of((effect.database, effect.table))
        ours = self.captured(table.database, table.table) and self.exists(table)
        return ours or (effect.to is not None and self.captured(*effect.to))

    def _took(self, followed: Followed) -> TablesChanged:
        self.history, self.catalog = followed.history, followed.catalog
        return self._changed(followed.change) if followed.change else TablesChanged()

    def _changed(self, change: SchemaChange) -> TablesChanged:
        tables = [state.table_id for state in change.tables]
        if self._retyped is not None:
            self._retyped.update(tables)
        self.decide_again(tables)
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
        written = ChangeRecords(self.restriction.stored(change) if self.restriction else change)
        self.written += len(written)
        concerned = frozenset(tables).union(self._fit, *map(self._topics.others, tables))
        self._fit, merged = frozenset(), self.merged.take_changed()
        return TablesChanged(
            history=written, schemas=tuple(schemas), refused=refused, numbered=True, tables=concerned, merged=merged
        )  # fmt: skip

    def _published(self, schema: TableSchema) -> TableSchema:
        table, keys = schema.table_id, self._keys(schema)
        known = self._derived.get(table)
        if known is None or known[0] is not schema or known[1] is not keys:
            known = self._derived[table] = schema, keys, published(schema, keys, self._rule_of(table))
        return known[2]

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

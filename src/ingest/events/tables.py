"""Track a source's tables and their schema history up to the position at which its log is being read.

The decoder asks for columns that the log does not name, the publisher for schemas and keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cdc.model.errors import Skippable
from cdc.model.escapes import meanings
from cdc.model.event import Position
from cdc.model.filters import TableRule, shape_of
from cdc.model.history import History, SchemaChange, history_from_records, records
from cdc.model.history import Record as HistoryRecord
from cdc.model.naming import distinguished, escaped_table
from cdc.model.schema import Column, TableId, TableSchema
from ingest.binlog.format.columns import ColumnHint, LoggedColumn
from ingest.binlog.reading.effects import TableEffect, effects
from ingest.ddl.catalog import Catalog, Key
from ingest.ddl.dialect import Dialect
from ingest.ddl.schema_history import Followed, adopted, begun, catalog_at, follow, reported
from ingest.events.columns import same_columns
from ingest.events.hidden import Trim, hints_of, trim_of
from ingest.events.left_out import Kind, LeftOut, absent, refused_kind
from ingest.events.log_events import Row, StatementLogged, TableAltered, TableDescribed
from ingest.events.published import not_captured, published

_LONGEST_PAUSE = 600.0  # seconds between attempts to read a table that cannot be read
_WORD = re.compile(r"[\w$]+")
_BEGINNING = Position(file="", pos=0, gtid_set="", sequence=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesChanged:
    """What became of a statement or of metadata: records of the history, schemas to publish, effects on whole tables.

    `numbered` says whether it took a number of the sequence; `refused` maps captured tables that are in quarantine from
    here on to the reason. `rewritten` are captured tables of which only the server knows what a statement made of their
    rows.
    """

    history: tuple[HistoryRecord, ...] = ()
    schemas: tuple[TableSchema, ...] = ()
    effects: tuple[TableEffect, ...] = ()
    refused: Mapping[TableId, str] | None = None
    numbered: bool = False
    rewritten: tuple[TableId, ...] = ()


class Tables:
    """The tables of one source. `captured` says which tables' rows are wanted, `databases` are those it follows.

    `listed` are those that the topology names, there or not; `kinds` what the server shows of each relation now, where
    its log does not tell it; `refused` which tables its capture leaves out, and why. `passed` are the tables that are
    left out, by `database.table`, `reported` those of them that were told of; `unsettled` says that it may be others
    now.
    """

    def __init__(
        self,
        source: str,
        databases: Iterable[str],
        captured: Callable[[str, str], bool],
        dialect: Dialect,
        default_charset: str | None = None,
        rules: Mapping[TableId, TableRule] | None = None,
        listed: Iterable[TableId] = (),
        kinds: Mapping[tuple[str, str], Kind] | None = None,
        refused: Mapping[tuple[str, str], tuple[str, str]] | None = None,
    ) -> None:
        self._rules = rules or {}
        self._listed, self._kinds, self._refused = frozenset(listed), dict(kinds or {}), dict(refused or {})
        self.passed, self.reported, self.unsettled = dict[str, LeftOut](), set[str](), True
        self._unread: dict[TableId, Skippable] = {}
        self._pause = self._again = 0.0
        self.source, self._captured = source, captured
        self.databases = frozenset(database.lower() for database in databases)
        # names that are no word, as they stand in quotes
        self._odd = [name.replace(q, 2 * q) for name in self.databases if not _WORD.fullmatch(name) for q in '`"']
        self._dialect, self._default_charset = dialect, default_charset
        self.history, self.catalog = History(), Catalog(default_charset=default_charset)
        self.written = 0  # records of the history since it was last read or restated
        self._unknown, self._shown = True, dict[TableId, tuple[str, ...]]()

    def captured(self, database: str, table: str) -> bool:
        """Whether a table's rows are wanted; names as the log, a statement or the topology writes them."""
        return self._captured(*self._dialect.table_name(database, table))

    def effects(self, event: StatementLogged) -> list[TableEffect]:
        """What a statement does to whole tables, under their names here."""
        name = self._dialect.table_name
        found: list[TableEffect] = []
        for effect in effects(event.database, event.sql):
            (database, table), to = name(effect.database, effect.table), effect.to and name(*effect.to)
            found.append(replace(effect, database=database, table=table, to=to))
        return found

    def begin(self, catalog: Catalog) -> TablesChanged:
        """Take what the server shows now as the beginning of the history."""
        change = begun(catalog, self.source, _BEGINNING)
        self.history, self.catalog = History().record(change), catalog
        return self._changed(change)

    def restore(self, found: Iterable[HistoryRecord], position: Position) -> None:
        """Take the history that a log holds, and stand where the position is."""
        self.history = history_from_records(found, self.source)
        self.catalog = catalog_at(self.history, self.source, position, self._default_charset)
        self._unknown = self.unsettled = True

    def forget(self, position: Position) -> None:
        """Nobody returns to a place before the position any more."""
        self.history, self.written = self.history.since(position), 0

    def concerns(self, database: str, sql: str) -> bool:
        """Whether a statement is about a followed database, at first sight."""
        low = sql[:100_000].lower()
        return (
            database.lower() in self.databases
            or any(word in self.databases for word in _WORD.findall(low))
            or any(name in low for name in self._odd)
        )

    def schema_at(self, table: tuple[str, str], position: Any) -> Sequence[ColumnHint] | None:
        """The decoder's question (`ingest.binlog.SchemaSource`): a table's columns where the log is being read."""
        known = self.catalog.tables.get(self._dialect.table_name(*table)) if self.captured(*table) else None
        if known is None:
            return None
        return hints_of(known, self._dialect)

    def trim(self, table: TableId, columns: Sequence[LoggedColumn]) -> Trim | None:
        """What is to be taken from the rows of a table that are logged with these columns; None where nothing is."""
        return trim_of(self.catalog.tables.get((table.database, table.table)), columns)

    def schema(self, table: TableId) -> TableSchema:
        """The schema that rows have here. Skippable, with the reason, when they cannot be published under any."""
        state = self.history.last_state(table)
        if state is None or state.schema is None:
            why = state.unknown if state and state.unknown else "it is not known"
            raise Skippable(f"the columns of table {table} are not known: {why}", "`tailorbird schema set`")
        if why_not := self._refused.get((table.database, table.table)):
            raise Skippable(*why_not)
        self._refuse_kind(table)
        return self._published(state.schema)

    def why_left_out(self, table: TableId) -> Skippable | None:
        """Why no row of a table can be published whatever the log says; None where rows are published, or kept until
        its columns are known."""
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
        """All tables that are left out here, with the reasons; sequences only where the topology lists them."""
        known = [self.id_of(name) for name in (*self.catalog.tables, *self._refused) if self.captured(*name)]
        found: dict[TableId, Skippable] = {}
        for table in sorted({*known, *self._listed}, key=str):
            why = self.why_left_out(table)
            if why is not None and (table in self._listed or not self._is_sequence(table)):
                found[table] = why
        return found

    def pass_over(self, table: TableId, why: Skippable, rows: int, ms: int) -> None:
        """Rows of a table that is left out were read: the table must be read when it is captured again."""
        if self._is_sequence(table) and table not in self._listed:
            return
        name = table.name
        held = self.passed.get(name)
        since, before = (held["since_ms"], held["rows"]) if held else (ms, 0)
        self.passed[name] = LeftOut(since_ms=since, rows=before + rows, why=why.message, remedy=why.hint)
        self.unsettled = self.unsettled or held is None

    def cannot_read(self, tables: Mapping[TableId, Skippable], now: float, ask: float) -> None:
        """Tables could not be read beside the log: they are left out for a while, each time for longer."""
        self._unread |= tables
        self._pause = min(max(6 * ask, 2 * self._pause), _LONGEST_PAUSE)
        self._again, self.unsettled = now + self._pause, True

    def try_again(self, now: float) -> None:
        """Let tables be read that could not be, if it is time."""
        if self._unread and now >= self._again:
            self._unread.clear()
            self.unsettled = True

    def show_kinds(self, kinds: Mapping[tuple[str, str], Kind]) -> None:
        """What the server shows of its relations now."""
        self.unsettled, self._kinds = self.unsettled or self._kinds != kinds, dict(kinds)

    @property
    def asks(self) -> list[TableId]:
        """Captured tables of which the server may know more than its log told: columns that no statement told, the
        engine of a table that was made without a word about it, the existence of a table that is listed."""
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
        """Why Kafka refuses the table's topic: it differs in `.` and `_` alone from one of a table that is listed, or
        whose name comes first."""
        if len(self.databases) < 2:
            return None
        topic, own = distinguished(escaped_table(table)), (table not in self._listed, table.name)
        for other in (self.id_of(name) for name in self.catalog.tables if name[0] != table.database):
            first = (other not in self._listed, other.name) < own and self.captured(other.database, other.table)
            if first and distinguished(escaped_table(other)) == topic:
                return Skippable(
                    f"table {table}: Kafka does not tell its topic from that of {other}",
                    "capture one of the two only (under `filter_policy: accept`, list the other without a word)",
                )
        return None

    def read_schema(self, table: TableId) -> TableSchema:
        """The same with the types of masked columns: what a snapshot reads before it masks. Skippable as `schema`."""
        published = self.schema(table)
        kept = {column.name for column in published.columns}
        return replace(published, columns=tuple(c for c in self.catalog_columns(table) if c.name in kept))

    def catalog_columns(self, table: TableId) -> tuple[Column, ...]:
        """All columns of a table here, ignored ones too. Skippable as `schema`."""
        self.schema(table)
        state = self.history.last_state(table)
        assert state is not None, "it has a schema"
        assert state.schema is not None, "it has a schema"
        return state.schema.columns

    def named(self, name: str) -> TableId:
        """The table that `database.table` means, in signals and in the states of what is under way.

        A dot may stand in either name, so it is the one that is captured; without one, the first dot parts them.
        """
        whole, *splits = meanings(name, "")
        splits = splits or [whole]
        return self.id_of(next((split for split in splits if self.captured(*split)), splits[0]))

    def id_of(self, name: tuple[str, str]) -> TableId:
        """The id of a table by its database and name, as the log, a statement or the topology writes them."""
        database, table = self._dialect.table_name(*name)
        return TableId(source=self.source, database=database, table=table)

    def exists(self, table: TableId) -> bool:
        """Whether there is such a table here, its columns known or not."""
        name = (table.database, table.table)
        return name in self.catalog.tables or name in self.catalog.unknown

    def shape(self, table: TableId) -> Callable[[Row], None] | None:
        """What takes away ignored columns and those of types that are not captured, and masks others, in place; None
        where nothing is to be done.
        """
        rule = self._rules.get(table) or TableRule(exact_case=True)
        state = self.history.last_state(table)
        if state is not None and state.schema is not None:
            untyped = [column.name for column in not_captured(state.schema)]
            rule = replace(rule, ignored_columns=(*rule.ignored_columns, *untyped))
        return shape_of(rule)

    def hides(self, table: TableId) -> bool:
        """Whether the topology says that columns of a table may not leave as they are."""
        rule = self._rules.get(table)
        return rule is not None and shape_of(rule) is not None

    def where(self, table: TableId) -> str:
        """What limits the rows that a first snapshot reads; empty where nothing does."""
        rule = self._rules.get(table)
        return rule.where if rule else ""

    def adopt(self, catalog: Catalog, position: Position) -> TablesChanged:
        """Take what the server shows now as what holds from a position on, whatever was known before."""
        change = adopted(self.history, self.catalog, catalog, source=self.source, position=position)
        self.history, self.catalog = self.history.record(change), catalog
        return self._changed(change)

    def publishable(self, table: TableId) -> Iterator[TableSchema]:
        """The schema of one table, if it is captured and can be published."""
        if self.captured(table.database, table.table):
            try:
                yield self.schema(table)
            except Skippable:
                return

    @property
    def can_be_read(self) -> bool:
        """Whether the server holds the tables: what topics and messages tell is nowhere else."""
        return self._dialect.server in ("mysql", "mariadb", "postgresql")

    def schemas(self) -> Iterator[TableSchema]:
        """Schemas of all captured tables that can be published."""
        for database, name in sorted(self.catalog.tables):
            if self.captured(database, name):
                yield from self.publishable(self.id_of((database, name)))

    def take_left_out(self) -> list[TableSchema]:
        """Schemas that leave out columns whose type is not captured, each of them once, and again when others are."""
        if not self._unknown:
            return []
        self._unknown = False
        before, schemas = self._shown, list(self.schemas())
        self._shown = {schema.table_id: tuple(name for name, _ in schema.left_out) for schema in schemas}
        return [s for s in schemas if s.left_out and self._shown[s.table_id] != before.get(s.table_id)]

    def statement(self, event: StatementLogged, position: Position) -> TablesChanged:
        """Fold a statement; `position` is the one behind it, with the number it takes if it changes anything."""
        dialect = self._dialect.in_mode_bits(event.sql_mode)
        known = {name for name in (*self.catalog.tables, *self.catalog.unknown) if self.captured(*name)}
        followed = follow(
            self.history, self.catalog, event.sql, source=self.source, position=position,
            database=dialect.database_name(event.database), dialect=dialect, session=event.session,
        )  # fmt: skip
        found = self.effects(event)
        made = {(effect.database, effect.table) for effect in found if effect.kind == "create"}
        touched = tuple(  # what CREATE OR REPLACE drops is there afterwards, and empty
            replace(effect, kind="truncate") if (effect.database, effect.table) in made else effect
            for effect in found
            if effect.kind != "create" and (self._ours(effect, known) or effect.kind == "drop_database")
        )
        rewritten = (name for name in followed.rewritten if self.captured(*name))
        return replace(self._took(followed), effects=touched, rewritten=tuple(map(self.id_of, rewritten)))

    def described(self, event: TableDescribed, position: Position) -> TablesChanged:
        """Fold the log's metadata; it ends a quarantine, and changes nothing where it says what is known."""
        known = self.catalog.tables.get((event.table.database, event.table.table))
        if known is not None and (known.primary_key == event.primary_key or not event.primary_key):
            held = known.schema(event.table, 0)
            if same_columns(held.columns, event.columns):
                return TablesChanged()
        return self._took(
            reported(self.history, self.catalog, event.table, event.columns, event.primary_key, position=position)
        )

    def altered(self, event: TableAltered, position: Position) -> TablesChanged:
        """Fold what a server says a table is from a position on; it changes nothing where that is known."""
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
        written = tuple((key, value) for key, value in records(change))
        self.written += len(written)
        return TablesChanged(history=written, schemas=tuple(schemas), refused=refused, numbered=True)

    def _published(self, schema: TableSchema) -> TableSchema:
        return published(schema, self._keys(schema), self._rules.get(schema.table_id))

    def is_unique(self, schema: TableSchema) -> bool:
        """Whether no two rows share the key that a table is captured under, so that a walk along it misses none."""
        nullable = {column.name for column in schema.columns if column.nullable}
        return not nullable & set(schema.primary_key) and any(
            key.kind in ("primary", "unique") and set(key.columns) == set(schema.primary_key)
            for key in self._keys(schema)
        )

    def _keys(self, schema: TableSchema) -> tuple[Key, ...]:
        known = self.catalog.tables.get((schema.table_id.database, schema.table_id.table))
        return known.keys if known else ()

"""Apply a statement to a catalog: `apply` is the entry point of the DDL parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cdc.model.identifiers import fold_identifier
from cdc.persistent import changed_keys
from ingest.ddl.alter import read_alter
from ingest.ddl.catalog import Catalog, Key, TableDefinition, TableName, with_former, with_keys_applied
from ingest.ddl.create import read_create
from ingest.ddl.cursor import Cursor
from ingest.ddl.dialect import Dialect
from ingest.ddl.elements import key_parts, named, skip_key_options
from ingest.ddl.errors import DdlNotUnderstood
from ingest.ddl.lexer import words_of
from ingest.ddl.options import read_charset_option
from ingest.ddl.rewrites import rewritten

# First words of statements that never change columns.
_PASSED = frozenset(
    """ANALYZE BACKUP BEGIN BINLOG CACHE CALL CHANGE CHECK CHECKSUM CLONE COMMIT DEALLOCATE DECLARE DELETE DESC DESCRIBE
    DO END EXECUTE EXPLAIN FETCH FLUSH GET GRANT HANDLER HELP INSERT INSTALL KILL LOAD LOCK OPTIMIZE PREPARE PURGE
    RELEASE REPAIR REPLACE RESET RESIGNAL RESTART REVOKE ROLLBACK SAVEPOINT SELECT SET SHOW SHUTDOWN SIGNAL START STOP
    TRUNCATE UNINSTALL UNLOCK UPDATE VALUES WITH XA (""".split()
)
# Objects of CREATE, ALTER and DROP other than tables and databases.
_OTHER_THINGS = frozenset(
    """EVENT FUNCTION INSTANCE LIBRARY LOGFILE PACKAGE PROCEDURE RESOURCE ROLE SEQUENCE SERVER SPATIAL_REFERENCE
    TABLESPACE TRIGGER UNDO USER VIEW MATERIALIZED MASKING""".split()
)
_BEFORE_THINGS = frozenset(
    "OR REPLACE DEFINER ALGORITHM SQL SECURITY AGGREGATE ONLINE OFFLINE IGNORE TEMPORARY".split()
)
_INDEX_KINDS = frozenset("UNIQUE FULLTEXT SPATIAL VECTOR INDEX".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Result of a statement.

    `changed` are tables that were created, or that information_schema shows differently. `gone` are dropped tables.
    `error` is why the statement was not understood; `quarantined` are the tables whose columns are therefore unknown.
    `database` is the default database afterwards, which only USE changes. `rewritten` maps tables to columns of which
    only the server knows the new values (`ingest.ddl.rewrites`); `*` means that rows may have been removed.
    """

    catalog: Catalog
    database: str
    changed: Mapping[TableName, TableDefinition] = field(default_factory=dict)
    gone: tuple[TableName, ...] = ()
    quarantined: tuple[TableName, ...] = ()
    error: str | None = None
    rewritten: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)


def apply(catalog: Catalog, sql: str, *, database: str, dialect: Dialect, session: int = 0) -> Applied:
    """Apply a statement that a server has executed. Never raises: a statement that is not understood quarantines
    tables.

    `database` is the session's default database, `session` its id, to which temporary tables belong.
    """
    reader = _Reader(catalog=catalog, database=database, session=session)
    try:
        after = reader.read(Cursor(words_of(sql, dialect), dialect))
    except DdlNotUnderstood as error:
        return _quarantine(catalog, sql, database, dialect, reader.targets, error.message)
    touched = sorted(changed_keys(catalog.tables, after.tables) | changed_keys(catalog.unknown, after.unknown))
    changed = {
        name: table
        for name in touched
        if (table := after.tables.get(name)) is not None
        and not table.sequence
        and (name == reader.made or (before := catalog.tables.get(name)) is None or before.shown() != table.shown())
    }
    gone = tuple(
        name
        for name in touched
        if name not in after.tables
        and name not in after.unknown
        and (name in catalog.unknown or not catalog.tables[name].sequence)
    )
    return Applied(catalog=after, database=reader.database, changed=changed, gone=gone, rewritten=reader.rewritten)


def _quarantine(
    catalog: Catalog, sql: str, database: str, dialect: Dialect, targets: list[TableName], why: str
) -> Applied:
    """Return the result of a statement that was not understood: its targets, or all tables that it names, are
    quarantined."""
    if not targets:
        low = fold_identifier(sql)
        targets = sorted(name for name in catalog.tables if fold_identifier(name[1]) in low)
    after = catalog
    for name in targets:
        after = after.with_unknown(name, why)
    return Applied(catalog=after, database=database, quarantined=tuple(dict.fromkeys(targets)), error=why)


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Parser of one statement. `targets` are the tables that it affects, `made` is the one that it creates."""

    catalog: Catalog
    database: str
    session: int
    targets: list[TableName] = field(default_factory=list)
    made: TableName | None = None
    rewritten: dict[TableName, tuple[str, ...]] = field(default_factory=dict)
    ignoring: bool = False

    def read(self, cursor: Cursor) -> Catalog:
        """Return the catalog after the statement. Raises DdlNotUnderstood if it is not understood; `targets` are then
        set."""
        if cursor.done():
            return self.catalog
        word = cursor.peek().upper
        if word in _PASSED:
            return self._truncate(cursor) if word == "TRUNCATE" else self.catalog
        if word == "USE":
            cursor.take()
            self.database = cursor.dialect.database_name(cursor.name())
            return self.catalog
        if word == "RENAME":
            return self._rename(cursor)
        if word in ("CREATE", "ALTER", "DROP"):
            cursor.take()
            return {"CREATE": self._create, "ALTER": self._alter, "DROP": self._drop}[word](cursor)
        raise cursor.error("expected a statement")

    def _truncate(self, cursor: Cursor) -> Catalog:
        cursor.take()
        cursor.accept("TABLE")
        cursor.table(self.database)
        return self.catalog

    def _target(self, cursor: Cursor) -> TableName:
        name = cursor.table(self.database)
        if not name[0]:
            raise cursor.error("a table without a database")
        return name

    def _known(self, name: TableName) -> TableDefinition:
        table = self.catalog.tables.get(name)
        if table is None:
            why = self.catalog.unknown.get(name)
            raise DdlNotUnderstood(f"table {'.'.join(name)} is not known" + (f": {why}" if why else ""))
        return table

    def _hidden(self, name: TableName) -> bool:
        """Return whether a temporary table of this session hides the table of that name."""
        return (self.session, *name) in self.catalog.temporary

    def _create(self, cursor: Cursor) -> Catalog:
        start = cursor.at
        replacing = cursor.accept("OR", "REPLACE")
        temporary = cursor.accept("TEMPORARY")
        if cursor.accept("TABLE"):
            lenient = cursor.accept("IF", "NOT", "EXISTS")
            name = self._target(cursor)
            if temporary:
                return replace(self.catalog, temporary=self.catalog.temporary | {(self.session, *name)})
            if lenient and not replacing and name in self.catalog.tables:
                return self.catalog
            self.targets.append(name)
            table = read_create(cursor, self.catalog, name, self.database)
            if not cursor.done():
                raise cursor.error("expected the end of CREATE TABLE")
            self.made = name
            return self.catalog.with_table(name, table)
        if cursor.dialect.maria and cursor.accept("SEQUENCE"):
            return self._create_sequence(cursor, replacing=replacing, temporary=temporary)
        if not temporary and (cursor.accept("DATABASE") or cursor.accept("SCHEMA")):
            lenient = cursor.accept("IF", "NOT", "EXISTS")
            name_only = cursor.dialect.database_name(cursor.name())
            if lenient and not replacing and name_only in self.catalog.databases:
                return self.catalog
            charset, collation = self._database_options(cursor, self.catalog.default_charset, None)
            base = self.catalog.without_database(name_only) if replacing else self.catalog
            return base.with_database(name_only, charset, collation)
        if cursor.sees("SPATIAL", "REFERENCE"):
            return self.catalog
        cursor.accept("ONLINE") or cursor.accept("OFFLINE")
        if cursor.sees_any(_INDEX_KINDS):
            return self._create_index(cursor)
        cursor.at = start
        return self._other(cursor)

    def _create_sequence(self, cursor: Cursor, *, replacing: bool, temporary: bool) -> Catalog:
        lenient = cursor.accept("IF", "NOT", "EXISTS")
        name = self._target(cursor)
        if temporary:
            return replace(self.catalog, temporary=self.catalog.temporary | {(self.session, *name)})
        if lenient and not replacing and name in self.catalog.tables:
            return self.catalog
        return self.catalog.with_table(name, TableDefinition(columns=(), sequence=True))

    def _database_options(
        self, cursor: Cursor, charset: str | None, collation: str | None
    ) -> tuple[str | None, str | None]:
        while not cursor.done():
            option = read_charset_option(cursor)
            if option is not None:
                collation = option.collated(collation, cursor.dialect)
                charset = option.applied(charset, self.catalog.default_charset)
                continue
            cursor.accept("DEFAULT")
            if cursor.accept("ENCRYPTION") or cursor.accept("READ", "ONLY") or cursor.accept("COMMENT"):
                cursor.accept("=")
                cursor.take()
            elif not cursor.accept("UPGRADE", "DATA", "DIRECTORY", "NAME"):
                raise cursor.error("expected a database option")
        return charset, collation

    def _create_index(self, cursor: Cursor) -> Catalog:
        unique = cursor.accept("UNIQUE")
        while not cursor.accept("INDEX"):
            cursor.take()
        cursor.accept("IF", "NOT", "EXISTS")
        index = cursor.name()
        if cursor.accept("USING") or cursor.accept("TYPE"):
            cursor.name()
        cursor.expect("ON")
        name = self._target(cursor)
        if self._hidden(name):
            return self.catalog
        self.targets.append(name)
        table = self._known(name)
        if cursor.accept("WAIT"):
            cursor.number()
        cursor.accept("NOWAIT")
        columns = key_parts(cursor)
        skip_key_options(cursor)
        key = Key(name=index, kind="unique" if unique else "plain", columns=columns)
        if any(fold_identifier(known.name) == fold_identifier(index) for known in table.keys):
            return self.catalog
        return self.catalog.with_table(name, replace(table, keys=named([*table.keys, key])))

    def _alter(self, cursor: Cursor) -> Catalog:
        start = cursor.at
        while cursor.sees_any({"ONLINE", "OFFLINE", "IGNORE"}):
            self.ignoring |= cursor.take().upper == "IGNORE"
        if cursor.accept("TABLE"):
            return self._alter_table(cursor)
        if cursor.accept("DATABASE") or cursor.accept("SCHEMA"):
            database = self.database
            if read_charset_option(cursor) is None and not cursor.sees("UPGRADE"):
                option_first = (
                    cursor.sees_any({"DEFAULT", "ENCRYPTION", "READ", "COMMENT"}) and cursor.peek(1).kind != "end"
                )
                if not option_first or cursor.peek().kind == "name":
                    database = cursor.dialect.database_name(cursor.name())
            else:
                cursor.at = start + 1
            known = self.catalog.databases.get(database), self.catalog.collations.get(database)
            return self.catalog.with_database(database, *self._database_options(cursor, *known))
        cursor.at = start
        return self._other(cursor)

    def _alter_table(self, cursor: Cursor) -> Catalog:
        lenient = cursor.accept("IF", "EXISTS")
        name = self._target(cursor)
        if self._hidden(name):
            return self._alter_temporary(cursor, name)
        if lenient and name not in self.catalog.tables and name not in self.catalog.unknown:
            return self.catalog
        self.targets.append(name)
        found = read_alter(cursor, self.database, self.catalog.databases.get(name[0]))
        if found.rename_to and found.rename_to != name:
            self.targets.append(found.rename_to)
        before = self._known(name)
        table = with_former(before, found.applied(before, cursor.dialect))
        strict = cursor.dialect.strict and not self.ignoring
        columns = ("*",) if self.ignoring else tuple(rewritten(before, table, found.origins(before), strict=strict))
        if columns:
            self.rewritten[found.rename_to or name] = columns
        if found.rename_to and found.rename_to != name:
            return self.catalog.without_table(name).with_table(found.rename_to, table)
        return self.catalog.with_table(name, table)

    def _alter_temporary(self, cursor: Cursor, name: TableName) -> Catalog:
        found = read_alter(cursor, self.database, self.catalog.databases.get(name[0]))
        if not found.rename_to:
            return self.catalog
        left = self.catalog.temporary - {(self.session, *name)}
        return replace(self.catalog, temporary=left | {(self.session, *found.rename_to)})

    def _rename(self, cursor: Cursor) -> Catalog:
        cursor.take()
        if cursor.accept("USER"):
            return self.catalog
        if not cursor.accept("TABLE"):
            cursor.expect("TABLES")
        cursor.accept("IF", "EXISTS")
        pairs: list[tuple[TableName, TableName]] = []
        while True:
            old = self._target(cursor)
            if cursor.accept("WAIT"):
                cursor.number()
            cursor.accept("NOWAIT")
            cursor.expect("TO")
            pairs.append((old, self._target(cursor)))
            self.targets.extend(pairs[-1])
            if not cursor.accept(","):
                break
        if not cursor.done():
            raise cursor.error("expected the end of RENAME TABLE")
        return self._renamed(pairs)

    def _renamed(self, pairs: list[tuple[TableName, TableName]]) -> Catalog:
        catalog = self.catalog
        for old, new in pairs:
            table, why = catalog.tables.get(old), catalog.unknown.get(old)
            if table is None and why is None:
                raise DdlNotUnderstood(f"table {'.'.join(old)} is not known")
            catalog = catalog.without_table(old)
            catalog = catalog.with_table(new, table) if table else catalog.with_unknown(new, why or "")
        return catalog

    def _drop(self, cursor: Cursor) -> Catalog:
        start = cursor.at
        temporary = cursor.accept("TEMPORARY")
        if cursor.accept("TABLE") or cursor.accept("TABLES") or (cursor.dialect.maria and cursor.accept("SEQUENCE")):
            cursor.accept("IF", "EXISTS")
            return self._drop_tables(cursor, temporary=temporary)
        if not temporary and (cursor.accept("DATABASE") or cursor.accept("SCHEMA")):
            cursor.accept("IF", "EXISTS")
            return self.catalog.without_database(cursor.dialect.database_name(cursor.name()))
        cursor.accept("ONLINE") or cursor.accept("OFFLINE")
        if cursor.accept("INDEX"):
            return self._drop_index(cursor)
        if cursor.sees("SPATIAL", "REFERENCE") or cursor.sees("PREPARE"):
            return self.catalog
        cursor.at = start
        return self._other(cursor)

    def _drop_tables(self, cursor: Cursor, *, temporary: bool) -> Catalog:
        catalog = self.catalog
        while True:
            name = self._target(cursor)
            if temporary or (self.session, *name) in catalog.temporary:
                catalog = replace(catalog, temporary=catalog.temporary - {(self.session, *name)})
            else:
                catalog = catalog.without_table(name)
            if not cursor.accept(","):
                return catalog

    def _drop_index(self, cursor: Cursor) -> Catalog:
        cursor.accept("IF", "EXISTS")
        index = fold_identifier(cursor.name())
        cursor.expect("ON")
        name = self._target(cursor)
        if self._hidden(name):
            return self.catalog
        self.targets.append(name)
        table = self._known(name)
        kept = tuple(key for key in table.keys if fold_identifier(key.name) != index)
        return self.catalog.with_table(name, with_keys_applied(replace(table, keys=kept)))

    def _other(self, cursor: Cursor) -> Catalog:
        """Parse CREATE, ALTER or DROP of an object without columns. Raises DdlNotUnderstood for an unknown object."""
        while not cursor.done() and not cursor.sees_any(_OTHER_THINGS):
            if cursor.sees("DEFINER"):
                self._definer(cursor)
            elif cursor.sees("ALGORITHM"):
                cursor.accept("ALGORITHM", "=")
                cursor.name()
            elif cursor.accept("SQL", "SECURITY"):
                cursor.name()
            elif not any(cursor.accept(word) for word in _BEFORE_THINGS):
                raise cursor.error("expected a table, a database or another known object")
        if cursor.done():
            raise cursor.error("the statement ends too early")
        return self.catalog

    @staticmethod
    def _definer(cursor: Cursor) -> None:
        cursor.accept("DEFINER", "=")
        cursor.take()
        if cursor.sees("("):
            cursor.skip_group()
        if cursor.accept("@"):
            cursor.take()

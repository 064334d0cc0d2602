"""Parse CREATE TABLE into a table definition."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition, TableName, with_keys_applied
from ingest.ddl.columns import VERSIONING, ColumnWords, period
from ingest.ddl.cursor import Cursor
from ingest.ddl.elements import named, read_elements
from ingest.ddl.errors import DdlNotUnderstood
from ingest.ddl.options import read_charset_option, read_engine, read_table_option, skip_partitioning

_SELECTS = frozenset("SELECT AS IGNORE REPLACE WITH VALUES TABLE (".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The options of a table that matter here: default character set and collation, engine and kind."""

    charset: str | None
    collation: str | None
    engine: str = ""
    sequence: bool = False
    versioned: bool = False


def read_create(cursor: Cursor, catalog: Catalog, name: TableName, database: str) -> TableDefinition:
    """Parse what follows `CREATE TABLE name`. Other tables without a database are in `database`.

    Raises DdlNotUnderstood if the statement alone does not define the columns.
    """
    if cursor.accept("LIKE"):
        return _like(cursor, catalog, database)
    if cursor.sees("(", "LIKE"):
        cursor.expect("(", "LIKE")
        table = _like(cursor, catalog, database)
        cursor.expect(")")
        return table
    columns: list[ColumnWords] = []
    keys: list[Key] = []
    if cursor.sees("(") and not _sees_select(cursor):
        cursor.expect("(")
        columns, keys = read_elements(cursor)
    options = _options(cursor, catalog.databases.get(name[0]), catalog.collations.get(name[0]))
    if cursor.accept("PARTITION", "BY"):
        skip_partitioning(cursor)
    if not cursor.done():
        if not cursor.sees_any(_SELECTS):
            raise cursor.error("expected a table option")
        chosen = _selected(cursor, catalog, database)
        return table_of(columns, keys, options, cursor, chosen)
    if not columns:
        raise cursor.error("a table without columns")
    return table_of(columns, keys, options, cursor)


def table_of(
    columns: list[ColumnWords],
    keys: list[Key],
    options: TableOptions,
    cursor: Cursor,
    chosen: tuple[ColumnDefinition, ...] = (),
) -> TableDefinition:
    """Return the definition of a table with these columns, keys and options.

    `chosen` are the columns of CREATE TABLE … SELECT: they come last; one that is also declared has that declaration.
    Raises DdlNotUnderstood if two columns have the same name.
    """
    charset, collation = options.charset, options.collation
    made = [column.definition(charset, collation, cursor.dialect) for column in columns]
    declared = {column.name.lower(): column for column in made}
    selected = {column.name.lower() for column in chosen}
    all_columns = [column for column in made if column.name.lower() not in selected]
    all_columns += [declared.get(column.name.lower(), column) for column in chosen]
    if len(declared) != len(made) or len(selected) != len(chosen):
        raise DdlNotUnderstood("two columns have the same name")
    kept_history = options.versioned or any(VERSIONING in column.rest for column in columns)
    return with_keys_applied(
        TableDefinition(
            columns=tuple(all_columns),
            keys=named(keys),
            charset=charset,
            collation=collation,
            engine=options.engine,
            sequence=options.sequence,
            versioned=period(all_columns) if kept_history else None,
        )
    )


def _options(cursor: Cursor, default: str | None, collated: str | None) -> TableOptions:
    """Parse a table's options. `default` and `collated` are character set and collation of its database."""
    charset, collation, inherited = default, None, True
    engine, sequence, versioned = "", False, False
    while True:
        cursor.accept(",")
        option = read_charset_option(cursor)
        if option is not None:
            collation, inherited = option.collated(collation, cursor.dialect), option.inherited
            charset = option.applied(charset, default)
            continue
        sequence = sequence or cursor.sees("SEQUENCE", "=", "1") or cursor.sees("SEQUENCE", "1")
        versioned = versioned or cursor.sees("WITH", "SYSTEM", "VERSIONING")
        if found := read_engine(cursor):
            engine = found
        elif not read_table_option(cursor):
            return TableOptions(
                charset=charset, collation=collated if inherited else collation, engine=engine,
                sequence=sequence, versioned=versioned,
            )  # fmt: skip


def _like(cursor: Cursor, catalog: Catalog, database: str) -> TableDefinition:
    original = cursor.table(database)
    table = catalog.tables.get(original)
    if table is None:
        raise DdlNotUnderstood(f"table {'.'.join(original)} is not known")
    return table


def _sees_select(cursor: Cursor) -> bool:
    ahead = 0
    while cursor.peek(ahead).upper == "(":
        ahead += 1
    return cursor.peek(ahead).upper in ("SELECT", "WITH", "VALUES", "TABLE")


def _selected(cursor: Cursor, catalog: Catalog, database: str) -> tuple[ColumnDefinition, ...]:
    """Parse `[AS] SELECT * | column, … FROM one known table`, and return the selected columns.

    Raises DdlNotUnderstood for every other SELECT, because only the server can determine the types.
    """
    if not cursor.accept("IGNORE"):
        cursor.accept("REPLACE")
    cursor.accept("AS")
    cursor.expect("SELECT")
    wanted: list[tuple[str, str]] | None = None
    if not cursor.accept("*"):
        wanted = []
        while True:
            column = cursor.column()
            wanted.append((column, cursor.name() if cursor.accept("AS") else column))
            if not cursor.accept(","):
                break
    cursor.expect("FROM")
    source = cursor.table(database)
    table = catalog.tables.get(source)
    if table is None:
        raise DdlNotUnderstood(f"table {'.'.join(source)} is not known")
    if not cursor.done() and not cursor.sees("WHERE") and not cursor.sees("LIMIT") and not cursor.sees("ORDER", "BY"):
        raise cursor.error("the statement does not define the columns of this SELECT")
    while not cursor.done():
        if cursor.sees("UNION") or cursor.sees("EXCEPT") or cursor.sees("INTERSECT"):
            raise cursor.error("the statement does not define the columns of this SELECT")
        if cursor.sees("("):
            cursor.skip_group()
        else:
            cursor.take()
    if wanted is None:
        return tuple(_plain(column, column.name) for column in table.columns if "INVISIBLE" not in column.rest.split())
    out = []
    for column_name, alias in wanted:
        found = table.column(column_name)
        if found is None:
            raise DdlNotUnderstood(f"table {'.'.join(source)} has no column {column_name}")
        out.append(_plain(found, found.name if alias.lower() == column_name.lower() else alias))
    return tuple(out)


def _plain(column: ColumnDefinition, name: str) -> ColumnDefinition:
    if "AS (" in column.rest:
        raise DdlNotUnderstood("the statement does not define a generated column of its SELECT")
    return ColumnDefinition(
        name=name,
        column_type=column.column_type,
        nullable=column.nullable,
        charset=column.charset,
        collation=column.collation,
        rest="",
    )

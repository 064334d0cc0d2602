"""Parse all actions of an ALTER TABLE statement. `alteration` then applies them together, as servers do."""

from __future__ import annotations

from cdc.model.identifiers import fold_identifier
from ingest.ddl.alteration import Alteration, Place
from ingest.ddl.columns import read_column, shown_default, skip_expression
from ingest.ddl.cursor import Cursor
from ingest.ddl.elements import read_elements, read_key, read_period, sees_key, sees_period
from ingest.ddl.options import read_charset_option, read_engine, read_table_option, skip_partitioning

# Actions on partitions: each is the only one of its statement. After ADD and DROP, PARTITION must follow.
_PARTITIONS = frozenset(
    "ANALYZE CHECK COALESCE DISCARD EXCHANGE IMPORT OPTIMIZE REBUILD REORGANIZE REPAIR TRUNCATE CONVERT".split()
)


def read_alter(cursor: Cursor, database: str, charset: str | None) -> Alteration:
    """Parse what follows `ALTER TABLE name`. `charset` is the default character set of the table's database.

    Raises DdlNotUnderstood for an unknown action, which might change columns.
    """
    found = Alteration()
    _wait(cursor)
    while not cursor.done():
        if _partition_action(cursor):
            return found
        _action(cursor, found, database, charset)
        if cursor.accept(","):
            continue
        if cursor.sees("PARTITION", "BY"):
            skip_partitioning(cursor)
        elif cursor.accept("REMOVE", "PARTITIONING"):
            pass
        elif not cursor.done() and not _sees_option(cursor):
            raise cursor.error("expected a comma or the end")
    return found


def _wait(cursor: Cursor) -> None:
    if cursor.accept("WAIT"):
        cursor.number()
    else:
        cursor.accept("NOWAIT")


def _sees_option(cursor: Cursor) -> bool:
    """Return whether a table option is next: options may follow one another without commas."""
    start = cursor.at
    option = read_charset_option(cursor) is not None or bool(read_engine(cursor)) or read_table_option(cursor)
    cursor.at = start
    return option


def _partition_action(cursor: Cursor) -> bool:
    if cursor.accept("PARTITION", "BY") or cursor.accept("REMOVE", "PARTITIONING"):
        skip_partitioning(cursor)
        return cursor.done()
    two = cursor.sees("ADD", "PARTITION") or cursor.sees("DROP", "PARTITION")
    converts = cursor.sees("CONVERT", "TABLE") or cursor.sees("CONVERT", "PARTITION")
    if not (two or converts or (cursor.sees_any(_PARTITIONS) and cursor.peek(1).upper == "PARTITION")):
        return False
    if converts:
        raise cursor.error("converting a partition to a table, or a table to a partition, is not supported")
    while not cursor.done():
        cursor.take()
    return True


def _action(cursor: Cursor, found: Alteration, database: str, charset: str | None) -> None:
    if cursor.accept("ADD"):
        _add(cursor, found)
    elif cursor.accept("DROP"):
        _drop(cursor, found)
    elif cursor.accept("MODIFY"):
        cursor.accept("COLUMN")
        if_exists = cursor.accept("IF", "EXISTS")
        name = cursor.column()
        found.change(name, read_column(cursor, name), _place(cursor), if_exists=if_exists)
    elif cursor.accept("CHANGE"):
        cursor.accept("COLUMN")
        if_exists = cursor.accept("IF", "EXISTS")
        old, new = cursor.column(), cursor.column()
        found.change(old, read_column(cursor, new), _place(cursor), if_exists=if_exists)
    elif cursor.accept("RENAME"):
        _rename(cursor, found, database)
    elif cursor.accept("ALTER"):
        _alter(cursor, found)
    elif cursor.accept("CONVERT", "TO"):
        option = read_charset_option(cursor)
        if option is None:
            raise cursor.error("expected a character set")
        found.convert_to = found.charset = option.applied(None, charset)
        found.collation = option.collated(None, cursor.dialect)
        found.converts = True
        if cursor.sees("COLLATE") and (more := read_charset_option(cursor)) is not None:
            found.collation = more.collation
    elif cursor.accept("ORDER", "BY"):
        _order(cursor)
    elif (option := read_charset_option(cursor)) is not None:
        found.collation = option.collated(found.collation, cursor.dialect)
        found.charset = option.applied(found.charset, charset)
    elif engine := read_engine(cursor):
        found.engine = engine
    elif not (_plain(cursor) or read_table_option(cursor)):
        raise cursor.error("expected an action of ALTER TABLE")


def _plain(cursor: Cursor) -> bool:
    """Consume an action that changes neither columns nor keys. Returns False if none is next."""
    if cursor.accept("ALGORITHM") or cursor.accept("LOCK"):
        cursor.accept("=")
        cursor.name()
        return True
    return any(
        cursor.accept(*words)
        for words in (
            ("FORCE",), ("ENABLE", "KEYS"), ("DISABLE", "KEYS"), ("DISCARD", "TABLESPACE"), ("IMPORT", "TABLESPACE"),
            ("WITH", "VALIDATION"), ("WITHOUT", "VALIDATION"), ("SECONDARY_LOAD",), ("SECONDARY_UNLOAD",),
        )
    )  # fmt: skip


def _order(cursor: Cursor) -> None:
    """Parse ORDER BY, which is the last action: every comma after it continues its list."""
    while True:
        cursor.column()
        if not cursor.accept("ASC"):
            cursor.accept("DESC")
        if not cursor.accept(","):
            return


def _place(cursor: Cursor) -> Place:
    if cursor.accept("FIRST"):
        return ""
    return cursor.column() if cursor.accept("AFTER") else None


def _add(cursor: Cursor, found: Alteration) -> None:
    if cursor.accept("SYSTEM", "VERSIONING"):
        found.versioned = True
        return
    if sees_period(cursor):
        found.required |= {fold_identifier(name) for name in read_period(cursor)}
        return
    if sees_key(cursor):
        key = read_key(cursor)
        found.keys.extend([key] if key else [])
        return
    cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if cursor.accept("("):
        columns, keys = read_elements(cursor)
        for column in columns:
            found.add(column, None, if_not_exists=if_not_exists)
        found.keys.extend(key for key in keys if key not in found.keys)
        return
    name = cursor.column()
    found.add(read_column(cursor, name), _place(cursor), if_not_exists=if_not_exists)


def _drop(cursor: Cursor, found: Alteration) -> None:
    if cursor.accept("PRIMARY", "KEY"):
        found.dropped_keys.add("primary")
    elif cursor.accept("SYSTEM", "VERSIONING"):
        found.versioned = False
    elif (
        cursor.accept("PERIOD", "IF", "EXISTS", "FOR")
        or cursor.accept("PERIOD", "FOR")
        or cursor.accept("FOREIGN", "KEY")
        or cursor.accept("CHECK")
    ):
        cursor.accept("IF", "EXISTS")
        cursor.name()
    elif cursor.accept("INDEX") or cursor.accept("KEY") or cursor.accept("CONSTRAINT"):
        cursor.accept("IF", "EXISTS")
        found.dropped_keys.add(fold_identifier(cursor.name()))
    else:
        cursor.accept("COLUMN")
        if_exists = cursor.accept("IF", "EXISTS")
        found.drop(cursor.column(), if_exists=if_exists)
        if not cursor.accept("RESTRICT"):
            cursor.accept("CASCADE")


def _rename(cursor: Cursor, found: Alteration, database: str) -> None:
    if cursor.accept("COLUMN"):
        if_exists = cursor.accept("IF", "EXISTS")
        old = cursor.column()
        cursor.expect("TO")
        found.rename_column(old, cursor.column(), if_exists=if_exists)
    elif cursor.accept("INDEX") or cursor.accept("KEY"):
        cursor.accept("IF", "EXISTS")
        old = cursor.name()
        cursor.expect("TO")
        found.renamed_keys[fold_identifier(old)] = cursor.name()
    else:
        if not cursor.accept("TO") and not cursor.accept("AS"):
            cursor.accept("=")
        cursor.accept("IF", "NOT", "EXISTS")
        found.rename_to = cursor.table(database)


def _alter(cursor: Cursor, found: Alteration) -> None:
    if cursor.accept("INDEX") or cursor.accept("KEY"):
        cursor.accept("IF", "EXISTS")
        cursor.name()
        for words in (("VISIBLE",), ("INVISIBLE",), ("IGNORED",), ("NOT", "IGNORED")):
            if cursor.accept(*words):
                return
        raise cursor.error("expected VISIBLE or INVISIBLE")
    if cursor.accept("CHECK") or cursor.accept("CONSTRAINT"):
        cursor.name()
        if not cursor.accept("NOT", "ENFORCED"):
            cursor.expect("ENFORCED")
        return
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    name, default = cursor.column(), ""
    if cursor.accept("SET", "DEFAULT"):
        start = cursor.at
        skip_expression(cursor)
        default = shown_default(cursor.since(start))
    elif cursor.accept("SET", "VISIBLE") or cursor.accept("SET", "INVISIBLE"):
        return
    elif not cursor.accept("DROP", "DEFAULT"):
        raise cursor.error("expected SET or DROP DEFAULT")
    found.redefine(name, default, if_exists=if_exists)

"""Parse the columns, keys and constraints in the brackets of CREATE TABLE, or after ADD."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cdc.model.identifiers import fold_identifier
from ingest.ddl.catalog import Key, KeyKind
from ingest.ddl.columns import ColumnWords, read_column, skip_reference
from ingest.ddl.cursor import Cursor

_ENDS = frozenset({",", ")", ";"})
_STARTS = frozenset("CONSTRAINT PRIMARY UNIQUE FOREIGN KEY INDEX FULLTEXT SPATIAL".split())
_CONSTRAINTS = frozenset("PRIMARY UNIQUE FOREIGN CHECK".split())


def sees_key(cursor: Cursor) -> bool:
    """Return whether a key or constraint is next, and not a column."""
    return (
        cursor.sees_any(_STARTS)
        or cursor.sees("CHECK", "(")
        or sees_period(cursor)
        or (cursor.sees("VECTOR") and cursor.peek(1).upper in ("KEY", "INDEX"))
    )


def sees_period(cursor: Cursor) -> bool:
    """Return whether a PERIOD clause (MariaDB) is next."""
    return cursor.sees("PERIOD", "FOR") or cursor.sees("PERIOD", "IF", "NOT", "EXISTS", "FOR")


def read_period(cursor: Cursor) -> tuple[str, ...]:
    """Parse a PERIOD clause and return its two columns, which become NOT NULL."""
    cursor.expect("PERIOD")
    cursor.accept("IF", "NOT", "EXISTS")
    cursor.expect("FOR")
    cursor.accept("IF", "NOT", "EXISTS")
    cursor.name()
    return key_parts(cursor)


def read_key(cursor: Cursor) -> Key | None:
    """Parse a key or constraint; None for one without columns, such as a CHECK."""
    symbol = ""
    if cursor.accept("CONSTRAINT"):
        cursor.accept("IF", "NOT", "EXISTS")
        if not cursor.sees_any(_CONSTRAINTS):
            symbol = cursor.name()
        if not cursor.sees_any(_CONSTRAINTS):
            raise cursor.error("expected a constraint")
    if cursor.accept("PRIMARY"):
        cursor.expect("KEY")
        _head(cursor)
        return _key(cursor, "PRIMARY", "primary")
    if cursor.accept("FOREIGN"):
        cursor.expect("KEY")
        named_by = _head(cursor)
        columns = key_parts(cursor)
        cursor.expect("REFERENCES")
        skip_reference(cursor)
        return Key(name=symbol or named_by, kind="plain", columns=columns)
    if cursor.accept("CHECK"):
        cursor.skip_group()
        if not cursor.accept("NOT", "ENFORCED"):
            cursor.accept("ENFORCED")
        return None
    kind: KeyKind = "unique" if cursor.take().upper == "UNIQUE" else "plain"
    if not cursor.accept("KEY"):
        cursor.accept("INDEX")
    return _key(cursor, _head(cursor) or symbol, kind)


def _head(cursor: Cursor) -> str:
    """Parse the optional name of a key, after IF NOT EXISTS and before USING or TYPE."""
    cursor.accept("IF", "NOT", "EXISTS")
    name = ""
    if not cursor.sees("(") and not cursor.sees("USING") and not (cursor.sees("TYPE") and cursor.peek(1).upper != "("):
        name = cursor.name()
    while cursor.accept("USING") or cursor.accept("TYPE"):
        cursor.name()
    return name


def _key(cursor: Cursor, name: str, kind: KeyKind) -> Key:
    columns = key_parts(cursor)
    skip_key_options(cursor)
    return Key(name=name, kind=kind, columns=columns)


def skip_key_options(cursor: Cursor) -> None:
    """Skip a key's options, which end at a comma or bracket."""
    while not cursor.done() and not cursor.sees_any(_ENDS):
        if cursor.sees("("):
            cursor.skip_group()
        else:
            cursor.take()


def key_parts(cursor: Cursor) -> tuple[str, ...]:
    """Parse the bracketed parts of a key into column names. An expression gives an empty name."""
    cursor.expect("(")
    parts: list[str] = []
    while True:
        if cursor.sees("("):
            cursor.skip_group()
            parts.append("")
        else:
            parts.append(cursor.column())
            if cursor.sees("("):
                cursor.skip_group()
        if not cursor.accept("ASC"):
            cursor.accept("DESC")
        cursor.accept("WITHOUT", "OVERLAPS")
        if cursor.accept(","):
            continue
        cursor.expect(")")
        return tuple(parts)


def read_elements(cursor: Cursor) -> tuple[list[ColumnWords], list[Key]]:
    """Parse a list of columns, keys and constraints, after its opening bracket."""
    columns: list[ColumnWords] = []
    keys: list[Key] = []
    required: set[str] = set()
    while True:
        if sees_period(cursor):
            required |= {fold_identifier(name) for name in read_period(cursor)}
        elif sees_key(cursor):
            key = read_key(cursor)
            keys.extend([key] if key else [])
        else:
            column = read_column(cursor, cursor.column())
            columns.append(column)
            keys.extend(column.keys)
        if cursor.accept(","):
            continue
        cursor.expect(")")
        return [replace(c, nullable=False) if fold_identifier(c.name) in required else c for c in columns], keys


def named(keys: Iterable[Key]) -> tuple[Key, ...]:
    """Return the keys with the default names that servers give: the first column's name, then with _2, _3, …"""
    out: list[Key] = []
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for key in keys:
        name = key.name
        if not name:
            stem = next(iter(key.columns), "") or "functional_index"
            number = numbers.get(fold_identifier(stem), 0) + 1
            name = stem if number == 1 else f"{stem}_{number}"
            while fold_identifier(name) in taken:
                number += 1
                name = f"{stem}_{number}"
            numbers[fold_identifier(stem)] = number
        taken.add(fold_identifier(name))
        out.append(replace(key, name=name))
    return tuple(out)

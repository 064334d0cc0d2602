"""mysql-replication's TABLE_MAP event in our words, with the guesses that it makes undone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdc.errors import Fatal
from cdc.schema import TableSchema
from ingest.agent.columns import Charset, LoggedColumn, LoggedTable, charset_of, is_hidden
from ingest.agent.values import decode_text, members

_TEXTS = {15, 252, 253, 254}
_ENUM, _SET, _YEAR, _BIT, _DECIMAL = 247, 248, 13, 16, 246
_NUMBERS = {1, 2, 3, 4, 5, 8, 9, _YEAR, _DECIMAL}


def logged_table(event: Any, known: TableSchema | None, charsets: Mapping[int, Charset]) -> LoggedTable:
    """The table that a TABLE_MAP describes; `known` is the table's schema before. Fatal when it cannot be told."""
    metadata = event.optional_metadata
    names: list[str] = metadata.column_name_list
    if len(names) != event.column_count:
        raise Fatal(
            f"table {event.schema}.{event.table} was logged without column names",
            "SET PERSIST binlog_row_metadata = FULL",
        )
    unsigned = _unsigned(event, names, known)
    texts = iter(metadata.charset_collation_list or ())
    choices = iter(metadata.enum_and_set_collation_list or ())
    columns: list[LoggedColumn] = []
    for i, (name, column) in enumerate(zip(names, event.columns, strict=True)):
        code = column.type
        collation = next(texts, None) if code in _TEXTS else next(choices, None) if code in (_ENUM, _SET) else None
        logged = LoggedColumn(
            name=name,
            code=code,
            size=_size(column),
            precision=column.bits if code == _BIT else getattr(column, "precision", 0),
            scale=getattr(column, "decimals", 0) or getattr(column, "fsp", 0),
            unsigned=unsigned[i],
            nullable=bool(event.null_bitmask[i >> 3] >> (i & 7) & 1),
            collation=collation,
            hidden=is_hidden(name, known),
        )
        if code in (_ENUM, _SET):
            logged = _with_members(logged, column, known, charsets)
        columns.append(logged)
    key = tuple(metadata.simple_primary_key_list) or tuple(metadata.primary_keys_with_prefix)
    return LoggedTable(database=event.schema, table=event.table, columns=tuple(columns), primary_key=key)


def _size(column: Any) -> int:
    for attribute in ("bytes", "max_length", "length_size", "size"):
        if hasattr(column, attribute):
            size: int = getattr(column, attribute)
            return size
    return 0


def _unsigned(event: Any, names: list[str], known: TableSchema | None) -> list[bool]:
    """Which columns are unsigned. Servers disagree whether YEAR counts among the numbers: then `known` decides."""
    counted: list[bool] = event.optional_metadata.unsigned_column_list or [False] * len(names)
    codes = [column.type for column in event.columns]
    if _YEAR not in codes:
        return counted
    bits = iter([flag for code, flag in zip(codes, counted, strict=True) if code in _NUMBERS])
    uncounted = [next(bits) if code in _NUMBERS and code != _YEAR else False for code in codes]
    counted = [flag and code != _YEAR for code, flag in zip(codes, counted, strict=True)]
    if counted == uncounted:
        return counted
    declared = {c.name: "unsigned" in c.column_type for c in known.columns} if known else {}
    for reading in (counted, uncounted):
        if all(declared.get(name, flag) == flag for name, flag in zip(names, reading, strict=True)):
            return reading
    raise Fatal(
        f"table {event.schema}.{event.table}: its YEAR column hides from the log which columns are unsigned",
        "start over under a new topology name to take a new snapshot",
    )


def _with_members(
    column: LoggedColumn, event_column: Any, known: TableSchema | None, charsets: Mapping[int, Charset]
) -> LoggedColumn:
    """The column with its members as text; the library takes them for UTF-8 and empties those that are not."""
    logged = event_column.enum_values[1:] if column.code == _ENUM else event_column.set_values
    charset = charset_of(column, charsets).name
    if charset in ("utf8mb4", "utf8mb3", "utf8", "ascii"):
        return replace(column, members=tuple(logged))
    told = tuple(decode_text(member.encode(), charset) for member in logged)
    if "" in told:
        before = known.column(column.name) if known else None
        declared = members(before.column_type) if before else ()
        if len(declared) != len(told) or any(a != b for a, b in zip(told, declared, strict=True) if a):
            raise Fatal(
                f"column {column.name}: members in character set {charset} cannot be told from the log",
                "convert the column to utf8mb4",
            )
        told = declared
    return replace(column, members=told)

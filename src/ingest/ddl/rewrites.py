"""Decide for which columns an ALTER TABLE changes stored values so that only the server knows the new ones.

The log contains the statement, but not the rows that it rewrites. Readers convert older values to the new type, which
is right only if the server's result depends on nothing else. `preserves` knows these conversions: a wider type, labels
added at the end, and the like. All others depend on the server (time zone, sql_mode, rounding), so the caller re-reads
the table. Source: the servers' results (tests/ingest/binlog/test_rewrites.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from cdc.model.identifiers import fold_identifier
from ingest.ddl.catalog import ColumnDefinition, TableDefinition

_SHAPE = re.compile(r"(\w+)(?:\((.*)\))?([^)]*)", re.DOTALL)
_COMPRESSED = " /*M!100301 COMPRESSED*/"
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXTS = {"tinytext": 255, "text": 65_535, "mediumtext": 2**24 - 1, "longtext": 2**32 - 1}
_BLOBS = {"tinyblob": 255, "blob": 65_535, "mediumblob": 2**24 - 1, "longblob": 2**32 - 1}
# Character sets of which UTF-8 can represent every character.
_INTO_UTF8 = frozenset({"ascii", "latin1", "utf8", "utf8mb3", "ucs2", "utf16", "utf32", "utf8mb4"})
_FULL_UNICODE = frozenset({"utf8mb4", "utf16", "utf32"})


def preserves(old: ColumnDefinition, new: ColumnDefinition, *, strict: bool, in_key: bool = False) -> bool:
    """Return whether readers get the server's value if they convert old values of a column to its new type.

    `strict`: the sql_mode rejects NULL in a column that becomes NOT NULL. `in_key`: it is a key column, whose values
    must also keep their printed form, because records are found by it.
    """
    if old.nullable and not new.nullable and not (strict and not new.column_type.startswith("timestamp")):
        return False
    if "AUTO_INCREMENT" in new.rest and "AUTO_INCREMENT" not in old.rest:
        return False  # the server numbers rows that have 0 or NULL
    if generation(old) != generation(new):
        return False
    before, after = _parts(old), _parts(new)
    if before == after and old.charset == new.charset:
        return True
    return _same_text(old, new, before, after) or _same_number(before, after, in_key=in_key)


def rewritten(
    before: TableDefinition, after: TableDefinition, origins: Mapping[str, str], *, strict: bool
) -> Iterator[str]:
    """Yield the columns whose new values after an ALTER readers cannot compute.

    `origins` maps the name of each column that existed before to its old name, both in lower case.
    """
    kept = {fold_identifier(column.name): column for column in before.columns}
    key = {fold_identifier(name) for name in after.primary_key}
    retyped = False
    for column in after.columns:
        name = fold_identifier(column.name)
        origin = origins.get(name)
        if origin is None:
            # an older row may contain the value of another column under this name
            if not column.initial_known or name in kept or name in before.former:
                yield column.name
            continue
        old = kept[origin]
        retyped |= _parts(old) != _parts(column) or old.charset != column.charset
        if old.name != column.name or not preserves(old, column, strict=strict, in_key=name in key):
            yield column.name
    if retyped:
        yield from (column.name for column in after.columns if generation(column))


def generation(column: ColumnDefinition) -> str:
    """Return the expression of a generated column, as far as it is known; empty for other columns."""
    at = column.rest.find("AS (")
    return column.rest[at:] if at >= 0 else ""


def _parts(column: ColumnDefinition) -> tuple[str, str, str]:
    """Return (base type, arguments, attributes) of a type, without what only affects printing or storage."""
    match = _SHAPE.fullmatch(column.column_type.replace(_COMPRESSED, "").strip())
    if match is None:
        return column.column_type, "", ""
    base, arguments, rest = match[1], match[2] or "", match[3]
    unsigned = "unsigned" in rest or "zerofill" in rest
    if base in _BITS or base == "year":
        arguments = ""
    return base, arguments, "unsigned" if unsigned else ""


def _same_number(before: tuple[str, str, str], after: tuple[str, str, str], *, in_key: bool) -> bool:
    (base, arguments, unsigned), (to, wider, to_unsigned) = before, after
    if base in _BITS and to in _BITS:
        if unsigned == to_unsigned:
            return _BITS[base] <= _BITS[to]
        return bool(unsigned) and _BITS[base] < _BITS[to]
    if base == to == "decimal" and (unsigned == to_unsigned or unsigned):
        (precision, scale), (most, fraction) = _pair(arguments), _pair(wider)
        return scale <= fraction and precision - scale <= most - fraction and not (in_key and scale != fraction)
    if base == to and base in ("datetime", "timestamp", "time"):
        return int(arguments or 0) <= int(wider or 0)
    return (
        (base, to) == ("float", "double") and not (arguments or wider) and (unsigned == to_unsigned or bool(unsigned))
    )


def _same_text(
    old: ColumnDefinition, new: ColumnDefinition, before: tuple[str, str, str], after: tuple[str, str, str]
) -> bool:
    if not _same_characters(old.charset, new.charset):
        return False
    (base, arguments, _), (to, wider, _) = before, after
    if base == to == "enum":
        return wider == arguments or wider.startswith(arguments + ",")
    if base == to == "set":
        return wider == arguments or wider.startswith(arguments + ",")
    for sizes, fixed, free in ((_TEXTS, "char", "varchar"), (_BLOBS, "binary", "varbinary")):
        if base in sizes and to in sizes:
            return sizes[base] <= sizes[to]
        if base == fixed == to == "char":
            return int(arguments or 1) <= int(wider or 1)
        if base in (fixed, free) and to == free:
            return int(arguments or 1) <= int(wider)
        if base in (fixed, free) and to in sizes:
            return int(arguments or 1) * 4 <= sizes[to]
    return False


def _same_characters(old: str | None, new: str | None) -> bool:
    """Return whether every text in one character set is also valid in the other."""
    if old == new:
        return True
    if old is None or new is None:
        return False
    if {old, new} == {"utf8", "utf8mb3"} or (old == "ascii" and new not in ("swe7", "binary")):
        return True
    return old in _INTO_UTF8 and new in _FULL_UNICODE


def _pair(arguments: str) -> tuple[int, int]:
    precision, _, scale = arguments.partition(",")
    return int(precision or 10), int(scale or 0)

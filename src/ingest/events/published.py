"""Derive the published schema of a table from its schema on the server: the record key and the published columns.

Capture uses it to publish, and `doctor` to predict which tables capture would leave out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cdc.model.errors import Skippable
from cdc.model.filters import TableRule
from cdc.model.identifiers import fold_identifier
from cdc.model.schema import Column, TableSchema
from cdc.model.types import SPATIAL
from ingest.ddl.catalog import Key

_NO_KEY = ("list", *SPATIAL)


def published(schema: TableSchema, keys: Iterable[Key], rule: TableRule | None) -> TableSchema:
    """Return the schema of a table's records. `keys` are the table's keys on the server, `rule` its options.

    Columns whose type is not captured are omitted, and listed in `left_out` unless `rule` ignores them. Raises
    Skippable if the rows cannot be published: no column identifies a row, the type of a key column is not captured, or
    `rule` hides or masks a key column.
    """
    key = (rule.message_key_columns if rule else ()) or schema.primary_key or _unique_key(schema, keys)
    if not key:
        raise Skippable(
            f"table {schema.table_id} has no primary key",
            f"ALTER TABLE {schema.table_id.database}.{schema.table_id.table} ADD PRIMARY KEY (…), or name the "
            "columns that identify a row (message_key_columns), or do not capture it (`tables:`)",
        )
    if rule is not None and not rule.exact_case:
        spelt = {fold_identifier(column.name): column.name for column in schema.columns}
        key = tuple(spelt.get(fold_identifier(name), name) for name in key)
    if missing := [name for name in key if schema.column(name) is None]:
        raise Skippable(
            f"table {schema.table_id} has no column {missing[0]}", "correct its message_key_columns in `tables:`"
        )
    untyped = not_captured(schema)
    if packed := [c for c in schema.columns if c.name in key and c not in untyped and c.type.kind in _NO_KEY]:
        raise Skippable(
            f"table {schema.table_id}: column {packed[0].name} of its key has type {packed[0].column_type}, which "
            "cannot identify a row",
            "name other columns that identify a row (message_key_columns), or leave its table out of `tables:`",
        )
    if shut := [column for column in untyped if column.name in key]:
        raise Skippable(
            f"table {schema.table_id}: column {shut[0].name} of its key has type {shut[0].column_type}, which is not "
            "captured",
            "name other columns that identify a row (message_key_columns), or leave its table out of `tables:`",
        )
    if untyped:
        unsupported = [column for column in untyped if rule is None or not rule.leaves_out(column.name)]
        left_out = tuple((column.name, column.column_type) for column in unsupported)
        kept = tuple(column for column in schema.columns if column not in untyped)
        schema = replace(schema, columns=kept, left_out=left_out)
    if rule is None or rule.empty:
        return replace(schema, primary_key=key) if key != schema.primary_key else schema
    if hidden := sorted(name for name in key if rule.leaves_out(name) or rule.mask_of(name) is not None):
        raise Skippable(f"table {schema.table_id}: {hidden[0]} is part of its key", "neither ignore nor mask it")
    return replace(schema, primary_key=key, columns=tuple(_shaped(schema, rule)))


def not_captured(schema: TableSchema) -> list[Column]:
    """Return the columns whose type is not supported, such as types of a newer server."""
    found = []
    for column in schema.columns:
        try:
            _ = column.type
        except ValueError:  # no error: the caller leaves the column out and reports it
            found.append(column)
    return found


def _unique_key(schema: TableSchema, keys: Iterable[Key]) -> tuple[str, ...]:
    """Return the first unique key without NULLs, for a table without a primary key."""
    nullable = {column.name for column in schema.columns if column.nullable}
    for key in keys:
        if key.kind == "unique" and all(key.columns) and not nullable & set(key.columns):
            return key.columns
    return ()


def _shaped(schema: TableSchema, rule: TableRule) -> Iterator[Column]:
    """Yield the published columns: without ignored ones; masked ones have type text."""
    for column in schema.columns:
        if rule.leaves_out(column.name):
            continue
        if rule.mask_of(column.name) is not None:
            known = column.default_known and column.default is None  # NULL is masked as NULL
            yield replace(
                column,
                column_type="varchar(255)",
                charset="utf8mb4",
                collation=None,
                default=None,
                default_known=known,
            )
        else:
            yield column

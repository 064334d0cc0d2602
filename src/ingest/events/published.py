"""Derive the published schema of a table from its schema on the server: the record key and the published columns. And
derive the schema of a merged table from those of its tables.

Capture uses it to publish, and `doctor` to predict which tables capture would leave out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from cdc.model.errors import Skippable
from cdc.model.filters import TableRule
from cdc.model.identifiers import fold_identifier
from cdc.model.naming import escaped_table
from cdc.model.patterns import LONGEST, MergedTable, merged_of
from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import SPATIAL, LogicalType
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


_Typed = tuple[str, LogicalType, str]  # name, type and default


@dataclass(slots=True)
class _Members:
    """The tables of one merged table with their published schemas, and how many have each key and each column."""

    merged: MergedTable
    schemas: dict[TableId, TableSchema] = field(default_factory=dict)
    keys: Counter[tuple[str, ...]] = field(default_factory=Counter)
    columns: Counter[_Typed] = field(default_factory=Counter)
    key: tuple[str, ...] = ()
    agreed: tuple[_Typed, ...] = ()
    model: TableId | None = None  # the first fitting table by name, which gives the order of the columns

    def put(self, table: TableId, schema: TableSchema | None) -> bool:
        """Set or remove a table's schema. Return whether the agreed key or columns have changed."""
        for known, step in ((self.schemas.pop(table, None), -1), (schema, 1)):
            if known is not None:
                self.keys[known.primary_key] += step
                self.columns.update(dict.fromkeys(_typed(known), step))
        if schema is not None:
            self.schemas[table] = schema
        before = self.key, self.agreed
        self._agree()
        changed = before != (self.key, self.agreed)
        if changed or self.model is None or table == self.model:
            self.model = min((one for one, known in self.schemas.items() if self.why_odd(known) is None), default=None)
        elif schema is not None and table < self.model and self.why_odd(schema) is None:
            self.model = table
        return changed

    def _agree(self) -> None:
        half, tied = len(self.schemas) / 2, max(self.keys.values(), default=0)
        keys = [key for key, count in self.keys.items() if count == tied and tied]
        common = [one for one, count in self.columns.items() if count > half]
        open_columns = [one for one, count in self.columns.items() if count == half and count]
        if len(keys) > 1 or open_columns:  # the table that is first by name decides
            first = self.schemas[min(self.schemas)]
            keys = [first.primary_key] if first.primary_key in keys else [min(keys)]
            common += set(open_columns).intersection(_typed(first))
        self.key = keys[0] if keys else ()
        self.agreed = tuple(sorted(common, key=str))

    def why_odd(self, schema: TableSchema) -> tuple[str, str] | None:
        """Return why a table does not fit into the merged table, and the remedy; None if it fits."""
        mine = self.merged
        if len(escaped_table(schema.table_id)) > LONGEST:
            return "its name is too long for a merged table", "rename it"
        if schema.column(mine.column) is not None:
            return f"its column {mine.column} has the name of the merged table's column", "rename the column"
        if schema.primary_key != self.key:
            return f"its key is ({', '.join(schema.primary_key)}), that of most others is ({', '.join(self.key)})", ""
        own = {one[0]: one for one in _typed(schema)}
        for column in self.agreed:
            name, type_, default = column
            found = own.get(name)
            if found is None:
                return f"it has no column {name}, which most others have", ""
            if found[1] != type_:
                return f"its column {name} has type {found[1]}, that of most others is {type_}", ""
            if found != column:
                return f"its column {name} has the default {found[2]}, that of most others is {default}", ""
        return None

    def schema(self) -> TableSchema | None:
        """Return the schema of the merged table. None as long as it has no table with the agreed key and columns."""
        if self.model is None:
            return None
        first, agreed = self.schemas[self.model], set(self.agreed)
        columns = tuple(
            replace(column, nullable=column.name not in self.key)
            for column in first.columns
            if _typed_column(column) in agreed
        )
        return self.merged.schema_of(replace(first, version=1, columns=columns, left_out=()))


class MergedSchemas:
    """The schemas of a source's merged tables: the key and the columns that most of their tables have.

    Of two keys or types that equally many tables have, that of the table that is first by name counts. A table without
    one of these columns, or with another key or type, does not fit. Further columns do no harm: they are in the topic,
    but not in the merged table.
    """

    def __init__(self, merged: Iterable[MergedTable]) -> None:
        self._members = {one.table_id: _Members(one) for one in merged}
        self._merged = tuple(one.merged for one in self._members.values())
        self._shown = dict[TableId, TableSchema]()

    def contains(self, table: TableId) -> bool:
        """Return whether a table is part of a merged table."""
        return merged_of(table, self._merged) is not None

    def put(
        self, table: TableId, schema: TableSchema | None, derive: Callable[[TableSchema], TableSchema]
    ) -> set[TableId]:
        """Set the schema of a table; None: it has none. Return the tables that may fit now, or no longer.

        `derive` returns the published schema, or raises Skippable.
        """
        merged = merged_of(table, self._merged)
        if merged is None:
            return set()
        try:
            shown = None if schema is None else derive(schema)
        except Skippable:  # the table is left out for that reason
            shown = None
        members = self._members[merged.table_id]
        return set(members.schemas) if members.put(table, shown) else {table}

    def refuse(self, schema: TableSchema) -> None:
        """Raise Skippable for a table that does not fit into its merged table."""
        merged = merged_of(schema.table_id, self._merged)
        why = None if merged is None else self._members[merged.table_id].why_odd(schema)
        if merged is not None and why is not None:
            remedy = why[1] or "ALTER it as most tables of the pattern are"
            raise Skippable(f"table {schema.table_id} does not fit into {merged.table_id}: {why[0]}", remedy)

    def schemas(self) -> dict[TableId, TableSchema]:
        """Return the schemas of the merged tables that have a table."""
        found = ((table, members.schema()) for table, members in self._members.items())
        return {table: schema for table, schema in found if schema is not None}

    def take_changed(self) -> tuple[TableSchema, ...]:
        """Return the schemas of merged tables that this method did not return before."""
        found = self.schemas() if self._members else {}
        changed = tuple(schema for table, schema in found.items() if self._shown.get(table) != schema)
        self._shown |= found
        return changed


def _typed(schema: TableSchema) -> list[_Typed]:
    return list(map(_typed_column, schema.columns))


def _typed_column(column: Column) -> _Typed:
    # rows that are older than the column have the default, and a query knows one for all tables
    return column.name, column.type, repr(column.default) if column.default_known else "unknown"

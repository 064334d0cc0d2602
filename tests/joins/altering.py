"""Cases whose tables are altered: their successive schemas, and the expected result of the join.

Additional words: `alter t {column: type, or null}` adds, changes and drops columns (a fourth item has defaults),
`rename
t old new`, and `start`, where the query is compiled. No record contains what an ALTER does to existing rows; this
module
converts them without the engine's own functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Canonical, LogicalType, from_mysql
from joins.oracle.oracle import Rows
from joins.query.drift import remembering

if TYPE_CHECKING:
    from tests.joins.joincase import Case

Row = dict[str, Canonical]
WORDS = ("alter", "rename")
# Tables of this source are merged ones. The last column of the key is the database of each row.
MERGED = "merged"


def altered_columns(columns: dict[str, Any], word: list[Any]) -> dict[str, Any]:
    """Return a table's columns after a word."""
    if word[0] == "rename":
        return {word[3] if name == word[2] else name: type_ for name, type_ in columns.items()}
    return {name: type_ for name, type_ in {**columns, **word[2]}.items() if type_ is not None}


def altered_row(row: Row, columns: dict[str, Any], word: list[Any]) -> Row:
    """Return a row after a word; `columns` are those before it."""
    if word[0] == "rename":
        return {word[3] if name == word[2] else name: value for name, value in row.items()}
    defaults = word[3] if len(word) > 3 else {}
    after = altered_columns(columns, word)
    return {
        name: recast(row[name], from_mysql(type_)) if name in row else defaults.get(name)
        for name, type_ in after.items()
        if name != "key"
    }


def recast(value: Canonical, type_: LogicalType) -> Canonical:
    """Return a value as MySQL converts it, for the few kinds that cases use."""
    if value is None:
        return None
    match type_.kind:
        case "decimal":
            return f"{Decimal(str(value)):.{type_.scale}f}"
        case "int32" | "int64":
            return int(Decimal(str(value)))
        case "string":
            return str(value)
        case "datetime" if len(str(value)) == 11:
            return str(value).replace("Z", "T00:00:00Z")
    return value


def versions(case: Case) -> dict[TableId, TableSchema]:
    """Return the schemas that the query is compiled with: those at its start, with their former columns."""
    started = ["start"] in case.history
    found: dict[TableId, list[TableSchema]] = {}
    for name, declared in case.tables.items():
        columns, defaults = dict(declared), dict[str, Canonical]()
        made = found.setdefault(table_id(name), [])
        made.append(_schema(name, columns, defaults, 1))
        for word in case.history if started else ():
            if word == ["start"]:
                break
            if word[0] in WORDS and word[1] == name:
                columns = altered_columns(columns, word)
                defaults |= word[3] if word[0] == "alter" and len(word) > 3 else {}
                made.append(_schema(name, columns, defaults, len(made) + 1))
    return {table: remembering(schemas) for table, schemas in found.items()}


def _schema(name: str, columns: dict[str, Any], defaults: Row, version: int) -> TableSchema:
    made = tuple(
        Column(
            name=n,
            column_type=t.removesuffix("?"),
            nullable=t.endswith("?"),
            default=defaults.get(n),
            default_known=n in defaults,
        )
        for n, t in columns.items()
        if n != "key"
    )
    return TableSchema(table_id=table_id(name), version=version, columns=made, primary_key=tuple(columns["key"]))


def flat(schema: TableSchema) -> TableSchema:
    """Return the schema with its former columns among the others, as the oracle needs them."""
    columns = tuple(column for name in schema.places() if (column := schema.column(name)) is not None)
    return replace(schema, columns=columns, former=())


def shown(case: Case) -> Iterator[dict[TableId, Rows]]:
    """Yield, at each `start` and `quiet` and at the end, the tables as the join must see them.

    Records from before the start have the values that the table has at the start; dropped columns keep their published
    values. Later records have their published values.
    """
    schemas = {table: flat(schema) for table, schema in versions(case).items()}
    columns = {name: dict(declared) for name, declared in case.tables.items()}
    rows: dict[str, dict[tuple[Canonical, ...], Row]] = {name: {} for name in case.tables}
    reported: dict[str, dict[tuple[Canonical, ...], Row]] = {name: {} for name in case.tables}
    for word in [*case.history, ["quiet"]]:
        if word[0] in ("quiet", "start"):
            if word[0] == "start":  # existing columns have their current value, others the published one
                for name, known in rows.items():
                    reported[name] = {at: {**reported[name][at], **row} for at, row in known.items()}
            yield {
                table_id(name): {at: _seen(row, schemas[table_id(name)]) for at, row in known.items()}
                for name, known in reported.items()
            }
            continue
        name = word[1]
        if word[0] in WORDS:
            rows[name] = {at: altered_row(row, columns[name], word) for at, row in rows[name].items()}
            columns[name] = altered_columns(columns[name], word)
            continue
        key = case.tables[name]["key"]
        if word[0] == "truncate":
            rows[name], reported[name] = {}, {}
            continue
        if word[0] == "snapshot":
            gone = [tuple(lost[column] for column in key) for lost in word[2]]
            rows[name] = {at: row for at, row in rows[name].items() if at not in gone}
            reported[name] = {at: dict(row) for at, row in rows[name].items()}
            continue
        at = tuple(word[2][column] for column in key)
        if word[0] == "delete":
            rows[name].pop(at, None)
            reported[name].pop(at, None)
        elif rows[name].get(at) != word[2]:
            rows[name][at] = reported[name][at] = dict(word[2])


def _seen(row: Row, schema: TableSchema) -> Row:
    return {column.name: recast(row.get(column.name), column.type) for column in schema.columns}


def table_id(name: str) -> TableId:
    source, table = name.split(".")
    return TableId(source=source, database="*" if source == MERGED else source, table=table)

"""Decode the tuples of one relation of the log to row images, and derive the table's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from cdc.model.schema import TableSchema
from cdc.model.types import Canonical
from ingest.ddl.catalog import ColumnDefinition, Key, TableDefinition
from ingest.events.log_events import Image, RefusedImage, Row
from ingest.postgres.column_types import PgTypes, Read, text
from ingest.postgres.harmless import Member
from ingest.postgres.messages import NULL, TEXT, U32, LoggedRelation
from ingest.records.row_json import ColumnForm, RowFunction, row_function

TupleFunction = Callable[[bytes, int], tuple[Row, int]]
# Rows of a table until a function is generated for it, which takes the time of as many rows. A function has 9 KB, too
# much for thousands of tables with few changes.
GENERATED_AFTER = 1000
# functions that are simple enough to be written into a generated one
_READS: Mapping[Read, str] = {int: "int(data[start:at])", text: "data[start:at].decode()"}


class TableShown(NamedTuple):
    """A table as the catalog describes it now: replica identity, value readers by column, and its members.

    `members` are the tables that store its rows: itself, or its partitions.
    """

    oid: int
    identity: str
    definition: TableDefinition
    reads: Mapping[str, Read]
    partitioned: bool = False
    members: tuple[Member, ...] = ()

    @property
    def generated(self) -> bool:
        """Return whether the table has stored generated columns, which publications of newer servers can contain."""
        return any(one.stored for one in self.members)


class RelationRows:
    """Decoder of the tuples of one relation message."""

    def __init__(self, relation: LoggedRelation, types: PgTypes) -> None:
        self.relation = relation
        self.types = tuple(types.typed(column.oid, column.modifier) for column in relation.columns)
        self._reads: tuple[tuple[str, Read], ...] = tuple(
            (column.name, typed.read) for column, typed in zip(relation.columns, self.types, strict=True)
        )
        self.key = frozenset(column.name for column in relation.columns if column.key)
        self.width = len(self._reads)
        self._decoded = 0

    def row(self, data: bytes, at: int) -> tuple[Row, int]:
        """Return the row of the tuple at byte `at`, and the offset after it. Columns that the tuple omits are absent.

        Raises ValueError or ArithmeticError if a value has no canonical form; `judged` decodes such a tuple.
        """
        self._decoded += 1
        if self._decoded == GENERATED_AFTER:
            self.row = tuple_function(self._reads)  # type: ignore[assignment, method-assign]
        return _read_row(self._reads, data, at)

    def judged(self, data: bytes, at: int) -> tuple[Image, int]:
        """Return the same as `row`, but as a RefusedImage if values have no canonical form.

        It contains the server's text of these values.
        """
        row: dict[str, Canonical] = {}
        refused: dict[str, str] = {}
        at += 2
        for name, read in self._reads:
            kind = data[at]
            if kind == TEXT:
                start = at + 5
                at = start + U32(data, at + 1)[0]
                row[name] = value_of(name, read, data[start:at], refused)
            else:
                at += 1
                if kind == NULL:
                    row[name] = None
        return (RefusedImage(values=row, columns=refused) if refused else row), at

    def keyed(self, data: bytes, at: int) -> tuple[Image, int]:
        """Return the same as `row` for an old key, of which only the columns of the replica identity are valid."""
        image, at = self.judged(data, at)
        values = image.values if isinstance(image, RefusedImage) else image
        kept = {name: value for name, value in values.items() if name in self.key}
        if isinstance(image, RefusedImage):
            refused = {name: why for name, why in image.columns.items() if name in self.key}
            return (RefusedImage(values=kept, columns=refused) if refused else kept), at
        return kept, at


@lru_cache(256)  # each session describes its tables again
def tuple_function(columns: tuple[tuple[str, Read], ...]) -> TupleFunction:
    """Return the function from a message and a tuple's offset in it to its row, and the offset after it.

    It is generated for the table, without a loop over the columns, and raises what the columns' functions raise.
    """
    lines = ["def row(data, begin):", " at = begin + 2"]
    for number, (_, read) in enumerate(columns):
        value = _READS.get(read, f"r{number}(data[start:at])")
        lines += [
            " kind = data[at]",
            f" if kind == {TEXT}:",
            "  start = at + 5",
            "  at = start + U32(data, at + 1)[0]",
            f"  c{number} = {value}",
            f" elif kind == {NULL}:",
            f"  c{number} = None",
            "  at += 1",
            " else: return read_row(columns, data, begin)",
        ]
    members = ", ".join(f"n{number}: c{number}" for number in range(len(columns)))
    lines.append(f" return {{{members}}}, at")
    scope: dict[str, Any] = {"U32": U32, "columns": columns, "read_row": _read_row}
    scope |= {f"n{number}": name for number, (name, _) in enumerate(columns)}
    scope |= {f"r{number}": read for number, (_, read) in enumerate(columns)}
    exec("\n".join(lines), scope)  # only numbers of columns are in the text
    found: TupleFunction = scope["row"]
    return found


def _read_row(columns: tuple[tuple[str, Read], ...], data: bytes, at: int) -> tuple[Row, int]:
    """Return the row of a tuple that can omit columns, and the offset after it."""
    row: dict[str, Canonical] = {}
    at += 2
    for name, read in columns:
        kind = data[at]
        if kind == TEXT:
            start = at + 5
            at = start + U32(data, at + 1)[0]
            row[name] = read(data[start:at])
        else:
            at += 1
            if kind == NULL:
                row[name] = None
    return row, at


def keyed(image: Image, key: tuple[str, ...]) -> Image:
    """Return only the key columns of an image, because its other columns are invalid."""
    values = image.values if isinstance(image, RefusedImage) else image
    kept = {name: value for name, value in values.items() if name in key}
    if isinstance(image, RefusedImage):
        refused = {name: why for name, why in image.columns.items() if name in key}
        return RefusedImage(values=kept, columns=refused) if refused else kept
    return kept


def value_of(name: str, read: Read, value: bytes, refused: dict[str, str]) -> Canonical:
    """Return the canonical value of a column. Without one, return the server's text and put the reason into
    `refused`."""
    try:
        return read(value)
    except (ValueError, ArithmeticError) as error:
        refused[name] = str(error)
        return value.decode(errors="replace")


def image_of(reads: tuple[tuple[str, Read], ...], values: Iterator[bytes | None]) -> Image:
    """Convert a row of texts from a SELECT to an image; a value without canonical form makes it a RefusedImage."""
    row: dict[str, Canonical] = {}
    refused: dict[str, str] = {}
    for (name, read), value in zip(reads, values, strict=True):
        row[name] = None if value is None else value_of(name, read, value, refused)
    return RefusedImage(values=row, columns=refused) if refused else row


def json_rows(schema: TableSchema, table: TableShown) -> RowFunction:
    """Return the function from a row of texts from a SELECT to its key and image as JSON: those of `image_of`.

    It raises ValueError or ArithmeticError for a value without canonical form.
    """
    forms = tuple(_form(column.name, table.reads[column.name]) for column in schema.columns)
    return row_function(forms, schema.primary_key)


@lru_cache(4096)
def _form(name: str, read: Read) -> ColumnForm:
    if read is int:
        return ColumnForm(name, "number")
    if read is text:
        return ColumnForm(name, "text")
    return ColumnForm(name, "function", lambda value: orjson.dumps(read(value)))


def definition_of_relation(
    rows: RelationRows, shown: TableShown | None, known: TableDefinition | None
) -> TableDefinition:
    """Return a table's definition from a relation message.

    Columns and types are from the log, which contains neither nullability nor keys, nor the values in older rows. These
    are from the catalog (`shown`) if it still has the same columns, otherwise from `known`.
    """
    names = {column.name for column in rows.relation.columns}
    now = shown.definition if shown is not None else known
    known_columns = {column.name: column for column in (known.columns if known else ())}
    known_columns |= {column.name: column for column in (now.columns if now else ()) if column.name in names}
    columns = tuple(
        _column(column.name, typed.column_type, known_columns.get(column.name))
        for column, typed in zip(rows.relation.columns, rows.types, strict=True)
    )
    keys = tuple(key for key in (now.keys if now else ()) if set(key.columns) <= names)
    primary = next((key.columns for key in keys if key.kind == "primary"), ())
    if rows.relation.identity == "d" and rows.key and set(primary) != rows.key:
        ordered = tuple(column.name for column in rows.relation.columns if column.key)
        others = (key for key in keys if key.kind != "primary")
        keys = (Key(name="PRIMARY", kind="primary", columns=ordered), *others)
    return TableDefinition(columns=columns, keys=keys, identity=str(rows.relation.oid))


def _column(name: str, column_type: str, known: ColumnDefinition | None) -> ColumnDefinition:
    if known is None:
        return ColumnDefinition(name=name, column_type=column_type, nullable=True, charset=None)
    if known.column_type == column_type:
        return known
    return replace(known, column_type=column_type, initial=None, initial_known=False)


def unlike(definition: TableDefinition, known: TableDefinition | None) -> bool:
    """Return whether rows have another meaning than under the known definition: other columns or another key."""
    return known is None or definition.shown() != known.shown() or definition.identity != known.identity


Describe = Callable[[int], TableShown | None]

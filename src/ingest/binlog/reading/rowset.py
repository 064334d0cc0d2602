"""Typed rows and values: one interface to the rows of a binlog and to result sets of queries.

`RowEventSet` iterates over the rows of a rows event; for an update, before and after images alternate. `ResultSet`
iterates over the rows of a query. Both yield `TypedRow`s of `TypedValue`s. `Converter` converts a value to another
Python type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from struct import iter_unpack
from typing import Any, Final, overload

from ingest.binlog.format.codes import ColumnType
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.format.errors import UndecodableValue
from ingest.binlog.format.flavour import ABSENT
from ingest.binlog.json.diff import JsonDiffs
from ingest.binlog.json.jsonb import JSON_NULL
from ingest.binlog.reading.events import Rows
from ingest.binlog.reading.stream import RowBatch
from ingest.binlog.rows.convert import json_dumps


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedValue:
    """A value with its column type and metadata. `raw` is the decoder's value.

    `metadata` is that of the column in the TABLE_MAP (length, precision and scale). Values are equal if all three are.
    """

    type: ColumnType
    metadata: int
    raw: Any

    @property
    def is_null(self) -> bool:
        """Return whether the value is SQL's NULL; False for a JSON null."""
        return self.raw is None

    @property
    def is_absent(self) -> bool:
        """Return whether the row image does not contain the column, so that its value is unknown."""
        return self.raw is ABSENT

    def as_integer(self) -> int:
        """Return the value of an integer, BIT or YEAR column. Raises UndecodableValue for anything else."""
        if isinstance(self.raw, int) and not isinstance(self.raw, bool):
            return int(self.raw)
        raise UndecodableValue(f"{self.type.name} is not an integer", "use the Converter")

    def as_float(self) -> float:
        """Return the value of a FLOAT or DOUBLE column. Raises UndecodableValue for anything else."""
        if isinstance(self.raw, float):
            return self.raw
        raise UndecodableValue(f"{self.type.name} is not a floating-point number", "use the Converter")

    def as_bytes(self) -> bytes:
        """Return the bytes of a binary column, or those of a text in UTF-8. Raises UndecodableValue for anything
        else."""
        if isinstance(self.raw, bytes):
            return self.raw
        if isinstance(self.raw, str):
            return self.raw.encode()
        raise UndecodableValue(f"{self.type.name} has no bytes", "use the Converter")


class TypedRow(Sequence[TypedValue]):
    """The values of one row in column order, with their names."""

    def __init__(self, names: Sequence[str], values: Sequence[TypedValue]) -> None:
        self.names = tuple(names)
        self._values = tuple(values)

    @overload
    def __getitem__(self, index: int) -> TypedValue: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TypedValue]: ...
    def __getitem__(self, index: int | slice) -> TypedValue | Sequence[TypedValue]:
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def named(self, name: str) -> TypedValue:
        """Return the value of a column by its name. Raises KeyError if there is no such column."""
        try:
            return self._values[self.names.index(name)]
        except ValueError:
            raise KeyError(name) from None


def _metadata(column: LoggedColumn) -> int:
    if column.precision:
        return column.precision << 8 | column.scale
    return column.width or column.size or column.digits


class RowEventSet:
    """The rows of one rows event. An update has the before image and then the after image of each row."""

    def __init__(self, event: Rows | RowBatch) -> None:
        self._event = event
        self.table = event.table if isinstance(event, Rows) else event.decoder.table
        self.operation = event.operation
        self._names = [column.name for column in self.table.columns]
        self._shape = [(column.name, column.type, _metadata(column)) for column in self.table.columns]

    def __iter__(self) -> Iterator[TypedRow]:
        rows = self._event.rows() if isinstance(self._event, Rows) else self._event.rows
        for row in rows:
            if self.operation == "update":
                yield self._row(row[0])
                yield self._row(row[1])
            else:
                yield self._row(row)

    def pairs(self) -> Iterator[tuple[TypedRow | None, TypedRow | None]]:
        """Yield (before, after) of every change. `before` is None for an insert, `after` None for a delete."""
        images = iter(self)
        for image in images:
            if self.operation == "update":
                yield image, next(images)
            else:
                yield (None, image) if self.operation == "insert" else (image, None)

    def _row(self, row: Any) -> TypedRow:
        cells = row if isinstance(row, tuple) else tuple(row.get(name, ABSENT) for name in self._names)
        return TypedRow(
            self._names,
            [
                TypedValue(type=kind, metadata=size, raw=raw)
                for (_, kind, size), raw in zip(self._shape, cells, strict=True)
            ],
        )


# Column type codes of the client protocol that have another code in a TABLE_MAP.
_CLIENT_TYPES: Final = {7: ColumnType.TIMESTAMP2, 12: ColumnType.DATETIME2, 11: ColumnType.TIME2}


class ResultSet:
    """Typed rows of a query; takes `description` and rows of any DB-API cursor for MySQL."""

    def __init__(self, description: Iterable[Sequence[Any]], rows: Iterable[Sequence[Any]]) -> None:
        self._shape = [
            (str(d[0]), _CLIENT_TYPES.get(d[1], None) or ColumnType(d[1]), int(d[3] or 0)) for d in description
        ]
        self._rows = rows

    def __iter__(self) -> Iterator[TypedRow]:
        names = [name for name, _, _ in self._shape]
        for cells in self._rows:
            values = [
                TypedValue(type=kind, metadata=size, raw=cell)
                for (_, kind, size), cell in zip(self._shape, cells, strict=True)
            ]
            yield TypedRow(names, values)


class Converter:
    """Converts values to text as the server prints it, to numbers, or to Python objects.

    NULL always becomes None. Raises UndecodableValue if the conversion is not exact or makes no sense.
    """

    def to_text(self, value: TypedValue) -> str | None:
        """Return a value as the text that the server prints.

        None for SQL NULL. Raises UndecodableValue for a partial JSON update, and for bytes that are not UTF-8.
        """
        raw = self._present(value)
        if raw is None or isinstance(raw, str):
            return None if raw is None else (json_dumps(raw) if value.type is ColumnType.JSON else raw)
        if isinstance(raw, bytes):
            try:
                return raw.decode()
            except UnicodeDecodeError as error:
                raise UndecodableValue(f"{value.type.name}: the bytes are not UTF-8 text", "use as_bytes()") from error
        if raw is JSON_NULL:
            return "null"
        if isinstance(raw, JsonDiffs):
            raise UndecodableValue("a partial JSON update is not a text", "apply it to the old document first")
        if isinstance(raw, dict | list | bool):
            return json_dumps(raw)
        return str(raw)

    def to_integer(self, value: TypedValue) -> int | None:
        """Return a value as an integer. A decimal or floating-point number must be whole.

        None for SQL NULL. Raises UndecodableValue for other values.
        """
        raw = self._present(value)
        if raw is None:
            return None
        if isinstance(raw, bytes) and value.type is ColumnType.BIT:
            return int.from_bytes(raw, "big")
        try:
            number = Decimal(raw if isinstance(raw, int | float | Decimal) else str(raw))
        except ArithmeticError as error:
            raise UndecodableValue(f"{raw!r:.40} is not a number") from error
        if number != number.to_integral_value():
            raise UndecodableValue(f"{raw!r:.40} is not an integer", "request a decimal")
        return int(number)

    def to_float(self, value: TypedValue) -> float | None:
        """Return a value as the nearest floating-point number.

        None for SQL NULL. Raises UndecodableValue if it is not a number.
        """
        raw = self._present(value)
        try:
            return None if raw is None else float(raw)
        except (TypeError, ValueError) as error:
            raise UndecodableValue(f"{raw!r:.40} is not a number") from error

    def to_decimal(self, value: TypedValue) -> Decimal | None:
        """Return a value as an exact decimal number. None for SQL NULL. Raises UndecodableValue if it is not a
        number."""
        raw = self._present(value)
        try:
            return None if raw is None else Decimal(raw if isinstance(raw, int | float | Decimal) else str(raw))
        except ArithmeticError as error:
            raise UndecodableValue(f"{raw!r:.40} is not a number") from error

    def to_floats(self, value: TypedValue) -> list[float] | None:
        """Return the numbers of a VECTOR. None for SQL NULL. Raises UndecodableValue for other values."""
        raw = self._present(value)
        if raw is None:
            return None
        if not isinstance(raw, bytes) or len(raw) % 4:
            raise UndecodableValue(f"{value.type.name} is not a vector")
        return [number for (number,) in iter_unpack("<f", raw)]

    def to_json(self, value: TypedValue) -> Any:
        """Return a JSON document as Python objects; None for NULL and for a JSON null. Raises UndecodableValue for a
        text that is not JSON."""
        raw = self._present(value)
        if raw is None or raw is JSON_NULL:
            return None
        if not isinstance(raw, str | bytes) or value.type is ColumnType.JSON:
            return raw
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise UndecodableValue(f"{raw!r:.40} is not JSON") from error

    @staticmethod
    def _present(value: TypedValue) -> Any:
        if value.raw is ABSENT:
            raise UndecodableValue(
                "the row image lacks this column", "set binlog_row_image=FULL on the server, or check is_absent"
            )
        return value.raw

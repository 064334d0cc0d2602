"""Columns and values of a joined table in Iceberg: an Arrow type for each logical type, and the value of each cell.

A value must also fit HBase's encoding (`cdc.stored.values`), so that every sink stores and refuses the same rows.
"""

from __future__ import annotations

import base64
import decimal
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc.model.errors import UsageError
from cdc.model.types import Canonical, LogicalType, float_of
from cdc.stored.cells import RowCodec
from cdc.stored.layout import Layout
from cdc.stored.values import datetime_of, decoder, encoder
from joins.runtime.records import RowPut

# Columns of the stored rows that readers do not see: the bucket and the row key (`cdc.stored.cells`), batch and
# timestamp, the commit's time, the trace (`cdc.stored.traces`), and whether the row is deleted.
BUCKET, KEY, BATCH, TIMESTAMP, COMMITTED, TRACE, GONE = (
    "_bucket", "_key", "_batch", "_timestamp", "_ts", "_from", "_gone",
)  # fmt: skip
OWN: Mapping[str, pa.DataType] = {
    BUCKET: pa.int32(), KEY: pa.large_binary(), BATCH: pa.int64(), TIMESTAMP: pa.int64(), COMMITTED: pa.int64(),
    TRACE: pa.large_binary(), GONE: pa.bool_(),
}  # fmt: skip
_STAGED = (BUCKET, KEY, COMMITTED, TRACE, GONE)
_WIDEST_DECIMAL = 38
_TYPES = {
    "bool": pa.bool_(), "int8": pa.int32(), "int16": pa.int32(), "int32": pa.int32(), "int64": pa.int64(),
    "uint64": pa.decimal128(20, 0), "float32": pa.float32(), "float64": pa.float64(), "date": pa.date32(),
    "datetime": pa.timestamp("us"), "timestamp": pa.timestamp("us", tz="UTC"), "bytes": pa.large_binary(),
}  # fmt: skip
# the integers behind dates and times, which have no limits of Python's
_PLAIN = {"date": pa.int32(), "datetime": pa.int64(), "timestamp": pa.int64()}
ToCell = Callable[[Canonical], object]
FromCell = Callable[[Any], Canonical]


def column_type(type_: LogicalType) -> pa.DataType:
    """Return the type of a column. Decimals of more than 38 digits, times and geometries are texts."""
    if type_.element is not None:
        return pa.list_(column_type(type_.element))
    if type_.kind == "decimal":
        fits = type_.precision and type_.precision <= _WIDEST_DECIMAL
        return pa.decimal128(type_.precision, type_.scale) if fits else pa.large_string()
    return _TYPES.get(type_.kind, pa.large_string())


def _plain_type(type_: LogicalType) -> pa.DataType:
    if type_.element is not None:
        return pa.list_(_plain_type(type_.element))
    return _PLAIN.get(type_.kind, column_type(type_))


def to_cell(type_: LogicalType) -> ToCell:
    """Return a function from a canonical value (not None) to a value of the column's Arrow type. It raises ValueError,
    TypeError, OverflowError or struct.error for a value that is not of the type."""
    encode, decode = encoder(type_), decoder(type_)
    if type_.element is not None:
        member = to_cell(type_.element)

        def listed(value: Canonical) -> object:
            encode(value)
            assert isinstance(value, list)
            return [member(one) for one in value]

        return listed
    kind = type_.kind
    if kind in _PLAIN:
        form = struct.Struct(">i" if kind == "date" else ">q")
        return lambda value: form.unpack(encode(value))[0]
    if kind in ("uint64", "decimal"):
        exact = decimal.Decimal if column_type(type_) != pa.large_string() else str
        return lambda value: exact(str(decode(encode(value))))
    if kind == "bytes":
        return encode
    if kind in ("float32", "float64"):
        return lambda value: float(decode(encode(value)))  # type: ignore[arg-type]  # a number or NaN
    return lambda value: decode(encode(value))


def from_cell(type_: LogicalType) -> FromCell:
    """Return a function from a value of the column (not None), as `plain_column` yields it, to a canonical value;
    inverse of `to_cell`."""
    if type_.element is not None:
        member = from_cell(type_.element)
        return lambda cell: [member(one) for one in cell]  # type: ignore[misc]  # members are no lists and not NULL
    return _READ.get(type_.kind, lambda cell: cell)


def plain_column(column: pa.ChunkedArray, type_: LogicalType) -> list[Any]:
    """Return the cells of a column as values of Python; dates and times as integers."""
    return list(column.cast(column_type(type_)).cast(_plain_type(type_)).to_pylist())


_READ: dict[str, FromCell] = {
    "uint64": int,
    "decimal": lambda cell: format(cell, "f") if isinstance(cell, decimal.Decimal) else str(cell),
    "float32": float_of,
    "float64": float_of,
    "date": lambda cell: datetime_of(cell * 86_400_000_000)[:10] + "Z",
    "datetime": datetime_of,
    "timestamp": datetime_of,
    "bytes": lambda cell: base64.b64encode(cell).decode(),
}


def columns_of(layout: Layout) -> dict[str, pa.DataType]:
    """Return the type of each column that readers see. Raises UsageError for a name that not all readers of Iceberg can
    use."""
    found, folded = dict[str, pa.DataType](), set[str]()
    for column in layout.columns:
        name = column.name
        if name in OWN or "." in name or "\0" in name or name.casefold() in folded:
            what = f"table {layout.table}: a table in Iceberg cannot have a column {name[:100]!r}"
            raise UsageError(what, "give it another name in the query: AS …")
        folded.add(name.casefold())
        found[name] = column_type(column.type)
    return found


def staged_schema(layout: Layout) -> pa.Schema:
    """Return the schema of staged rows."""
    return pa.schema([*((name, OWN[name]) for name in _STAGED), *columns_of(layout).items()])


def stored_schema(layout: Layout) -> pa.Schema:
    """Return the schema of stored rows."""
    return pa.schema([*OWN.items(), *columns_of(layout).items()])


Cells = Sequence[object]


class RowCells:
    """Converts rows to cells, in the order of `staged_schema`. Rows that do not fit raise the errors of `to_cell`."""

    def __init__(self, layout: Layout) -> None:
        self._codec = RowCodec(layout)
        self._writers = [(column.name, to_cell(column.type), column_type(column.type)) for column in layout.columns]

    def row(self, values: Mapping[str, Canonical], put: RowPut | None) -> Cells:
        """Return the cells of a row."""
        key = self._codec.row_key(values)
        cells = [
            None if (value := values.get(name)) is None else write(value)
            for name, write, _ in self._writers
        ]  # fmt: skip
        if put is None:
            return [key[0], key, 0, b"", True, *cells]
        return [key[0], key, put.ts_ms, put.trace, False, *cells]


def staged_table(layout: Layout, rows: Sequence[Cells]) -> pa.Table:
    """Return rows as a table."""
    schema = staged_schema(layout)
    columns = [pa.array([row[at] for row in rows], one.type) for at, one in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def stamped(staged: pa.Table, layout: Layout, batch: int, timestamp: int) -> pa.Table:
    """Return staged rows as stored rows of a batch."""
    for name, value in ((BATCH, batch), (TIMESTAMP, timestamp)):
        staged = staged.append_column(name, pa.array([value] * len(staged), pa.int64()))
    schema = stored_schema(layout)
    return staged.select(schema.names).cast(schema)


def newest(rows: pa.Table) -> pa.Table:
    """Return the newest version of each row, by row key, without deleted rows. A put beats a delete of its batch."""
    order = pc.sort_indices(rows, [(KEY, "ascending"), (BATCH, "descending"), (GONE, "ascending")])
    rows = rows.take(order)
    if len(rows) > 1:
        keys = rows[KEY].combine_chunks()
        others = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))
        rows = rows.filter(
            pa.concat_arrays(
                [pa.array([True]), others.combine_chunks() if isinstance(others, pa.ChunkedArray) else others]
            )
        )
    return rows.filter(pc.invert(rows[GONE]))

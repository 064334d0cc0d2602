"""Convert the columns of a joined table to a schema of Iceberg, and create tables with it.

The ids of a column's field are equal in all versions of a table in which it has the same name and type, and in the
table that readers see, so that both can contain the same data files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from cdc.stored.layout import Layout
from joins.stores.iceberg.arrow_rows import BUCKET, OWN, columns_of

_FIRST_ID = 101  # of readers' columns; the ids before it are those of our own
_SIMPLE: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(), pa.int32(): IntegerType(), pa.int64(): LongType(), pa.float32(): FloatType(),
    pa.float64(): DoubleType(), pa.date32(): DateType(), pa.timestamp("us"): TimestampType(),
    pa.timestamp("us", tz="UTC"): TimestamptzType(), pa.large_binary(): BinaryType(), pa.large_string(): StringType(),
}  # fmt: skip
_OWN = Schema(
    *(
        NestedField(at, name, _SIMPLE[type_], required=False) for at, (name, type_) in enumerate(OWN.items(), start=1)
    )
)  # fmt: skip
_SPEC = PartitionSpec(PartitionField(_OWN.find_field(BUCKET).field_id, 1000, IdentityTransform(), BUCKET))
PROPERTIES = {
    # a commit that lost a race is not repeated by PyIceberg: the rows must be merged again
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "write.parquet.compression-codec": "zstd",
}


def columns_schema(layout: Layout, known: Iterable[Schema]) -> Schema:
    """Return the schema of the columns that readers see. `known` are the schemas that readers have seen so far."""
    fields = {(field.name, _bare(field.field_type)): field for schema in known for field in schema.fields}
    ids = _ids(max((_last(field) for field in fields.values()), default=0))
    found = []
    for name, type_ in columns_of(layout).items():
        wanted = _iceberg_type(type_, iter(range(_FIRST_ID)))
        same = fields.get((name, _bare(wanted)))
        if same is None:
            id_ = next(ids)
            same = NestedField(id_, name, _iceberg_type(type_, ids), required=False)
        found.append(same)
    return Schema(*found)


def _ids(last: int) -> Iterator[int]:
    return iter(range(max(_FIRST_ID, last + 1), 2**31))


def _last(field: NestedField) -> int:
    return field.field_type.element_id if isinstance(field.field_type, ListType) else field.field_id


def _iceberg_type(type_: pa.DataType, ids: Iterator[int]) -> IcebergType:
    if pa.types.is_list(type_):
        id_ = next(ids)
        return ListType(id_, _iceberg_type(type_.value_type, ids), element_required=False)
    if pa.types.is_decimal(type_):
        return DecimalType(type_.precision, type_.scale)
    return _SIMPLE[type_]


def _bare(type_: IcebergType) -> str:
    return f"list<{_bare(type_.element_type)}>" if isinstance(type_, ListType) else str(type_)


def set_schema(transaction: Transaction, schema: Schema) -> None:
    """Give a table another schema, with its ids, if it differs."""
    metadata = transaction.table_metadata
    if metadata.schema().fields == schema.fields:
        return
    number = max((one.schema_id for one in metadata.schemas), default=-1) + 1
    added = Schema(*schema.fields, schema_id=number)
    # PyIceberg's builders of schemas choose ids by themselves
    transaction._apply((AddSchemaUpdate(schema=added), SetCurrentSchemaUpdate()), ())


def create_rows_table(
    catalog: Catalog, identifier: tuple[str, str], columns: Schema, properties: dict[str, str], state: dict[str, str]
) -> Table:
    """Create the empty table of stored rows, partitioned by bucket. Raises TableAlreadyExistsError if it exists."""
    with catalog.create_table_transaction(
        identifier, _OWN, partition_spec=_SPEC, properties={**PROPERTIES, **properties}
    ) as transaction:
        set_schema(transaction, Schema(*_OWN.fields, *columns.fields))
        with transaction.update_snapshot(snapshot_properties=state).fast_append():
            pass
    return catalog.load_table(identifier)


def readers_columns(rows: Table) -> Schema:
    """Return the schema that readers see of stored rows."""
    return Schema(*(field for field in rows.schema().fields if field.name not in OWN))

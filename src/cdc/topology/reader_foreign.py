"""Read `foreign_tables:` of a topology file; `cdc.topology.reader` has the rest and the format of errors."""

from __future__ import annotations

from cdc.model.types import LogicalType, parse_type
from cdc.stored.foreign import ForeignField, ForeignTable
from cdc.topology.values import Section, Value

# Bytes.toBytes(BigDecimal) contains its scale, so a hand-written layout does not need it.
_ANY_DECIMAL = LogicalType(kind="decimal", precision=38, scale=0)


def foreign_table(name: str, s: Section) -> ForeignTable:
    """Read one external table."""
    return ForeignTable(
        name=name,
        table=s.take("table", _table_name),
        mapping=s.take("mapping", lambda v: v.one_of("row", "column"), "row"),
        read_row=s.take("read_row", lambda v: v.one_of("dynamic", "never"), "dynamic"),
        unique_key=s.take("unique_key", lambda v: v.one_of("string", "hex"), "string"),
        start_row=s.take("start_row", lambda v: v.text().encode(), None),
        stop_row=s.take("stop_row", lambda v: v.text().encode(), None),
        fields=s.take("fields", lambda v: _fields(v)),
    )


def _table_name(value: Value) -> str:
    text = value.text()
    return text if ":" in text else f"default:{text}"


def _fields(value: Value) -> tuple[ForeignField, ...]:
    found: list[ForeignField] = []
    for name, item in value.pairs().items():
        if not name or name.startswith("_"):
            item.fail(f"field {name!r}", "a name that does not start with _")
        s = item.section()
        family, qualifier = s.take("source", _source)
        found.append(
            ForeignField(
                name=name,
                family=family,
                qualifier=qualifier,
                take=s.take("take", lambda v: v.one_of("value", "qualifier"), "value"),
                type=s.take("type", _type),
            )
        )
        s.end()
    if not any(field.family for field in found):
        value.fail("no field of a column", "one field at least with source: family:qualifier")
    return tuple(found)


def _source(value: Value) -> tuple[str, str]:
    text = value.text()
    if text == "row":
        return "", ""
    family, colon, qualifier = text.partition(":")
    if not colon or not family or not qualifier:
        value.fail(repr(text), "family:qualifier, family:prefix* or row")
    return family, qualifier


def _type(value: Value) -> LogicalType:
    text = value.text()
    if text == "decimal":
        return _ANY_DECIMAL
    expected = "a logical type such as string, int32, int64, float64, bool, decimal, bytes"
    try:
        type_ = parse_type(text)
    except ValueError:
        value.fail(repr(text), expected)
    if type_.kind == "list":
        value.fail(repr(text), f"{expected}; a qualifier that ends in * makes a field of many values")
    return type_

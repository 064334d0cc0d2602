"""Read `foreign_tables:` of a topology file; `cdc.topology.reader` has the rest and the format of errors."""

from __future__ import annotations

from typing import get_args

from cdc.grammar.forms import TEXT, escaped, mapping, matching, one_of
from cdc.grammar.keys import DeclaredKey, Keys, Section, section
from cdc.grammar.values import Value
from cdc.model.types import Kind, LogicalType, parse_type
from cdc.stored.foreign import ForeignField, ForeignTable

# Bytes.toBytes(BigDecimal) contains its scale, so a hand-written layout does not need it.
_ANY_DECIMAL = LogicalType(kind="decimal", precision=38, scale=0)


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


def _source(value: Value) -> tuple[str, str]:
    text = value.text()
    if text == "row":
        return "", ""
    family, colon, qualifier = text.partition(":")
    if not colon or not family or not qualifier:
        value.fail(repr(text), "family:qualifier, family:prefix* or row")
    return family, qualifier


_KINDS = [kind for kind in get_args(Kind) if kind != "list"]
_FIELD: Keys = {
    "source": DeclaredKey(
        form=matching("row|[^:]+:(.|\\n)+", _source, "d:status", "d:tag_*", "row"),
        about="The origin of the field; a prefix that ends in * gives several values.",
        required=True,
    ),
    "take": DeclaredKey(
        form=one_of("value", "qualifier"), about="The cell's value, or the rest of its qualifier.", default="value"
    ),
    "type": DeclaredKey(
        form=matching(rf"{escaped(_KINDS)}|decimal\(\d+,\d+\)", _type, "string", "int64", "decimal"),
        about="How the bytes are decoded. `decimal` needs no digits.",
        required=True,
    ),
}
FOREIGN: Keys = {
    "table": DeclaredKey(form=TEXT, about="Its name in HBase: `name` or `namespace:name`.", required=True),
    "mapping": DeclaredKey(
        form=one_of("row", "column"), about="One document per row, or per cell that a field names.", default="row"
    ),
    "read_row": DeclaredKey(
        form=one_of("dynamic", "never"),
        about="Whether the indexer reads the row to complete a write.",
        default="dynamic",
    ),
    "unique_key": DeclaredKey(
        form=one_of("string", "hex"), about="How row keys become ids of documents.", default="string"
    ),
    "start_row": DeclaredKey(form=TEXT, about="The first row key. Default: no bound."),
    "stop_row": DeclaredKey(form=TEXT, about="The row key after the last one. Default: no bound."),
    "fields": DeclaredKey(
        form=mapping(section(_FIELD), names="^[^_]", at_least=1), about="Fields of the documents.", required=True
    ),
}


def foreign_table(name: str, s: Section) -> ForeignTable:
    """Read one external table."""
    return ForeignTable(
        name=name,
        table=_table_name(s.take("table")),
        mapping=s.take("mapping"),
        read_row=s.take("read_row"),
        unique_key=s.take("unique_key"),
        start_row=s.take("start_row", read=_bytes),
        stop_row=s.take("stop_row", read=_bytes),
        fields=s.take("fields", read=_fields),
    )


def _bytes(value: Value) -> bytes:
    return value.text().encode()


def _table_name(text: str) -> str:
    return text if ":" in text else f"default:{text}"


def _fields(value: Value) -> tuple[ForeignField, ...]:
    found: list[ForeignField] = []
    for name, item in value.pairs().items():
        if not name or name.startswith("_"):
            item.fail(f"field {name!r}", "a name that does not start with _")
        s = Section(item, _FIELD)
        family, qualifier = s.take("source")
        found.append(
            ForeignField(
                name=name,
                family=family,
                qualifier=qualifier,
                take=s.take("take"),
                type=s.take("type"),
            )
        )
        s.end()
    if not any(field.family for field in found):
        value.fail("no field of a column", "one field at least with source: family:qualifier")
    return tuple(found)

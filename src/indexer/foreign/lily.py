"""Convert Lily's indexer XML (hbase-indexer 1.x) into a topology, and list what could not be converted.

Source: hbase-indexer's documentation of the indexer configuration. Its formatters join row, family and qualifier with
hyphens and escape hyphens within them, as Tailorbird does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import yaml

from cdc.model.errors import UsageError

_TYPES = {
    "string": "string",
    "int": "int32",
    "long": "int64",
    "short": "int16",
    "boolean": "bool",
    "float": "float32",
    "double": "float64",
    "bigdecimal": "decimal",
}
_FORMATTERS = {
    "com.ngdata.hbaseindexer.uniquekey.StringUniqueKeyFormatter": "string",
    "com.ngdata.hbaseindexer.uniquekey.HexUniqueKeyFormatter": "hex",
}
_DEFAULT_MAPPER = "com.ngdata.hbaseindexer.parse.DefaultResultToSolrMapper"
# Attributes that Solr's schema replaces there, and the index's own name here.
_ATTRIBUTES = {"table", "mapping-type", "read-row", "unique-key-formatter", "mapper", "unique-key-field"}
_EXTRA_FIELDS = {"row-field", "column-family-field", "table-name-field"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTopology:
    """The topology as YAML text. `left_out` has one sentence for each element of the XML that could not be
    converted."""

    text: str
    left_out: tuple[str, ...]


def import_lily(xml: str, *, file: str, name: str) -> ImportedTopology:
    """Convert the XML of one hbase-indexer. Raises UsageError if `xml` is not such a configuration.

    `file` is the path for error messages. `name` becomes the name of the topology, its table and its index."""
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError as error:
        raise UsageError(
            f"{file}: not XML: {error}", "name the file that was passed to `hbase-indexer add-indexer -c`"
        ) from error
    if root.tag != "indexer" or not root.get("table"):
        raise UsageError(
            f"{file}: no <indexer table=…>", "name the file that was passed to `hbase-indexer add-indexer -c`"
        )
    left_out: list[str] = []
    table: dict[str, Any] = {
        "table": _table(root, left_out),
        "mapping": _one_of(root, "mapping-type", ("row", "column"), left_out),
        "read_row": _one_of(root, "read-row", ("dynamic", "never"), left_out),
        "unique_key": _formatter(root, left_out),
        "fields": {},
    }
    _mapper(root, left_out)
    if root.get("unique-key-field", "id") != "_id":
        left_out.append(f"unique-key-field {root.get('unique-key-field', 'id')}: documents have their key in `_id`")
    if row_field := root.get("row-field"):
        table["fields"][row_field] = {"source": "row", "type": "string"}
    for attribute in sorted(_EXTRA_FIELDS - {"row-field"}):
        if root.get(attribute):
            left_out.append(f"{attribute} {root.get(attribute)}: documents have no such field")
    for attribute in sorted(set(root.keys()) - _ATTRIBUTES - _EXTRA_FIELDS):
        left_out.append(f"attribute {attribute}={root.get(attribute)!r}: unknown")
    for child in root:
        if child.tag == "field":
            _field(child, table["fields"], left_out)
        elif child.tag == "extract":
            left_out.append(f"<extract {_shown(child)}>: text is not extracted from documents (Tika)")
        elif child.tag == "param":
            left_out.append(f"<param {_shown(child)}>: parameters of a mapper of Lily's")
        else:
            left_out.append(f"<{child.tag} {_shown(child)}>: unknown")
    topology = {"name": name, "foreign_tables": {name: table}, "indexes": {name: {"table": name}}}
    return ImportedTopology(
        text=yaml.safe_dump(topology, sort_keys=False, allow_unicode=True), left_out=tuple(left_out)
    )


def _table(root: ElementTree.Element, left_out: list[str]) -> str:
    found = root.get("table", "")
    if found.startswith("regex:"):
        left_out.append(f"table {found}: one table by name; write one foreign table for each that matched")
        return found.removeprefix("regex:")
    return found


def _one_of(root: ElementTree.Element, attribute: str, known: tuple[str, str], left_out: list[str]) -> str:
    found = root.get(attribute, known[0]).lower()
    if found in known:
        return found
    left_out.append(f"{attribute} {found}: {known[0]} instead")
    return known[0]


def _formatter(root: ElementTree.Element, left_out: list[str]) -> str:
    found = root.get("unique-key-formatter")
    if found is None or found in _FORMATTERS:
        return _FORMATTERS.get(found or "", "string")
    left_out.append(f"unique-key-formatter {found}: a class of your own; string instead")
    return "string"


def _mapper(root: ElementTree.Element, left_out: list[str]) -> None:
    found = root.get("mapper")
    if found not in (None, _DEFAULT_MAPPER):
        left_out.append(f"mapper {found}: only <field> is mapped; write its fields by hand")


def _field(field: ElementTree.Element, fields: dict[str, Any], left_out: list[str]) -> None:
    name, value, kind = field.get("name", ""), field.get("value", ""), field.get("type", "string")
    what = f"<field {_shown(field)}>"
    if kind not in _TYPES:
        left_out.append(f"{what}: type {kind} is a class of your own")
        return
    if not re.fullmatch(r"[^:]+:.+", value) or not name or name.startswith("_"):
        left_out.append(f"{what}: needs a name that does not start with _ and a value family:qualifier")
        return
    if "*" in value[:-1]:
        left_out.append(f"{what}: * only at the end")
        return
    if name in fields:
        left_out.append(f"{what}: another field of that name; a field has one source")
        return
    made = {"source": value, "type": _TYPES[kind]}
    if field.get("source", "value") == "qualifier":
        made["take"] = "qualifier"
    fields[name] = made


def _shown(element: ElementTree.Element) -> str:
    return " ".join(f'{key}="{value}"' for key, value in element.items())

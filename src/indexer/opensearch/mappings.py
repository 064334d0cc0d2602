"""Mappings of an index in OpenSearch, from the field types of Solr that documents are made for.

    field type       in OpenSearch
    boolean          boolean
    pint plong       integer, long
    pdouble          double; NaN and infinity are shown, not found
    string exact     keyword; a value of more than 8,191 characters is shown, not found
    stored           keyword that is neither indexed nor in doc values
    pdate            date (milliseconds); a year that OpenSearch cannot represent is not found
    words            text, with the standard analyser
    location         geo_point

The mapping is strict, so a field that it lacks is refused and never guessed. `meta` of a field contains its type, and
whether it takes several values, which OpenSearch itself does not distinguish. Derived fields are not in `_source`.

A document's id is in `_id` and in `_key`, since OpenSearch neither sorts nor selects by `_id`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from cdc.stored import fields
from indexer.index.mapping import Document, Field

KEY = "_key"
LONGEST_KEY = 32_766  # Lucene's limit of a term
_LONGEST_ID = 512
_LONGEST_FOUND = 8191  # characters of a keyword: of up to 4 bytes each

_TYPES: Mapping[str, Mapping[str, Any]] = {
    "boolean": {"type": "boolean"},
    "pint": {"type": "integer"},
    "plong": {"type": "long"},
    "pdouble": {"type": "double", "ignore_malformed": True},
    "string": {"type": "keyword", "ignore_above": _LONGEST_FOUND},
    "exact": {"type": "keyword", "ignore_above": _LONGEST_FOUND},
    "stored": {"type": "keyword", "index": False, "doc_values": False},
    "pdate": {"type": "date", "format": "strict_date_optional_time", "ignore_malformed": True},
    "words": {"type": "text"},
    "location": {"type": "geo_point", "ignore_malformed": True},
}
_OWN = {
    fields.FENCE: "plong",
    fields.KIND: "string",
    fields.TS: "plong",
    fields.INDEXED_AT: "plong",
    fields.BATCH: "plong",
    fields.LAYOUT: "pint",
    fields.ROW_KEY: "string",
    fields.TIMESTAMP: "plong",
    fields.BUCKETS: "pint",
    fields.POSITIONS: "stored",
    fields.INCOMPLETE: "plong",
}


def property_of(field: Field) -> dict[str, Any]:
    """Return the mapping of one field."""
    return {**_TYPES[field.type], "meta": {"type": field.type, "many": str(field.many).lower()}}


def properties_of(wanted: Iterable[Field]) -> dict[str, Any]:
    """Return the mappings of some fields by name."""
    return {field.name: property_of(field) for field in wanted}


def known_types(properties: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, bool]]:
    """Return the type of each field that Tailorbird has added, and whether it takes several values."""
    return {
        name: (one["meta"]["type"], one["meta"].get("many") == "true")
        for name, one in properties.items()
        if "type" in one.get("meta", {})
    }


def new_mapping() -> dict[str, Any]:
    """Return the mapping of a new index: Tailorbird's own fields."""
    own = properties_of(Field(name=name, type=kind, stored=True) for name, kind in _OWN.items())
    return {
        "dynamic": "strict",
        "_source": {"excludes": [f"{prefix}*" for prefix in fields.MADE]},
        "properties": {**own, KEY: {"type": "keyword", "ignore_above": LONGEST_KEY}},
    }


def id_of(key: str) -> str:
    """Return the `_id` of a document: its key, or a digest of a key that is too long for an `_id`."""
    if len(key) <= _LONGEST_ID:  # keys are hexadecimal, or escaped text of external tables
        encoded = key.encode()
        if len(encoded) <= _LONGEST_ID:
            return key
    return "sha256-" + hashlib.sha256(key.encode()).hexdigest()


def source_of(document: Document) -> dict[str, Any]:
    """Return what is stored of a document: everything but its `_id` and the version to compare."""
    source: dict[str, Any] = {
        name: value for name, value in document.items() if name not in (fields.UNIQUE_KEY, "_version_")
    }
    source[KEY] = document[fields.UNIQUE_KEY]
    return source


def document_of(source: Mapping[str, Any]) -> Document:
    """Return the document of which `source_of` made this. Derived fields are missing."""
    document: Document = {fields.UNIQUE_KEY: source[KEY]}
    document.update((name, value) for name, value in source.items() if name != KEY)
    return document

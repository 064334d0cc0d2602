"""What is published in place of values that their column's type cannot represent: NULL, or the server's text. Pure.

Capture and `verify` share it, so both sides of a comparison have the same value.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from cdc.model.filters import Unrepresentable
from cdc.model.schema import Column, TableSchema
from cdc.model.types import Canonical
from ingest.events.log_events import Image, RefusedImage, Row


def stand_in(image: Image, schema: TableSchema, setting: Unrepresentable) -> Image:
    """The image as a source's `unrepresentable` wants it; refused where no row can be published."""
    if not isinstance(image, RefusedImage) or image.why or setting == "dead_letter":
        return image
    if not image.columns.keys().isdisjoint(schema.primary_key):
        return image  # a key is never replaced: rows would be taken for one another
    return replaced(image.values, image.columns, schema, setting)


def replaced(values: Row, columns: Mapping[str, str], schema: TableSchema, setting: Unrepresentable) -> Row:
    """The values, with what is published in place of those of `columns`."""
    found = dict(values)
    for name in columns:
        found[name] = _text(schema.column(name), values[name]) if setting == "text" else None
    return found


def _text(column: Column | None, shown: object) -> Canonical:
    """A value's text, where the column's type in the envelope is one of texts; else NULL."""
    if column is not None and column.type.kind == "json":
        return orjson.dumps(str(shown)).decode()
    return str(shown) if column is not None and column.type.kind == "string" else None

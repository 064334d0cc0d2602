"""Replace values that their column's type cannot represent by NULL or by the server's text.

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
    """Apply a source's `unrepresentable` setting to an image. The image stays refused if no row can be published."""
    if not isinstance(image, RefusedImage) or image.why or setting == "dead_letter":
        return image
    if not image.columns.keys().isdisjoint(schema.primary_key):
        return image  # a key is never replaced: rows would be mistaken for one another
    return replaced(image.values, image.columns, schema, setting)


def replaced(values: Row, columns: Mapping[str, str], schema: TableSchema, setting: Unrepresentable) -> Row:
    """Return the values with replacements for those of `columns`."""
    found = dict(values)
    for name in columns:
        found[name] = _text(schema.column(name), values[name]) if setting == "text" else None
    return found


def _text(column: Column | None, shown: object) -> Canonical:
    """Return a value's text if the column's published type is textual, else NULL."""
    if column is not None and column.type.kind == "json":
        return orjson.dumps(str(shown)).decode()
    return str(shown) if column is not None and column.type.kind == "string" else None

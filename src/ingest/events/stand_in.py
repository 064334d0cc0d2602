"""Replace values that cannot be published in their column's type: by NULL, or by the server's text.

Capture and `verify` share this module, so that both compare the same values.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from cdc.model.filters import Unrepresentable
from cdc.model.schema import Column, TableSchema
from cdc.model.types import Canonical
from ingest.events.log_events import Image, RefusedImage, Row


def stand_in(image: Image, schema: TableSchema, setting: Unrepresentable) -> Image:
    """Apply a source's `unrepresentable` setting to an image.

    Returns a row, or a RefusedImage if the row cannot be published.
    """
    if not isinstance(image, RefusedImage) or image.why or setting == "dead_letter":
        return image
    if not image.columns.keys().isdisjoint(schema.primary_key):
        return image  # values of a key are never replaced, because rows would be confused with one another
    return replaced(image.values, image.columns, schema, setting)


def replaced(values: Row, columns: Mapping[str, str], schema: TableSchema, setting: Unrepresentable) -> Row:
    """Return a copy of the values, with those of `columns` replaced according to the setting."""
    found = dict(values)
    for name in columns:
        found[name] = _text(schema.column(name), values[name]) if setting == "text" else None
    return found


def _text(column: Column | None, shown: object) -> Canonical:
    """Return the server's text of a value if the column is published as text; otherwise NULL."""
    if column is not None and column.type.kind == "json":
        return orjson.dumps(str(shown)).decode()
    return str(shown) if column is not None and column.type.kind == "string" else None

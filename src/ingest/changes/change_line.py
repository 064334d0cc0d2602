"""Format a change as one line of text."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from cdc.formats.maxscale import number_of
from cdc.model.event import ChangeEvent
from cdc.model.schema import TableSchema

_NAMES = {"c": "insert", "r": "read", "u": "update", "d": "delete", "t": "truncate"}
_LONGEST = 60  # maximum characters of a value


def line_of(event: ChangeEvent, schema: TableSchema) -> str:
    """Return time, operation, key and values of a change as one line; of an update, only the changed values.

    Control characters are escaped.
    """
    at = f"{dt.datetime.fromtimestamp(event.source.ts_ms // 1000, dt.UTC):%Y-%m-%d %H:%M:%S}"
    row = event.after if event.after is not None else event.before
    table = event.source.table_id
    begin = f"{at}  {_NAMES[event.op]:8}  {table.source}.{table.table}"
    if row is None:
        return begin
    key = ", ".join(f"{name}={_shown(row.get(name))}" for name in schema.primary_key)
    return f"{begin}  {key}  {_values(event, row, schema)}  ({event.source.gtid or number_of(event)})"


def _values(event: ChangeEvent, row: Mapping[str, Any], schema: TableSchema) -> str:
    rest = [name for name in row if name not in schema.primary_key]
    if event.op == "u" and event.before is not None:
        before = event.before
        return ", ".join(
            f"{name}: {_shown(before.get(name))} → {_shown(row[name])}"
            for name in rest
            if before.get(name) != row[name]
        )
    return ", ".join(f"{name}={_shown(row[name])}" for name in rest)


def _shown(value: object) -> str:
    if value is None:
        return "NULL"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"

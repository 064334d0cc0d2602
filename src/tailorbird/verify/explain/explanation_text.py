"""Format an explanation as text for people and as JSON values for programs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import orjson

from tailorbird.verify.explain.explanation import ExplainedCell, Explanation, TracedEvent

_OPS = {"c": "inserted", "u": "updated", "d": "deleted", "r": "read"}


def lines_of(found: Explanation) -> Iterator[str]:
    """Yield the lines of an explanation: the row, its cells, then the events."""
    row = found.row
    yield f"{found.table}, row {row.row_key.hex()}: written in batch {row.batch}, timestamp {found.batch_timestamp}"
    yield f"  {_moment(found.batch_timestamp)}, layout {row.layout_id}, fence in Solr {found.fence}"
    for group, rows in sorted(found.groups.items()):
        yield f"  group {group} had {rows} rows; only the event of the newest change is shown"
    if found.unknown:
        yield f"  not explained: {found.unknown}"
    yield ""
    width = max((len(cell.column) for cell in found.cells), default=0)
    numbers = _numbers(found)
    for cell in found.cells:
        yield f"  {cell.column:{width}}  {_text(cell.value)}  ← {_from(cell, numbers)}"
    for event in found.events:
        yield ""
        yield from _event(event, numbers[event.node])


def _numbers(found: Explanation) -> dict[int, int]:
    """Return the numbers of the events, from 1, by node. Text and JSON show the same numbers."""
    return {event.node: number for number, event in enumerate(found.events, start=1)}


def _from(cell: ExplainedCell, numbers: dict[int, int]) -> str:
    events = ", ".join(f"[{numbers[node]}]" for node in cell.events if node in numbers)
    reported = f"{cell.expression}  {events}".rstrip()
    if cell.agrees is False:
        reported += f"  DIFFERS: the event says {', '.join(map(_text, cell.event_values.values()))}"
    elif cell.agrees is None and cell.event_values:
        reported += "  of " + ", ".join(f"{name} {_text(value)}" for name, value in cell.event_values.items())
    return reported


def _event(event: TracedEvent, number: int) -> Iterator[str]:
    named = f"{event.alias} {event.table}" if event.alias and event.alias != event.table else event.table
    yield f"  [{number}] {named}  topic {event.topic}, partition {event.partition}, offset {event.offset}"
    if event.state != "found":
        yield f"      {event.why}"
    if event.source is None:
        return
    source = event.source
    when, what = _moment(source.get("ts_ms") or 0), _OPS.get(event.op, event.op)
    yield f"      {what}, row {_text(event.key)}, committed {when}, table {source.get('db')}.{source.get('table')}"
    version = "not known" if event.schema_version is None else event.schema_version
    place = f"{source.get('file')}:{source.get('pos')}" if source.get("file") else "not logged"
    yield f"      gtid {source.get('gtid') or '-'}, file {place}, schema version {version}"


def json_of(found: Explanation) -> dict[str, Any]:
    """Return the JSON object that `--json` prints. Positions are as in the envelope, values are canonical."""
    row, numbers = found.row, _numbers(found)
    return {
        "table": found.table,
        "row_key": row.row_key.hex(),
        "timestamp_ms": found.batch_timestamp,
        "fence": found.fence,
        "layout": row.layout_id,
        "batch": row.batch,
        "groups": {str(group): rows for group, rows in found.groups.items()},
        "unknown": found.unknown,
        "cells": [_json_of_cell(cell, numbers) for cell in found.cells],
        "events": [_json_of_event(event, numbers[event.node]) for event in found.events],
    }


def _json_of_cell(cell: ExplainedCell, numbers: dict[int, int]) -> dict[str, Any]:
    events = [numbers[node] for node in cell.events if node in numbers]
    return {
        "column": cell.column, "value": cell.value, "expression": cell.expression,
        "events": events, "event_values": dict(cell.event_values), "agrees": cell.agrees,
    }  # fmt: skip


def _json_of_event(event: TracedEvent, number: int) -> dict[str, Any]:
    source = event.source or {}
    return {
        "event": number, "alias": event.alias, "table": event.table,
        "topic": event.topic, "partition": event.partition, "offset": event.offset,
        "state": event.state, "why": event.why, "op": event.op, "key": event.key,
        "gtid": source.get("gtid"), "file": source.get("file"), "pos": source.get("pos"),
        "committed_ms": source.get("ts_ms"), "schema_version": event.schema_version,
    }  # fmt: skip


def _text(value: object) -> str:
    return orjson.dumps(value).decode()


def _moment(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat(sep=" ", timespec="milliseconds")

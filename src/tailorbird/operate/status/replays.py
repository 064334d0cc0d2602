"""Plan how dead letters are processed again, where that is possible and safe."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source, Topology
from ingest.postgres import selects
from ingest.records.chunks import literal, quoted
from tailorbird.operate.status.dead_letters import DeadLetterRow, remedy_of

MOST_KEYS = 100  # rows of a table that are read again one by one; for more the whole table is read
_PLAIN = {"int8", "int16", "int32", "int64", "uint64", "decimal", "string"}


@dataclass(slots=True, kw_only=True)
class Replay:
    """The actions that process dead letters again.

    - `rereads`: captured table → SQL conditions, one per row to read again; an empty list means the whole table.
    - `rows`: index → row keys to index again.
    - `by_hand`: dead letters that only the user can settle, each with the remedy.
    - `done`: captured table or index → the dead letters that these actions settle."""

    rereads: dict[TableId, list[str]] = field(default_factory=dict)
    rows: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    by_hand: list[tuple[DeadLetterRow, str]] = field(default_factory=list)
    done: dict[str, list[DeadLetterRow]] = field(default_factory=lambda: defaultdict(list))


def replay_of(
    topology: Topology,
    dead_letters: Iterable[tuple[DeadLetterRow, Mapping[str, Any]]],
    schemas: Mapping[TableId, TableSchema],
) -> Replay:
    """Return the actions for dead letters. Each comes with the JSON of its record.

    `schemas` are the newest schemas of the captured tables. A row is read again by its key. The whole table is read
    if a key is unknown, or if the dead letter is a delete, because only a full snapshot detects deleted rows."""
    replay = Replay()
    found: dict[TableId, list[str | None]] = defaultdict(list)
    for dead_letter, reported in dead_letters:
        if dead_letter.stage == "indexer" and dead_letter.of in topology.indexes:
            replay.rows[dead_letter.of].append(bytes.fromhex(dead_letter.key))
            replay.done[dead_letter.of].append(dead_letter)
            continue
        table = topology.table_named(dead_letter.table) if dead_letter.reads else None
        if table is None or _cannot_be_asked(topology.sources[table.source]):
            replay.by_hand.append((dead_letter, _by_hand(topology, dead_letter, table)))
            continue
        postgres = topology.sources[table.source].type == "postgresql"
        found[table].append(condition_of(dead_letter, reported, schemas.get(table), postgres=postgres))
        replay.done[str(table)].append(dead_letter)
    for table, conditions in found.items():
        rows = list(dict.fromkeys(each for each in conditions if each is not None))
        replay.rereads[table] = rows if None not in conditions and len(rows) <= MOST_KEYS else []
    return replay


def where_of(conditions: Sequence[str]) -> str:
    """Return the WHERE condition of a snapshot that reads only some rows. Empty for the whole table."""
    return " OR ".join(f"({each})" for each in conditions)


def condition_of(
    dead_letter: DeadLetterRow, reported: Mapping[str, Any], schema: TableSchema | None, *, postgres: bool = False
) -> str | None:
    """Return the SQL condition that selects a record's row by key, in the syntax of its server.

    `reported` is the JSON of the record. None if the whole table must be read."""
    if schema is None or not schema.primary_key:
        return None
    values = reported.get("values") if dead_letter.stage == "capture" else _key_of(reported)
    if not isinstance(values, Mapping):
        return None
    parts = []
    for name in schema.primary_key:
        column, value = schema.column(name), values.get(name)
        if column is None or value is None or column.type.kind not in _PLAIN or isinstance(value, bool | dict | list):
            return None
        if column.column_type.startswith(("enum", "set", "bit")):
            return None
        try:
            if postgres:
                parts.append(f"{selects.quoted(name)} = {selects.literal(str(value))}")
            else:
                parts.append(f"{quoted(name)} = {literal(column, str(value))}")
        except ValueError:
            return None
    return " AND ".join(parts)


def _key_of(reported: Mapping[str, Any]) -> object:
    """Return the key in the JSON of a dead letter, as capture publishes it. None for a delete or an unreadable
    record."""
    try:
        envelope = orjson.loads(base64.b64decode(str(reported.get("value") or "")))
        found: object = orjson.loads(base64.b64decode(str(reported.get("key") or "")))
    except ValueError:  # base64's error is also a ValueError
        return None
    return found if isinstance(envelope, dict) and envelope.get("op") in ("c", "u", "r") else None


def _cannot_be_asked(source: Source) -> bool:
    """Return whether a source does not support reading single rows again: it is polled, or others capture it."""
    return source.poll is not None or source.is_only_reported


def _by_hand(topology: Topology, dead_letter: DeadLetterRow, table: TableId | None) -> str:
    if table is None:
        return remedy_of(dead_letter, topology.file)
    resolve = f"`tailorbird dead-letters resolve {topology.file} {dead_letter.id}`"
    if topology.sources[table.source].is_only_reported:
        return f"table {table} is filled by an external sender: send the row again, then {resolve}"
    return f"table {table} is polled: change the row at its source, so that it is read again, then {resolve}"

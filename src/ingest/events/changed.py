"""Result of a schema change: what capture publishes about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc.model.history import Record as HistoryRecord
from cdc.model.schema import TableId, TableSchema
from ingest.binlog.reading.effects import TableEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesChanged:
    """Result of a schema change: history records, schemas to publish, effects on whole tables such as TRUNCATE.

    `numbered`: it took a sequence number. `refused` maps captured tables that are in quarantine from here on to the
    reason. `rewritten` are captured tables to re-read, because only the server knows their new values. `existed` are
    the captured tables that a statement names or changes, and that existed before it. `before` are the schemas of those
    of them that were published. `tables` are all tables that may be published differently from here on. `merged` are
    the new schemas of merged tables.
    """

    history: Sequence[HistoryRecord] = ()
    schemas: tuple[TableSchema, ...] = ()
    effects: tuple[TableEffect, ...] = ()
    refused: Mapping[TableId, str] | None = None
    numbered: bool = False
    rewritten: tuple[TableId, ...] = ()
    existed: tuple[TableId, ...] = ()
    tables: frozenset[TableId] = frozenset()
    merged: tuple[TableSchema, ...] = ()
    before: Mapping[TableId, TableSchema] = field(default_factory=dict)

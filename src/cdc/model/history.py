"""Schema history of a source: the columns of each table at every position since capture started.

`History().record(change)` for each change in order builds the history. A schema change takes the next number of the
source's `sequence`, like a row change. So one number orders both, even if a fail-over changes the server and its log
files. Recording a change again has no effect. A statement that was not understood can be amended later, under its own
number, by metadata in the log or by an operator. Rows that were quarantined since then can then be decoded.

The history is stored in the compacted topic `…history`, one record per table and change. `checkpoint` replaces all
records before a position to which no reader returns by one record per table. So a start reads about one record per
table, however many changes there were. Records may be read in any order.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import orjson

from cdc.model.errors import Fatal, Skippable
from cdc.model.event import Position
from cdc.model.schema import TableId, TableSchema, schema_from_json
from cdc.packed import packed, unpacked
from cdc.persistent import PersistentMap, persistent

FORMAT = 1
_REMEDY = "the next TABLE_MAP event contains them, or use `tailorbird schema set`"
Record = tuple[str, Mapping[str, Any] | None]  # key and value in the topic; the value None is a tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """State of one table after a schema change: its columns, or no table, or columns that are not known.

    A dropped table has neither `schema` nor `unknown`. A table in quarantine has no `schema`, and `unknown` is the
    reason why its columns are not known. `version` is the number of its last schema. Numbers are never reused, even if
    the table is dropped and created again. `detail` is what the DDL parser also needs (keys, default character set),
    stored as it is. It is held compressed, because it is rarely read.
    """

    table_id: TableId
    schema: TableSchema | None
    version: int
    unknown: str = ""
    detail: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.detail is not None:
            object.__setattr__(self, "detail", packed(self.detail))


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """Default character set and collation of a database (None: unknown). `gone`: the database was dropped."""

    source: str
    database: str
    charset: str | None
    gone: bool = False
    collation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A schema change and the states of the tables and databases after it.

    `ddl` is the statement, or empty if the columns come from metadata of the log or of the server. `position` is the
    one after the change: rows from its sequence number on have the new columns.
    """

    position: Position
    ddl: str
    tables: tuple[TableState, ...]
    databases: tuple[DatabaseState, ...] = ()


_Entry = tuple[int, TableState | DatabaseState]
_Name = tuple[str, str, str]  # source, database, table; an empty table name is the database itself


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All states of all tables of one source. It is immutable: `record` and `amend` return the next one.

    `first` is the sequence number from which on the history is known (0: from the beginning).
    """

    first: int = 0
    _entries: Mapping[_Name, tuple[_Entry, ...]] = field(default_factory=dict)

    def record(self, change: SchemaChange) -> History:
        """Return the history with a change. A change whose number it already contains, amended or not, is ignored.

        Raises Fatal if a table has a later change, but not this one: positions were mixed up. The content of a log
        cannot cause this, because its reader numbers each change above all earlier ones and commits both together.
        """
        entries, number = persistent(self._entries), change.position.sequence
        added: dict[_Name, tuple[_Entry, ...]] = {}
        for name, state in _states(change):
            known = entries.get(name, ())
            if number < self.first or any(at == number for at, _ in known):
                continue
            if known and known[-1][0] > number:
                raise Fatal(
                    f"a change of {'.'.join(name).rstrip('.')} at sequence {number} follows one at {known[-1][0]}",
                    "the position and the schema history belong to different runs; take a new snapshot",
                )
            added[name] = (*known, (number, state))
        return replace(self, _entries=entries.updated(added))

    def amend(self, state: TableState) -> tuple[History, int]:
        """Replace the newest state of a table with later information. Return the history, and the number of that state.

        Raises KeyError for a table that the history does not contain, because that is a new change.
        """
        name = (state.table_id.source, state.table_id.database, state.table_id.table)
        *before, (number, _) = self._entries[name]
        entries = persistent(self._entries).put(name, (*before, (number, state)))
        return replace(self, _entries=entries), number

    def held(self, table_id: TableId, number: int) -> TableState | None:
        """Return the state of a table that the change with exactly this sequence number recorded; None if there is no
        such change."""
        entries = self._entries.get((table_id.source, table_id.database, table_id.table), ())
        return next((s for at, s in entries if at == number and isinstance(s, TableState)), None)

    def state_at(self, table_id: TableId, position: Position) -> TableState | None:
        """Return the state of a table at a position; None if the table did not exist.

        Raises Fatal for a position before the beginning of the history.
        """
        found = self._at((table_id.source, table_id.database, table_id.table), position.sequence)
        return found if isinstance(found, TableState) else None

    def schema_at(self, table_id: TableId, position: Position) -> TableSchema:
        """Return the schema of a table's rows at a position.

        Raises Skippable if there is none: the table did not exist, or a statement was not understood. Its rows are
        quarantined as bytes and decoded again once the columns are known. Raises Fatal before the history's beginning.
        """
        state = self.state_at(table_id, position)
        if state is not None and state.schema is not None:
            return state.schema
        if state is not None and state.unknown:
            raise Skippable(f"the columns of table {table_id} are not known: {state.unknown}", _REMEDY)
        raise Skippable(f"table {table_id} has no columns at sequence {position.sequence}", _REMEDY)

    def tables_at(self, position: Position) -> Iterator[TableState]:
        """Yield all tables that exist at a position, including those in quarantine, ordered by name. Raises Fatal for a
        position before the beginning of the history."""
        for name in sorted(self._entries):
            state = self._at(name, position.sequence)
            if isinstance(state, TableState) and (state.schema is not None or state.unknown):
                yield state

    def databases_at(self, position: Position) -> Iterator[DatabaseState]:
        """Yield all databases that exist at a position, ordered by name. Raises Fatal for a position before the
        beginning of the history."""
        for name in sorted(self._entries):
            state = self._at(name, position.sequence)
            if isinstance(state, DatabaseState) and not state.gone:
                yield state

    def last_state(self, table_id: TableId) -> TableState | None:
        """Return the newest state of a table; None if it was never seen."""
        entries = self._entries.get((table_id.source, table_id.database, table_id.table), ())
        state = entries[-1][1] if entries else None
        return state if isinstance(state, TableState) else None

    def since(self, position: Position) -> History:
        """Return the history from a position on, without states that were superseded before. It cannot answer for
        earlier ones."""
        number = position.sequence
        entries: dict[_Name, tuple[_Entry, ...]] = {}
        for name, known in self._entries.items():
            index = max(bisect_right(known, number, key=_number) - 1, 0)
            entries[name] = known[index:]
        return replace(self, first=max(self.first, number), _entries=PersistentMap(entries))

    def _at(self, name: _Name, number: int) -> TableState | DatabaseState | None:
        if number < self.first:
            raise Fatal(
                f"the schema history begins at sequence {self.first}, {number} was asked for",
                "begin at a newer position, or take a new snapshot",
            )
        known = self._entries.get(name, ())
        index = bisect_right(known, number, key=_number)
        return known[index - 1][1] if index else None


def _number(entry: _Entry) -> int:
    return entry[0]


def _states(change: SchemaChange) -> Iterator[tuple[_Name, TableState | DatabaseState]]:
    for table in change.tables:
        yield (table.table_id.source, table.table_id.database, table.table_id.table), table
    for database in change.databases:
        yield (database.source, database.database, ""), database


def records(change: SchemaChange) -> Iterator[Record]:
    """Yield the records that store a change or an amendment, one per table or database.

    An amendment is a change with the sequence number of the change that it amends; its record replaces that one.
    """
    for name, state in _states(change):
        number = change.position.sequence
        yield _key("change", name, number), {**_value(state), "sequence": number, "ddl": change.ddl}


@dataclass(frozen=True, slots=True)
class ChangeRecords(Sequence[Record]):
    """The `records` of a change, each made when it is read: those of all tables of a large server take 200 MiB."""

    change: SchemaChange

    def __iter__(self) -> Iterator[Record]:
        return records(self.change)

    def __len__(self) -> int:
        return len(self.change.tables) + len(self.change.databases)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return tuple(self)[index]


def checkpoint(history: History, position: Position) -> Iterator[Record]:
    """Yield records that replace everything before `position`: one state per table, then tombstones for the table's
    changes.

    The caller writes them in this order, in one transaction, and never returns to an older position afterwards.
    """
    number = position.sequence
    for name, known in sorted(history._entries.items()):
        index = bisect_right(known, number, key=_number)
        if index:
            yield _key("state", name), {**_value(known[index - 1][1]), "sequence": known[index - 1][0], "first": number}
    for name, known in sorted(history._entries.items()):
        for at, _ in known[: bisect_right(known, number, key=_number)]:
            yield _key("change", name, at), None


def history_from_records(found: Iterable[Record], source: str) -> History:
    """Return the history of a source from all records of the topic, in any order; the last record of each key counts.

    Raises ValueError for records of a format that this version cannot read.
    """
    latest = dict(found)
    entries: dict[_Name, dict[int, TableState | DatabaseState]] = {}
    first = 0
    # states come before changes, because a change may amend the origin of a state
    for key, value in sorted(latest.items(), key=lambda record: orjson.loads(record[0])[0] == "change"):
        if value is None or orjson.loads(key)[0] not in ("state", "change"):
            continue
        value = unpacked(value)
        if value["source"] != source:
            continue
        if value["format"] != FORMAT:
            raise ValueError(f"schema history record of format {value['format']}, this version reads {FORMAT}")
        name = (source, value["database"], value.get("table", ""))
        entries.setdefault(name, {})[value["sequence"]] = _state(value)
        first = max(first, value.get("first", 0))
    return History(
        first=first, _entries={name: tuple(sorted(known.items(), key=_number)) for name, known in entries.items()}
    )


def restated(
    record: Record, stored: Callable[[TableState | DatabaseState], TableState | DatabaseState | None]
) -> Record:
    """Return a stored record with what `stored` leaves of its state, and without a statement. A tombstone if that is
    nothing."""
    key, value = record
    if value is None or orjson.loads(key)[0] not in ("state", "change"):
        return record
    value = unpacked(value)
    state = stored(_state(value))
    if state is None:
        return key, None
    kept = {name: one for name, one in value.items() if name in ("sequence", "first")}
    return key, {**_value(state), **kept, **({"ddl": ""} if "ddl" in value else {})}


def _key(kind: str, name: _Name, number: int | None = None) -> str:
    return json.dumps([kind, *name] if number is None else [kind, *name, number])


def _value(state: TableState | DatabaseState) -> dict[str, Any]:
    if isinstance(state, DatabaseState):
        stored = {
            "format": FORMAT,
            "source": state.source,
            "database": state.database,
            "charset": state.charset,
            "gone": state.gone,
        }
        return stored if state.collation is None else {**stored, "collation": state.collation}
    return {
        "format": FORMAT,
        "source": state.table_id.source,
        "database": state.table_id.database,
        "table": state.table_id.table,
        "schema": state.schema.to_json() if state.schema else None,
        "version": state.version,
        "unknown": state.unknown,
        "detail": None if state.detail is None else unpacked(state.detail),
    }


def _state(value: Mapping[str, Any]) -> TableState | DatabaseState:
    if "table" not in value:
        return DatabaseState(
            source=value["source"],
            database=value["database"],
            charset=value["charset"],
            gone=value["gone"],
            collation=value.get("collation"),
        )
    return TableState(
        table_id=TableId(source=value["source"], database=value["database"], table=value["table"]),
        schema=schema_from_json(value["schema"]) if value["schema"] else None,
        version=value["version"],
        unknown=value["unknown"],
        detail=value["detail"],
    )

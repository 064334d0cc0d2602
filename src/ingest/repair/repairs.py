"""Repair rows whose changes the log contains only in part or not at all: search, re-read and correct them.

A repair starts in two cases. A row image lacks columns: its key is known. Or a parent's change cascades to child rows:
values of their foreign keys are known, and a search of the topic finds their keys. From then on the keys are *held*:
changes of these rows are not published. After this is committed, the topic is searched for the images of the rows. The
rows are read by key under a watermark, like a snapshot's chunk, and changes logged during the read are applied to the
result. Then corrections are published that lead from the images in the topic to the current row, and the key is
released. So no reader receives a retraction of an image that the topic does not contain. A change that was published
before its key was held may leave an image that no record retracts; the repair retracts it, too.

The checkpoint contains a repair until its corrections are committed. Results of searches and reads are not stored; they
are repeated after a crash. If there are too many keys, or rows without a usable key, the whole table is re-read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import orjson

from cdc.model.errors import Skippable
from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from ingest.events.foreign_keys import ChangedChildren, ForeignKeys, changed_children_from, foreign_keys_from
from ingest.events.log_events import Image, RefusedImage, RowsLogged, RowsPartial
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import Record
from ingest.records.chunk_requests import Chunk, ChunkRequest
from ingest.records.findings import Search
from ingest.records.records import Recorder
from ingest.records.snapshots import Snapshots
from ingest.repair.patches import Row, RowPatch, key_of

# keys in repair per table; above it, the whole table is re-read, because checkpoints contain all keys
MOST = 5000
_dumps = orjson.dumps
_NULL = b"null"
Kind = Literal[
    "statement", "partial", "cascade", "incident", "xa", "rollback", "catalog"
]  # includes `log_events.NotLoggedReason`
_KINDS = (*get_args(Kind), "named", "rows")


@dataclass(slots=True)
class TableRepair:
    """The repair of one table. `keys` are held; `lost` are child rows whose keys are not known yet.

    `fresh`: the repair has changed since the last commit. A repair proceeds in rounds; `round_keys` and
    `round_children` are what the current round repairs. `patches` are changes logged during the read. `after_chunk` is
    the number of a snapshot chunk that must be published first, because it may show rows before their change.
    `began_ms` is when the round began. The next one begins after `rests_until_ms`.
    """

    keys: dict[bytes, Row] = field(default_factory=dict)
    lost: dict[ChangedChildren, None] = field(default_factory=dict)
    fresh: bool = True
    stage: Literal["waiting", "finding", "holding", "reading"] = "waiting"
    round_keys: list[bytes] = field(default_factory=list)
    round_children: list[ChangedChildren] = field(default_factory=list)
    search: Search | None = None
    request: ChunkRequest | None = None
    chunk: Chunk | None = None
    patches: dict[bytes, RowPatch] = field(default_factory=dict)
    began_ms: int = 0
    rests_until_ms: int = 0
    after_chunk: int | None = None

    def restart(self) -> None:
        """Discard the results of searches and reads, and start the round again."""
        if self.search is not None:
            self.search.given_up = True
        self.stage, self.search, self.request, self.chunk, self.fresh = "waiting", None, None, None, True
        self.patches.clear()


class OpenRepairs:
    """The open repairs of one source; they run next to its snapshots. `number` returns the next sequence number.

    `state` is their state in a checkpoint. `follow`: also repair rows that foreign keys change.
    """

    def __init__(
        self, recorder: Recorder, tables: Tables, snapshots: Snapshots, state: Mapping[str, Any], *, follow: bool = True
    ) -> None:
        self.recorder, self.tables, self._follow = recorder, tables, follow
        self.snapshots = snapshots
        self.repairs = {
            self._id(name): TableRepair(
                keys={_dumps(key): key for key in entry["keys"]},
                lost={changed_children_from(one): None for one in entry["lost"]},
                fresh=False,
            )
            for name, entry in state.get("tables", {}).items()
        }
        self.again: dict[str, int] = dict(state.get("again", {}))
        self.foreign_keys = foreign_keys_from(state.get("relations", ()) if follow else (), tables.source)
        self._hidden = self._hidden_references()
        self.parents = set(self.foreign_keys.by_parent)  # shared with `RepairingTransactions`: change it in place
        self.asks, self.unsure = False, follow
        self.number: Callable[[], int] = lambda: 0
        self.moved = False
        self.counts: dict[str, int] = dict.fromkeys(_KINDS, 0)
        self._news: list[tuple[str, str]] = []
        self._chased: set[tuple[TableId, ChangedChildren, int]] = set()  # children of rows that a marker removed

    def take_moved(self) -> bool:
        """Return whether there was something to commit since the last call."""
        moved, self.moved = self.moved, False
        return moved

    def __bool__(self) -> bool:
        return bool(self.repairs or self.again)

    def held(self, table: TableId) -> Mapping[bytes, Row]:
        """Return the held keys of a table, by their JSON text. Changes of these rows are not published."""
        repair = self.repairs.get(table)
        return repair.keys if repair is not None else {}

    @property
    def open(self) -> Mapping[TableId, TableRepair]:
        """Return the open repairs by table."""
        return self.repairs

    @property
    def state(self) -> Mapping[str, Any]:
        """Return the state to store in a checkpoint; empty if there is nothing to repair."""
        tables = {
            name_of(table): {"keys": list(repair.keys.values()), "lost": [one.to_json() for one in repair.lost]}
            for table, repair in self.repairs.items()
        }
        foreign_keys = self.foreign_keys.to_json()
        known = {"tables": tables, "again": dict(self.again), "relations": foreign_keys}
        return {name: value for name, value in known.items() if value}

    def committed(self) -> None:
        """Confirm that `state`, and every record published before it, is committed."""
        for repair in self.repairs.values():
            repair.fresh = False

    def clear(self) -> None:
        """Drop all repairs, because all tables are re-read anyway."""
        for table in list(self.repairs):
            self.drop(table)
        self.again.clear()

    def drop(self, table: TableId) -> None:
        """Drop the repair of a table that is re-read: the marker at the end removes outdated rows."""
        repair = self.repairs.pop(table, None)
        if repair is not None:
            repair.restart()

    def void(self, table: TableId) -> None:
        """Restart the repair of a table, because the table changed as a whole, or a marker was published in its
        topic."""
        repair = self.repairs.get(table)
        if repair is not None:
            repair.restart()
            self.moved = True

    def marked(self, names: Iterable[str]) -> None:
        """Restart the repairs of tables whose snapshots have ended with markers."""
        for name in names:
            self.void(self._id(name))

    @property
    def waiting(self) -> int:
        """Return the number of held keys, and of child rows whose keys are not known yet."""
        return sum(len(repair.keys) + len(repair.lost) for repair in self.repairs.values())

    def take_counts(self) -> Mapping[str, int]:
        """Return how often each kind of repair started, and how many rows were repaired, since the last call."""
        found, self.counts = self.counts, dict.fromkeys(self.counts, 0)
        return found

    def take_rereads(self) -> list[tuple[str, str]]:
        """Return (reason, table) of each table whose re-read started since the last call."""
        found, self._news = self._news, []
        return found

    def key_changed(self, table: TableId, key: tuple[str, ...]) -> None:
        """Restart the repair of a table whose schema changed. If its primary key changed, re-read the whole table."""
        if any(set(known) != set(key) for known in self.held(table).values()):
            self.reread([table], "partial", self.number())
        else:
            self.void(table)

    def set_foreign_keys(self, foreign_keys: ForeignKeys, *, exactly: bool) -> None:
        """Store the foreign keys that the server has now.

        If not `exactly`, events from before are still to be read, so the previously known foreign keys are kept, too.
        """
        if not self._follow:
            return
        known = foreign_keys.known if exactly else foreign_keys.known | self.foreign_keys.known
        if known != self.foreign_keys.known:
            self.foreign_keys, self.moved = ForeignKeys(known), True
            self._hidden = self._hidden_references()
            for each in foreign_keys.known:
                self.recorder.phases.end(each.child)
            self.parents.clear()
            self.parents.update(self.foreign_keys.by_parent)
        self.asks, self.unsure = False, not exactly

    def _hidden_references(self) -> frozenset[tuple[TableId, TableId, tuple[str, ...]]]:
        """Return parent, child and child's columns of the foreign keys that reference hidden columns."""
        return frozenset(
            (each.parent, each.child, each.columns)
            for each in self.foreign_keys.known
            if self.tables.hides(each.parent, *each.referenced)
        )

    def doubt_foreign_keys(self) -> None:
        """Record that foreign keys may have changed, so that the server is asked for them before the next event."""
        self.asks = self.unsure = self._follow

    def reread(self, tables: Iterable[TableId], kind: Kind, number: int, about: str = "") -> None:
        """Re-read whole tables, and the tables to which their changes cascade: the changed rows cannot be identified.

        `number` is the sequence number of the marker that ends the re-read. `about` says what happened, for log lines.
        """
        for table in self.foreign_keys.below(tables):
            self.recorder.phases.end(table)
            if not self.tables.captured(table.database, table.table) or not self.tables.exists(table):
                continue
            if self.tables.why_left_out(table):
                continue
            self.drop(table)
            self.moved = True
            name = name_of(table)
            self.counts[kind] += 1
            if not self.snapshots.reads and table in self.snapshots.partial:
                continue  # the table cannot be read, which was already reported
            why = f"{kind}: {about}" if about else kind
            self._news.append((why if self.snapshots.reads else f"{why}; it cannot be read: it is partial", name))
            if self.snapshots.begun(name):
                self.again[name] = number  # let the running snapshot finish first, however often this happens
            else:
                self.snapshots.start(table, marker=number)

    def hold_partial(self, event: RowsPartial, key: tuple[str, ...], number: int, *, sure: bool) -> None:
        """Start the repair of rows whose images lack columns. Re-read the whole table if the images lack key columns.

        `key` is the primary key. `sure`: the images are enough to identify child rows that changed with them.
        """
        table, operation = event.table, event.operation
        changes: list[tuple[Row, str, Row]] = []
        for change in event.rows:
            before, after = change if operation == "update" else (change, change)
            old, new = values_of(before), values_of(after)
            first = key_of(key, old)
            if first is None or not sure or not self.snapshots.reads:
                self.reread([table], "partial", number)
                return
            last = {name: new.get(name, value) for name, value in first.items()}
            if first != last:
                changes += [(first, "delete", {}), (last, "insert", {})]
            else:
                # A refused image lacks values, so the row is read once more.
                changes.append((first, "insert" if isinstance(after, RefusedImage) else operation, new))
            for child, wanted in self.foreign_keys.affected(table, first, None if operation == "delete" else last):
                self.follow_children(child, wanted)
        repair = self._opened(table)
        for name, what, new in changes:
            at = _dumps(name)
            repair.keys[at] = name
            if repair.stage == "reading":
                known = repair.patches.get(at, RowPatch())
                repair.patches[at] = known.merge(what, new)  # type: ignore[arg-type]  # an Operation, of a literal
        self.counts["partial"] += len(event.rows)
        self._bounded(table, repair)

    def request_rows(self, table: TableId, keys: Iterable[Row]) -> str:
        """Start the repair of rows by their keys, at a user's request. Returns why this is impossible, or an empty
        text."""
        if not self.tables.captured(table.database, table.table) or not self.tables.exists(table):
            return f"{name_of(table)} is not captured"
        try:
            columns = self.tables.schema(table).primary_key
        except Skippable as error:
            return str(error)
        named = [key_of(columns, key) for key in keys]
        if not all(named):
            return f"identify rows of {name_of(table)} by {', '.join(columns)}"
        if not self.snapshots.reads:
            return f"{name_of(table)} cannot be read while its log is captured"
        repair = self._opened(table)
        repair.keys.update((_dumps(key), key) for key in named if key)
        self.counts["named"] += len(named)
        self._bounded(table, repair)
        return ""

    def follow(self, event: RowsLogged) -> None:
        """Start the repair of the child rows to which the changes of these parent rows cascade.

        Child rows are found by values of the parent's columns, which are stored in the checkpoint. If one of them is
        hidden, the child table is read again instead.
        """
        for child, wanted in self.foreign_keys.followed(event):
            hidden = (event.table, child, wanted.columns) in self._hidden
            if hidden and self.tables.captured(child.database, child.table):
                self.reread([child], "cascade", self.number())
            else:
                self.follow_children(child, wanted)

    def follow_children(self, table: TableId, wanted: ChangedChildren) -> None:
        self.recorder.phases.end(table)
        if not self.tables.captured(table.database, table.table):
            self._beneath(table)
            return
        if self.tables.why_left_out(table):
            return
        if not self.snapshots.reads:
            self.reread([table], "cascade", self.number())
            return
        repair = self._opened(table)
        repair.after_chunk = self.snapshots.under_way(table)
        if wanted not in repair.lost:
            repair.lost[wanted] = None
            self.counts["cascade"] += 1
        try:
            shown, read = self.tables.schema(table), self.tables.read_schema(table)
        except Skippable:
            return
        if any(shown.column(name) is None or shown.column(name) != read.column(name) for name in wanted.columns):
            self.reread([table], "cascade", self.number())
            return
        self._bounded(table, repair)

    def _beneath(self, table: TableId) -> None:
        """Re-read the tables below a changed table that is not captured, because its changed rows are not known."""
        below = [found for found in self.foreign_keys.below([table]) if found != table]
        if any(self.tables.captured(found.database, found.table) for found in below):
            self.reread(below, "cascade", self.number())

    def begin_exact_phases(self, sequence: int, quarantined: Container[str]) -> None:
        """Begin the exact phases of tables whose rows are all read, unless rows of them are to be repaired, or foreign
        keys, all of which are known, change them without a record in the log.

        `sequence` is the last number of a change. Tables in quarantine (names) wait."""
        if not self._follow:
            return
        children, phases = {each.child for each in self.foreign_keys.known}, self.recorder.phases
        for table in phases.complete(sequence):
            if table in children or table in self.snapshots.partial or not self._has_unique_keys(table):
                phases.end(table)
            elif table not in self.repairs and table.name not in self.again and table.name not in quarantined:
                self.moved = phases.begin(table, sequence) or self.moved

    def _has_unique_keys(self, table: TableId) -> bool:
        try:
            return self.tables.is_unique(self.tables.schema(table))
        except Skippable:
            return False

    def _opened(self, table: TableId) -> TableRepair:
        self.recorder.phases.end(table)
        repair = self.repairs.get(table)
        if repair is None:
            repair = self.repairs[table] = TableRepair()
        repair.fresh = self.moved = True
        return repair

    def _bounded(self, table: TableId, repair: TableRepair) -> None:
        if len(repair.keys) + len(repair.lost) > MOST:
            self.reread([table], "partial" if repair.keys else "cascade", self.number())

    def hold_back(self, table: TableId, records: list[Record]) -> list[Record]:
        """Return the records without those of held keys. Remember the changes of held keys as patches."""
        repair = self.repairs[table]
        topic = self.topic(table)
        free: list[Record] = []
        for record in records:
            if record.topic != topic or record.key not in repair.keys:
                free.append(record)
            elif record.value is not None and repair.stage == "reading":
                known = repair.patches.get(record.key, RowPatch())
                repair.patches[record.key] = known.replace(orjson.loads(record.value)["after"])
        return free

    def topic(self, table: TableId) -> str:
        """Return the topic of the table's changes."""
        return change_topic(self.recorder.topology, table)

    def _id(self, name: str) -> TableId:
        return self.tables.named(name)


def name_of(table: TableId) -> str:
    """Return `database.table`, the name of a table in checkpoints and log lines."""
    return table.name


def values_of(image: Image) -> Row:
    """Return the column values of an image, also of a refused one."""
    return image.values if isinstance(image, RefusedImage) else image

"""Repair rows that changed without a complete log entry: find them in the topic, re-read them by key, correct them.

Two things start a repair: images that lack columns, which hold their rows' keys, and a parent's change that cascades,
which holds values of its children. From then on the keys under repair are held: their logged changes are not published,
so the topic does not change for them. After a commit records this, the topic is searched for their images, and the rows
are read under a watermark, like a snapshot's chunk. Changes that were logged during the read are applied to its result.
Then records lead from the image in the topic to the current row, and the key is released. Readers never receive a
retraction for a row version they did not see. Rows that a cascade changed are held as soon as they are found. Changes
published before that may leave an image that no record retracted; the repair retracts it, too.

A repair is kept in the checkpoint's state until its records are committed. The results of searches and reads are not
kept; after a crash they are repeated. If there are too many keys, or rows without a usable key, the whole table is
re-read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from ingest.records.findings import Search
from ingest.records.records import Recorder
from ingest.records.snapshots import Chunk, ChunkRequest, Snapshots
from ingest.repair.patches import Row, RowPatch, key_of

# keys of one table. Beyond it the table is re-read: checkpoints store the keys, and a topic is searched once.
MOST = 5000
_dumps = orjson.dumps
_NULL = b"null"
Kind = Literal[
    "statement", "partial", "cascade", "incident", "xa", "rollback", "catalog"
]  # includes `log_events.NotLoggedReason`
_KINDS = (*get_args(Kind), "named", "rows")


@dataclass(slots=True)
class TableRepair:
    """Repair of one table. `keys` are held; `lost` describes child rows whose keys are not known yet.

    `fresh`: the newest change of this repair is not committed. `round_keys` and `round_children` are the subject of
    the current round. `after_chunk`: a snapshot chunk not yet published, which may show rows as they were before their
    unlogged change.
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
        """Discard the results of searches and reads."""
        if self.search is not None:
            self.search.given_up = True
        self.stage, self.search, self.request, self.chunk, self.fresh = "waiting", None, None, None, True
        self.patches.clear()


class OpenRepairs:
    """Open repairs of one source, run next to its snapshots. `number` returns the next sequence number."""

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
        self.parents = set(self.foreign_keys.by_parent)  # this set object is shared: it is updated in place
        self.asks, self.unsure = False, follow
        self.number: Callable[[], int] = lambda: 0
        self.moved = False
        self.counts: dict[str, int] = dict.fromkeys(_KINDS, 0)
        self._news: list[tuple[str, str]] = []
        self._chased: set[tuple[TableId, ChangedChildren, int]] = set()  # children of rows that a marker ended

    def take_moved(self) -> bool:
        """Return whether there was something to commit since the last call."""
        moved, self.moved = self.moved, False
        return moved

    def __bool__(self) -> bool:
        return bool(self.repairs or self.again)

    def held(self, table: TableId) -> Mapping[bytes, Row]:
        """Return the held keys of a table."""
        repair = self.repairs.get(table)
        return repair.keys if repair is not None else {}

    @property
    def open(self) -> Mapping[TableId, TableRepair]:
        """Return the open repairs by table."""
        return self.repairs

    @property
    def state(self) -> Mapping[str, Any]:
        """Return the state to commit with the records; empty if there is none."""
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
        """Drop all repairs, because all tables are re-read."""
        for table in list(self.repairs):
            self.drop(table)
        self.again.clear()

    def drop(self, table: TableId) -> None:
        """Drop a table's repair: the marker of its re-read retracts stale rows."""
        repair = self.repairs.pop(table, None)
        if repair is not None:
            repair.restart()

    def void(self, table: TableId) -> None:
        """Restart a table's repair, because the table changed as a whole or a marker followed its rows."""
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
        """Return the number of held keys and of child values to search for."""
        return sum(len(repair.keys) + len(repair.lost) for repair in self.repairs.values())

    def take_counts(self) -> Mapping[str, int]:
        """Return the counts since the last call, by kind."""
        found, self.counts = self.counts, dict.fromkeys(self.counts, 0)
        return found

    def take_rereads(self) -> list[tuple[str, str]]:
        """Return (reason, table) of the tables whose re-read started since the last call."""
        found, self._news = self._news, []
        return found

    def key_changed(self, table: TableId, key: tuple[str, ...]) -> None:
        """Adapt to a possible change of a table's key."""
        if any(set(known) != set(key) for known in self.held(table).values()):
            self.reread([table], "partial", self.number())
        else:
            self.void(table)

    def set_foreign_keys(self, foreign_keys: ForeignKeys, *, exactly: bool) -> None:
        """Store the server's foreign keys: exactly these, or, while older log is still to be read, in addition to the
        known ones.
        """
        if not self._follow:
            return
        known = foreign_keys.known if exactly else foreign_keys.known | self.foreign_keys.known
        if known != self.foreign_keys.known:
            self.foreign_keys, self.moved = ForeignKeys(known), True
            self.parents.clear()
            self.parents.update(self.foreign_keys.by_parent)
        self.asks, self.unsure = False, not exactly

    def doubt_foreign_keys(self) -> None:
        """Record that foreign keys may have changed: the server is queried before anything else is read."""
        self.asks = self.unsure = self._follow

    def reread(self, tables: Iterable[TableId], kind: Kind, number: int, about: str = "") -> None:
        """Re-read whole tables with changed rows that cannot be identified, and the tables they cascade to.

        `about`: what happened, for log lines.
        """
        for table in self.foreign_keys.below(tables):
            if not self.tables.captured(table.database, table.table) or not self.tables.exists(table):
                continue
            if self.tables.why_left_out(table):
                continue
            self.drop(table)
            self.moved = True
            name = name_of(table)
            self.counts[kind] += 1
            if not self.snapshots.reads and table in self.snapshots.partial:
                continue  # cannot be read; already reported
            why = f"{kind}: {about}" if about else kind
            self._news.append((why if self.snapshots.reads else f"{why}; it cannot be read: it is partial", name))
            if "after" in self.snapshots.state.get(name, {}):
                self.again[name] = number  # let the running snapshot finish first, however often this happens
            else:
                self.snapshots.start(table, marker=number)

    def hold_partial(self, event: RowsPartial, key: tuple[str, ...], number: int, *, sure: bool) -> None:
        """Hold the keys of rows whose images lack columns. Re-read the table if the images lack keys.

        `sure`: the images identify the rows of other tables that changed with them.
        """
        table, operation = event.table, event.operation
        reported: list[tuple[Row, str, Row]] = []
        for change in event.rows:
            before, after = change if operation == "update" else (change, change)
            old, new = values_of(before), values_of(after)
            first = key_of(key, old)
            if first is None or not sure or not self.snapshots.reads:
                self.reread([table], "partial", number)
                return
            last = {name: new.get(name, value) for name, value in first.items()}
            if first != last:
                reported += [(first, "delete", {}), (last, "insert", {})]
            else:
                # the values in a refused image are unknown: the row is read again
                reported.append((first, "insert" if isinstance(after, RefusedImage) else operation, new))
            for child, wanted in self.foreign_keys.affected(table, first, None if operation == "delete" else last):
                self.follow_children(child, wanted)
        repair = self._opened(table)
        for name, what, new in reported:
            at = _dumps(name)
            repair.keys[at] = name
            if repair.stage == "reading":
                known = repair.patches.get(at, RowPatch())
                repair.patches[at] = known.merge(what, new)  # type: ignore[arg-type]  # an Operation, of a literal
        self.counts["partial"] += len(event.rows)
        self._bounded(table, repair)

    def request_rows(self, table: TableId, keys: Iterable[Row]) -> str:
        """Repair rows at a user's request. Returns the reason why this is impossible, or an empty text."""
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
        """Search for the children that a parent's changes cascaded to."""
        for child, wanted in self.foreign_keys.followed(event):
            self.follow_children(child, wanted)

    def follow_children(self, table: TableId, wanted: ChangedChildren) -> None:
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
        """Re-read the tables below a changed table that is not captured: their affected rows cannot be identified."""
        below = [found for found in self.foreign_keys.below([table]) if found != table]
        if any(self.tables.captured(found.database, found.table) for found in below):
            self.reread(below, "cascade", self.number())

    def _opened(self, table: TableId) -> TableRepair:
        repair = self.repairs.get(table)
        if repair is None:
            repair = self.repairs[table] = TableRepair()
        repair.fresh = self.moved = True
        return repair

    def _bounded(self, table: TableId, repair: TableRepair) -> None:
        if len(repair.keys) + len(repair.lost) > MOST:
            self.reread([table], "partial" if repair.keys else "cascade", self.number())

    def hold_back(self, table: TableId, records: list[Record]) -> list[Record]:
        """Return the records without those of held keys, whose newest images are kept until their rows are read."""
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
    """Return `database.table`, as used in states and log lines."""
    return table.name


def values_of(image: Image) -> Row:
    """Return an image's values, refused or not."""
    return image.values if isinstance(image, RefusedImage) else image

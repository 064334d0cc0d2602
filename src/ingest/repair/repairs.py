"""Rows that were changed without the log's telling how: found in the change topic, read again by key, set right; pure.

Two things open a mend: images that lack columns, which name their rows' keys, and a parent's change that cascades,
which names values of its children. From then on a mended key is held: what the log tells of it is not published, so
that the topic stands still for it. Behind a commit that says so, what the topic holds of it is looked up, and the row
is read under a watermark, as a snapshot's chunk is; what the log told meanwhile is applied to it. Then records go from
the image that the topic holds to the row as it is, and the key is free. Readers never see an image taken back that they
do not have. Rows that a cascade changed are held as soon as they are found; those that the log told before that leave
an image that none took back: it is taken back then, too.

A mend is kept in the checkpoint's state until its records are committed; what was looked up and read is not, and is
begun again after a crash. Too many keys, or rows that cannot be told by key, and the whole table is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import orjson

from cdc.model.errors import Skippable
from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from ingest.events.foreign_keys import ForeignKeys, Wanted, foreign_keys_from, wanted_from
from ingest.events.log_events import Image, RefusedImage, RowsLogged, RowsPartial
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import Record
from ingest.records.findings import Search
from ingest.records.records import Recorder
from ingest.records.snapshots import Chunk, ChunkRequest, Snapshots
from ingest.repair.patches import Patch, Row, key_of

MOST = 5000  # keys of one table; beyond, the table is read again: a checkpoint keeps them, and a topic is searched once
_dumps = orjson.dumps
_NULL = b"null"
Kind = Literal[
    "statement", "partial", "cascade", "incident", "xa", "rollback", "catalog"
]  # with `log_events.Unshown`'s
_KINDS = (*get_args(Kind), "named", "rows")


@dataclass(slots=True)
class Repair:
    """What is to be mended of one table. `keys` are held; `lost` are rows whose keys are not known yet.

    `fresh` says that the newest of it is not committed; `mine` and `wanted` are what the round under way is about.
    `behind`: a chunk of the snapshot that may show rows as they were before they were lost, and is yet to be published.
    """

    keys: dict[bytes, Row] = field(default_factory=dict)
    lost: dict[Wanted, None] = field(default_factory=dict)
    fresh: bool = True
    stage: Literal["waiting", "finding", "holding", "reading"] = "waiting"
    mine: list[bytes] = field(default_factory=list)
    wanted: list[Wanted] = field(default_factory=list)
    search: Search | None = None
    request: ChunkRequest | None = None
    chunk: Chunk | None = None
    patches: dict[bytes, Patch] = field(default_factory=dict)
    began_ms: int = 0
    rests_until_ms: int = 0
    behind: int | None = None

    def begin_again(self) -> None:
        """What was looked up and read holds no more."""
        if self.search is not None:
            self.search.given_up = True
        self.stage, self.search, self.request, self.chunk, self.fresh = "waiting", None, None, None, True
        self.patches.clear()


class Repairs:
    """The mends of one source that are under way, beside its snapshots. `number` gives the next of the sequence."""

    def __init__(
        self, recorder: Recorder, tables: Tables, snapshots: Snapshots, state: Mapping[str, Any], *, follow: bool = True
    ) -> None:
        self.recorder, self.tables, self._follow = recorder, tables, follow
        self.snapshots = snapshots
        self.repairs = {
            self._id(name): Repair(
                keys={_dumps(key): key for key in entry["keys"]},
                lost={wanted_from(one): None for one in entry["lost"]},
                fresh=False,
            )
            for name, entry in state.get("tables", {}).items()
        }
        self.again: dict[str, int] = dict(state.get("again", {}))
        self.foreign_keys = foreign_keys_from(state.get("relations", ()) if follow else (), tables.source)
        self.parents = set(self.foreign_keys.by_parent)  # the one set that stays, whatever is learned
        self.asks, self.unsure = False, follow
        self.number: Callable[[], int] = lambda: 0
        self.moved = False
        self.counts: dict[str, int] = dict.fromkeys(_KINDS, 0)
        self._news: list[tuple[str, str]] = []
        self._chased: set[tuple[TableId, Wanted, int]] = set()  # what went with rows that a marker ended

    def take_moved(self) -> bool:
        """Whether there is something to be committed since this was last asked."""
        moved, self.moved = self.moved, False
        return moved

    def __bool__(self) -> bool:
        return bool(self.repairs or self.again)

    def held(self, table: TableId) -> Mapping[bytes, Row]:
        """The keys of a table that are held."""
        repair = self.repairs.get(table)
        return repair.keys if repair is not None else {}

    @property
    def open(self) -> Mapping[TableId, Repair]:
        """Tables that have a mend."""
        return self.repairs

    @property
    def state(self) -> Mapping[str, Any]:
        """What is to be committed with the records; empty when there is nothing to know."""
        tables = {
            name_of(table): {"keys": list(repair.keys.values()), "lost": [one.to_json() for one in repair.lost]}
            for table, repair in self.repairs.items()
        }
        foreign_keys = self.foreign_keys.to_json()
        known = {"tables": tables, "again": dict(self.again), "relations": foreign_keys}
        return {name: value for name, value in known.items() if value}

    def committed(self) -> None:
        """What stood in `state` is committed, and so is everything that was published before."""
        for repair in self.repairs.values():
            repair.fresh = False

    def clear(self) -> None:
        """All tables are read again: nothing is left to mend."""
        for table in list(self.repairs):
            self.dissolve(table)
        self.again.clear()

    def dissolve(self, table: TableId) -> None:
        """Whoever reads the table's marker takes back whatever is stale: let its keys go."""
        repair = self.repairs.pop(table, None)
        if repair is not None:
            repair.begin_again()

    def void(self, table: TableId) -> None:
        """The table was changed as a whole, or a marker stands behind its rows."""
        repair = self.repairs.get(table)
        if repair is not None:
            repair.begin_again()
            self.moved = True

    def marked(self, names: Iterable[str]) -> None:
        """The snapshots of these tables have ended, with markers."""
        for name in names:
            self.void(self._id(name))

    @property
    def waiting(self) -> int:
        """How many keys are held, and values looked for."""
        return sum(len(repair.keys) + len(repair.lost) for repair in self.repairs.values())

    def counted(self) -> Mapping[str, int]:
        """What was counted since the last call."""
        found, self.counts = self.counts, dict.fromkeys(self.counts, 0)
        return found

    def reported(self) -> list[tuple[str, str]]:
        """(why, table) of tables that are read again, since the last call."""
        found, self._news = self._news, []
        return found

    def rekeyed(self, table: TableId, key: tuple[str, ...]) -> None:
        """The table may have another key than before."""
        if any(set(known) != set(key) for known in self.held(table).values()):
            self.unknown([table], "partial", self.number())
        else:
            self.void(table)

    def learn(self, foreign_keys: ForeignKeys, *, exactly: bool) -> None:
        """What the server shows: in place of what was known, or, while older log is to be read, beside it."""
        if not self._follow:
            return
        known = foreign_keys.known if exactly else foreign_keys.known | self.foreign_keys.known
        if known != self.foreign_keys.known:
            self.foreign_keys, self.moved = ForeignKeys(known), True
            self.parents.clear()
            self.parents.update(self.foreign_keys.by_parent)
        self.asks, self.unsure = False, not exactly

    def doubt(self) -> None:
        """Foreign keys may have been made or dropped: the server is to be asked before anything else is read."""
        self.asks = self.unsure = self._follow

    def unknown(self, tables: Iterable[TableId], kind: Kind, number: int, about: str = "") -> None:
        """Rows of tables were changed that nobody can name: these, and what they cascade to, are read again.

        `about` says what happened, for log lines.
        """
        for table in self.foreign_keys.below(tables):
            if not self.tables.captured(table.database, table.table) or not self.tables.exists(table):
                continue
            if self.tables.why_left_out(table):
                continue
            self.dissolve(table)
            self.moved = True
            name = name_of(table)
            self.counts[kind] += 1
            if not self.snapshots.reads and table in self.snapshots.partial:
                continue  # nobody can read it, which was said before
            why = f"{kind}: {about}" if about else kind
            self._news.append((why if self.snapshots.reads else f"{why}; it cannot be read: it is partial", name))
            if "after" in self.snapshots.state.get(name, {}):
                self.again[name] = number  # let it come to its end first, however often this happens
            else:
                self.snapshots.start(table, marker=number)

    def partial(self, event: RowsPartial, key: tuple[str, ...], number: int, *, sure: bool) -> None:
        """Rows whose images lack columns: hold their keys, or read the table again where they tell no keys.

        `sure` says that they tell the rows of other tables that were changed with them, if any were.
        """
        table, operation = event.table, event.operation
        reported: list[tuple[Row, str, Row]] = []
        for change in event.rows:
            before, after = change if operation == "update" else (change, change)
            old, new = values_of(before), values_of(after)
            first = key_of(key, old)
            if first is None or not sure or not self.snapshots.reads:
                self.unknown([table], "partial", number)
                return
            last = {name: new.get(name, value) for name, value in first.items()}
            if first != last:
                reported += [(first, "delete", {}), (last, "insert", {})]
            else:
                # what a refused image sets is not known: the row is read again
                reported.append((first, "insert" if isinstance(after, RefusedImage) else operation, new))
            for child, wanted in self.foreign_keys.affected(table, first, None if operation == "delete" else last):
                self.lose(child, wanted)
        repair = self._opened(table)
        for name, what, new in reported:
            at = _dumps(name)
            repair.keys[at] = name
            if repair.stage == "reading":
                known = repair.patches.get(at, Patch())
                repair.patches[at] = known.partial(what, new)  # type: ignore[arg-type]  # an Operation, of a literal
        self.counts["partial"] += len(event.rows)
        self._bounded(table, repair)

    def named(self, table: TableId, keys: Iterable[Row]) -> str:
        """Somebody says that the log may not tell these rows as they are; the reason why not, or an empty text."""
        if not self.tables.captured(table.database, table.table) or not self.tables.exists(table):
            return f"{name_of(table)} is not captured"
        try:
            columns = self.tables.schema(table).primary_key
        except Skippable as error:
            return str(error)
        named = [key_of(columns, key) for key in keys]
        if not all(named):
            return f"rows of {name_of(table)} are named by {', '.join(columns)}"
        if not self.snapshots.reads:
            return f"{name_of(table)} cannot be read beside the log"
        repair = self._opened(table)
        repair.keys.update((_dumps(key), key) for key in named if key)
        self.counts["named"] += len(named)
        self._bounded(table, repair)
        return ""

    def follow(self, event: RowsLogged) -> None:
        """A parent's rows were changed: look for the children that went with them."""
        for child, wanted in self.foreign_keys.followed(event):
            self.lose(child, wanted)

    def lose(self, table: TableId, wanted: Wanted) -> None:
        if not self.tables.captured(table.database, table.table):
            self._beneath(table)
            return
        if self.tables.why_left_out(table):
            return
        if not self.snapshots.reads:
            self.unknown([table], "cascade", self.number())
            return
        repair = self._opened(table)
        repair.behind = self.snapshots.under_way(table)
        if wanted not in repair.lost:
            repair.lost[wanted] = None
            self.counts["cascade"] += 1
        try:
            shown, read = self.tables.schema(table), self.tables.read_schema(table)
        except Skippable:
            return
        if any(shown.column(name) is None or shown.column(name) != read.column(name) for name in wanted.columns):
            self.unknown([table], "cascade", self.number())
            return
        self._bounded(table, repair)

    def _beneath(self, table: TableId) -> None:
        """A table that is not captured was changed: which rows of those below it went with it nobody can tell."""
        below = [found for found in self.foreign_keys.below([table]) if found != table]
        if any(self.tables.captured(found.database, found.table) for found in below):
            self.unknown(below, "cascade", self.number())

    def _opened(self, table: TableId) -> Repair:
        repair = self.repairs.get(table)
        if repair is None:
            repair = self.repairs[table] = Repair()
        repair.fresh = self.moved = True
        return repair

    def _bounded(self, table: TableId, repair: Repair) -> None:
        if len(repair.keys) + len(repair.lost) > MOST:
            self.unknown([table], "partial" if repair.keys else "cascade", self.number())

    def hold_back(self, table: TableId, records: list[Record]) -> list[Record]:
        """The records without those of held keys, whose newest images are kept for when their rows were read."""
        repair = self.repairs[table]
        topic = self.topic(table)
        free: list[Record] = []
        for record in records:
            if record.topic != topic or record.key not in repair.keys:
                free.append(record)
            elif record.value is not None and repair.stage == "reading":
                known = repair.patches.get(record.key, Patch())
                repair.patches[record.key] = known.whole(orjson.loads(record.value)["after"])
        return free

    def topic(self, table: TableId) -> str:
        """The topic of its changes."""
        return change_topic(self.recorder.topology, table)

    def _id(self, name: str) -> TableId:
        return self.tables.named(name)


def name_of(table: TableId) -> str:
    """`database.table`, as states and log lines have it."""
    return table.name


def values_of(image: Image) -> Row:
    """What an image shows, refused or not."""
    return image.values if isinstance(image, RefusedImage) else image

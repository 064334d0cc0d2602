"""Tables of other systems: for any repetition or order, and with two indexers at once, the last state is shown.

Between any two requests of an indexer the table may change, and another indexer may index any event from start to end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.model.errors import Retriable
from cdc.model.types import parse_type
from cdc.stored.foreign import ForeignField, ForeignTable
from indexer.foreign import foreign
from indexer.foreign.foreign import ForeignProcessor, NoProgress, ProgressStore, RegionProgress
from indexer.foreign.mapping import ForeignRow
from indexer.index.mapping import Document, Field
from indexer.index.processor import DeadLetter, RefusedDocument
from indexer.peer.peer import Edit, Edits
from indexer.peer.wire import DELETE_COLUMN, DELETE_FAMILY, PUT, Cell

ROWS = (b"a", b"b")
COLUMNS = (b"x", b"y")


def table(mapping: str) -> ForeignTable:
    return ForeignTable(
        name="t",
        table="default:t",
        mapping=mapping,  # type: ignore[arg-type]  # one of the two
        read_row="dynamic",
        unique_key="string",
        fields=tuple(
            ForeignField(name=q.decode(), family="d", qualifier=q.decode(), take="value", type=parse_type("string"))
            for q in COLUMNS
        ),
    )


class World:
    """An HBase table, its log of events, and a Solr with `_version_`; changes happen between any two requests."""

    def __init__(self, random: Random, mapping: str) -> None:
        self.random, self.mapping = random, mapping
        self.rows_now: dict[bytes, dict[bytes, bytes]] = {}
        self.edits: list[Edit] = []
        self.events: list[Edits] = []
        self.servers_fail = 0.0
        self.documents: dict[str, Document] = {}
        self.clock = self.depth = 0
        self.changes_left = 5
        self.answered: set[int] = set()

    def happen(self) -> None:
        """Perhaps change the table; perhaps let another indexer process an event, old or new."""
        if self.changes_left and self.random.random() < 0.3:
            self.change()
        if self.depth == 2 or not self.events:
            return
        newest = len(self.events) - 1
        # Mostly new events: a repeated one repairs earlier errors, and would hide them.
        fresh = newest not in self.answered and self.random.random() < 0.6
        if fresh or self.random.random() < 0.04:
            self.depth += 1
            try:
                self.deliver(newest if fresh else self.random.randrange(newest + 1))
            except Retriable:
                pass  # HBase sends it again
            finally:
                self.depth -= 1

    def change(self) -> None:
        self.changes_left -= 1
        self.clock += 1
        row, column = self.random.choice(ROWS), self.random.choice(COLUMNS)
        cells = self.rows_now.setdefault(row, {})
        # no event says which cells a family's delete takes from a row of many documents: the log's order guards it
        kinds = [PUT, PUT, DELETE_COLUMN, DELETE_FAMILY] if self.mapping == "row" else [PUT, PUT, DELETE_COLUMN]
        kind = self.random.choice(kinds)
        value = f"{row.decode()}{column.decode()}@{self.clock}".encode() if kind == PUT else b""
        if kind == PUT:
            cells[column] = value
        elif kind == DELETE_COLUMN:
            cells.pop(column, None)
        else:
            cells.clear()
        cell = Cell(row, b"d", b"" if kind == DELETE_FAMILY else column, self.clock, kind, value)
        edit = Edit(table=b"t", region=b"r", sequence=self.clock, write_time=0, cells=[cell])
        self.edits.append(edit)
        self.events.append(Edits.of([edit]))

    def deliver(self, number: int) -> None:
        """Ship an event; once it is answered HBase removes it."""
        self.index(self.events[number])
        self.answered.add(number)

    def index(self, event: Edits, progress: ProgressStore = NoProgress()) -> None:  # noqa: B008  # it has no state
        ForeignProcessor(
            table(self.mapping),
            search=(),
            rows=self,
            collections=[self],
            dead_letters=_NoDeadLetters(),
            progress=progress,
            clock_ms=lambda: self.clock,
            monotonic=lambda: 0.0,
        ).process(event, give_up=1.0)

    def rows(self, keys: Sequence[bytes]) -> list[ForeignRow]:
        self.happen()
        if self.random.random() < self.servers_fail:
            raise Retriable("HBase is unavailable")
        found = [(key, self.rows_now.get(key, {})) for key in keys]
        return [ForeignRow(key, {(b"d", q): v for q, v in cells.items()}, self.clock) for key, cells in found if cells]

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        return False

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
        raise AssertionError("a fenced post")

    def versions(self, keys: Sequence[str]) -> dict[str, int]:
        self.happen()
        return {key: int(str(self.documents[key]["_version_"])) for key in keys if key in self.documents}

    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[RefusedDocument]]:
        conflicts: set[str] = set()
        for document in documents:
            self.happen()
            key = str(document["_id"])
            held = self.documents.get(key)
            if document["_version_"] != (-1 if held is None else held["_version_"]):
                conflicts.add(key)
                continue
            self.clock += 1
            self.documents[key] = {**document, "_version_": self.clock}
        return conflicts, []

    def keys_of(self, row: str) -> list[str]:
        self.happen()
        return [key for key, each in self.documents.items() if each["_row"] == row and each.get("_kind") == "row"]

    def shown(self) -> dict[str, dict[str, object]]:
        return {
            key: {name: value for name, value in document.items() if not name.startswith("_")}
            for key, document in self.documents.items()
            if document.get("_kind") == "row"
        }

    def wanted(self) -> dict[str, dict[str, object]]:
        rows = {row.decode(): {q.decode(): v.decode() for q, v in c.items()} for row, c in self.rows_now.items() if c}
        if self.mapping == "row":
            return {row: dict(cells) for row, cells in rows.items()}
        return {f"{row}-d-{q}": {q: v} for row, cells in rows.items() for q, v in cells.items()}


class _NoDeadLetters:
    def accepted(self, rows: Mapping[bytes, int]) -> None:
        pass

    def put(self, dead_letter_records: Sequence[DeadLetter]) -> None:
        raise AssertionError(f"dead letters: {dead_letter_records}")


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["row", "column"]))
def test_the_last_state_is_shown(seed: int, mapping: str) -> None:
    """Rows appear, change, vanish and return while two indexers interfere with one another."""
    random = Random(seed)
    world = World(random, mapping)
    while world.changes_left:
        world.change()
        world.happen()
    waiting = [number for number in range(len(world.events)) if number not in world.answered]
    random.shuffle(waiting)
    for number in waiting:
        while number not in world.answered:
            try:
                world.deliver(number)
            except Retriable:
                continue
    assert world.shown() == world.wanted()


class _Store(dict[bytes, RegionProgress]):
    """The state that survives a process."""

    def read(self, region: bytes) -> RegionProgress | None:
        return self.get(region)

    def write(self, region: bytes, progress: RegionProgress) -> None:
        self[region] = progress

    def clear(self, region: bytes) -> None:  # type: ignore[override]  # RegionProgresses' word, not the dict's
        del self[region]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["row", "column"]))
def test_a_batch_cut_off_anywhere_goes_on(seed: int, mapping: str) -> None:
    """A region's edits arrive in order, in batches that are cut off and repeated, perhaps extended, to a new process,
    while the table changes."""
    random = Random(seed)
    world, store, position = World(random, mapping), _Store(), 0
    world.depth = 2  # no other indexer runs
    world.changes_left, world.servers_fail = 12, 0.3
    with mock.patch.object(foreign, "ROWS_AT_A_TIME", 1):
        while world.changes_left or position < len(world.edits):
            if world.changes_left and random.random() < 0.5:
                world.change()
            end = random.randint(position, len(world.edits))
            with contextlib.suppress(Retriable):
                world.index(Edits.of(world.edits[position:end]), store)
                position = end
    assert world.shown() == world.wanted()
    assert not store

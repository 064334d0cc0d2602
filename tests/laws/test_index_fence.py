"""The version check: for any order, repetition and grouping of HBase's batches, the collection ends the same.

Everything is real except the servers: cells are encoded as HBase ships them, decoded, collapsed, mapped and posted to a
minimal Solr, which keeps the document with the strictly greater version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.model.errors import Retriable
from cdc.model.types import parse_type
from cdc.stored.cells import Barrier, RowCodec, barrier_key
from cdc.stored.layout import Layout, LayoutColumn
from indexer.index.mapping import Document, Field
from indexer.index.processor import DeadLetter, Processor, RefusedDocument
from indexer.peer.peer import Edit, Edits
from indexer.peer.wire import DELETE_FAMILY, PUT, Cell

LAYOUT = Layout(
    topology="t",
    table="wide",
    id=1,
    family="d",
    columns=(
        LayoutColumn(name="id", type=parse_type("int32"), origin=""),
        LayoutColumn(name="text", type=parse_type("string"), origin=""),
    ),
    row_key=("id",),
    salt_buckets=1,
)
CODEC = RowCodec(LAYOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write of the join's sink: a whole-row put at timestamp + 1, or a row delete at the timestamp."""

    row: int
    timestamp: int
    text: str | None

    def cells(self) -> list[Cell]:
        key = CODEC.row_key({"id": self.row})
        if self.text is None:
            return [Cell(key, b"d", b"", self.timestamp, DELETE_FAMILY, b"")]
        cells = CODEC.cells({"id": self.row, "text": self.text}, batch=self.timestamp, ts_ms=self.timestamp)
        return [Cell(key, b"d", q, self.timestamp + 1, PUT, value) for q, value in cells.items()]


class ModelSolr:
    """DocBasedVersionConstraintsProcessor in five lines; sometimes unavailable, also in the middle of a post."""

    def __init__(self, random: Random, faults: float) -> None:
        self.documents: dict[object, Document] = {}
        self._random, self._faults = random, faults

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        return False

    def begin(self, documents: Sequence[Document], *, backlog: bool = False) -> Callable[[], list[RefusedDocument]]:
        return lambda: self.post(documents, backlog=backlog)

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
        for document in documents:
            if self._random.random() < self._faults:
                raise Retriable("Solr is unavailable")
            held = self.documents.get(document["_id"])
            if held is None or document["_fence"] > held["_fence"]:  # type: ignore[operator]  # both are int
                self.documents[document["_id"]] = document
        return []

    def visible(self) -> dict[object, object]:
        return {d["id"]: d["text"] for d in self.documents.values() if d.get("_kind") == "row"}


class _Layouts:
    def layout(self, layout_id: int) -> Layout:
        return LAYOUT


class _NoDeadLetters:
    def accepted(self, rows: Mapping[bytes, int]) -> None:
        pass

    def put(self, dead_letter_records: Sequence[DeadLetter]) -> None:
        raise AssertionError(f"dead letters: {dead_letter_records}")


def edit(cells: list[Cell]) -> Edit:
    return Edit(table=b"t:wide", region=b"r", sequence=0, write_time=0, cells=cells)


def index(batches: Iterable[list[Edit]], solr: ModelSolr, processes: int = 1) -> None:
    """Ship each batch to one of several indexers until it is answered, as HBase does."""
    indexers = [
        Processor(
            table="t:wide",
            family="d",
            search=(),
            layouts=_Layouts(),
            collection=solr,
            dead_letters=_NoDeadLetters(),
            clock_ms=lambda: 0,
            monotonic=lambda: 0.0,
        )
        for _ in range(processes)
    ]
    for number, batch in enumerate(batches):
        while True:
            try:
                indexers[number % processes].process(Edits.of(batch), give_up=1.0)
                break
            except Retriable:
                number += 1


# Batch timestamps are at least 2 apart. One batch may delete and put one row: two writes of one timestamp.
writes_of_a_table = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 6), st.sampled_from(["put", "delete", "both"])), max_size=24
)


def writes_from(drawn: list[tuple[int, int, str]]) -> list[Write]:
    made: dict[tuple[int, int, bool], Write] = {}
    for row, batch, kind in drawn:
        timestamp = 1000 + 2 * batch
        if kind in ("delete", "both"):
            made[row, timestamp, True] = Write(row=row, timestamp=timestamp, text=None)
        if kind in ("put", "both"):
            made[row, timestamp, False] = Write(row=row, timestamp=timestamp, text=f"{row}@{timestamp}")
    return list(made.values())


def table_of(writes: list[Write]) -> dict[object, object]:
    """Return the rows that HBase shows: the newest put, unless a delete of its timestamp or a later one hides it."""
    puts = {(w.row, w.timestamp + 1): w.text for w in writes if w.text is not None}
    deleted = {
        row: max((w.timestamp for w in writes if w.row == row and w.text is None), default=-1) for row in range(4)
    }
    newest = {row: max((at for r, at in puts if r == row), default=-1) for row in range(4)}
    return {row: puts[row, at] for row, at in newest.items() if at > deleted[row] and at >= 0}


@settings(max_examples=300, deadline=None)
@given(writes_of_a_table, st.integers(0, 2**32), st.integers(1, 9), st.sampled_from([0.0, 0.1]))
def test_order_repeats_and_grouping_do_not_matter(
    drawn: list[tuple[int, int, str]], seed: int, longest: int, faults: float
) -> None:
    """Reordered, repeated, regrouped, shipped to two indexers, with Solr failing in between: the same collection."""
    random = Random(seed)
    writes = writes_from(drawn)
    arrivals = writes + [w for w in writes if random.random() < 0.4]
    random.shuffle(arrivals)
    batches: list[list[Edit]] = []
    while arrivals:
        size = random.randint(1, longest)
        batch, arrivals = arrivals[:size], arrivals[size:]
        batches.append([edit(w.cells()) for w in batch])
        if random.random() < 0.3:
            batches.append(random.choice(batches))
    solr = ModelSolr(random, faults)
    index(batches, solr, processes=2)
    assert solr.visible() == table_of(writes)


@settings(max_examples=100, deadline=None)
@given(writes_of_a_table, st.integers(0, 30))
def test_a_peer_that_begins_in_the_middle_ends_right_for_all_it_saw(
    drawn: list[tuple[int, int, str]], skipped: int
) -> None:
    """Rows written since the peer began are right, whatever earlier writes it missed."""
    writes = sorted(writes_from(drawn), key=lambda w: (w.timestamp, w.text is not None))
    seen = writes[skipped:]
    solr = ModelSolr(Random(0), 0.0)
    index([[edit(w.cells())] for w in seen], solr)
    rows = {w.row for w in seen}
    expected = {row: text for row, text in table_of(writes).items() if row in rows}
    assert solr.visible() == expected


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([0.05, 0.3]))
def test_a_barrier_is_never_in_solr_before_its_rows(seed: int, batches: int, faults: float) -> None:
    """At every moment, a visible barrier means that every row of its batch, and of earlier ones, is visible."""
    random = Random(seed)
    written: dict[int, int] = {}
    expected: dict[int, dict[int, int]] = {}
    log: list[Edit] = []
    for batch in range(batches):
        timestamp = 1000 + 2 * batch
        for row in random.sample(range(8), 4):
            written[row] = timestamp
            log.append(edit(Write(row=row, timestamp=timestamp, text=f"{timestamp}").cells()))
        expected[timestamp] = dict(written)
        record = Barrier(bucket=0, buckets=1, batch=batch, timestamp=timestamp, positions={})
        log.append(edit([Cell(barrier_key(0), b"d", b"_barrier", timestamp + 1, PUT, record.to_bytes())]))

    class Watched(ModelSolr):
        def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
            for document in documents:  # one by one: a query may run between any two
                super().post([document])
                if (held := self.documents.get("barrier-0")) is not None:
                    shown = self.visible()
                    for row, timestamp in expected[int(str(held["_stamp"]))].items():
                        assert int(str(shown[row])) >= timestamp
            return []

    shipped: list[list[Edit]] = []
    while log:
        size = random.randint(1, 7)
        shipped.append(log[:size])
        log = log[size:]
    solr = Watched(random, faults)
    index(shipped, solr)
    assert int(str(solr.documents["barrier-0"]["_stamp"])) == 1000 + 2 * (batches - 1)

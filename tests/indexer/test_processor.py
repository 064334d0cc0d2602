"""A batch of edits with simulated Solr, layouts and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest

from cdc.model.errors import Fatal, Retriable, Skippable
from cdc.model.types import parse_type
from cdc.stored.cells import Barrier, RowCodec, barrier_key
from cdc.stored.layout import Layout, LayoutColumn
from indexer.index import processor
from indexer.index.collapse import RowChange
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
        LayoutColumn(name="name", type=parse_type("string"), origin=""),
    ),
    row_key=("id",),
    salt_buckets=1,
)
CODEC = RowCodec(LAYOUT)
NEVER = 1e9


class FakeSolr:
    """Accepts documents with known fields unless their name is "poison"; can be unavailable."""

    def __init__(self) -> None:
        self.fields: set[str] = set()
        self.posts: list[list[Document]] = []
        self.unavailable_after: int | None = None

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        before = len(self.fields)
        self.fields |= {field.name for field in wanted}
        return len(self.fields) > before

    def begin(self, documents: Sequence[Document], *, backlog: bool = False) -> Callable[[], list[RefusedDocument]]:
        return lambda: self.post(documents, backlog=backlog)

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
        if self.unavailable_after is not None and len(self.posts) >= self.unavailable_after:
            raise Retriable("Solr is unavailable")
        self.posts.append(list(documents))
        known = self.fields | {"_id"}
        return [
            RefusedDocument(position=position, reason="HTTP 400")
            for position, document in enumerate(documents)
            if document.get("name") == "poison"
            or any(name not in known and not name.startswith("_") for name in document)
        ]


class FakeLayouts:
    def layout(self, layout_id: int) -> Layout:
        if layout_id != 1:
            raise Skippable(f"layout {layout_id} is not stored")
        return LAYOUT


class FakeDeadLetters:
    def __init__(self) -> None:
        self.dead_letter_records: list[DeadLetter] = []
        self.unavailable = False

    def accepted(self, rows: Mapping[bytes, int]) -> None:
        pass

    def put(self, dead_letter_records: Sequence[DeadLetter]) -> None:
        if self.unavailable:
            raise Retriable("Kafka is unavailable")
        self.dead_letter_records += dead_letter_records


@pytest.fixture
def solr() -> FakeSolr:
    return FakeSolr()


@pytest.fixture
def dead_letters() -> FakeDeadLetters:
    return FakeDeadLetters()


@pytest.fixture
def indexer(solr: FakeSolr, dead_letters: FakeDeadLetters) -> Processor:
    return Processor(
        table="t:wide",
        family="d",
        search=("name",),
        layouts=FakeLayouts(),
        collection=solr,
        dead_letters=dead_letters,
        clock_ms=lambda: 99,
        monotonic=lambda: 0.0,
    )


def edit(*cells: Cell, table: bytes = b"t:wide", region: bytes = b"r") -> Edit:
    return Edit(table=table, region=region, sequence=1, write_time=1, cells=list(cells))


def row(number: int, name: str | None = "Ada", timestamp: int = 10, layout_id: int = 1) -> list[Cell]:
    cells = CODEC.cells({"id": number, "name": name}, batch=1, ts_ms=5)
    cells[b"_layout"] = layout_id.to_bytes(4, "big")
    key = CODEC.row_key({"id": number})
    return [Cell(key, b"d", qualifier, timestamp, PUT, value) for qualifier, value in cells.items()]


def barrier(timestamp: int = 10) -> Cell:
    record = Barrier(bucket=0, buckets=1, batch=1, timestamp=timestamp, positions={})
    return Cell(barrier_key(0), b"d", b"_barrier", timestamp + 1, PUT, record.to_bytes())


def names(documents: Iterable[Document]) -> list[object]:
    return [document.get("name", document["_id"]) for document in documents]


def test_a_barrier_is_posted_after_every_row_of_its_batch(indexer: Processor, solr: FakeSolr) -> None:
    """A reader that sees a barrier sees its rows, although its key sorts before theirs and it was first in the
    batch."""
    tally = indexer.process(Edits.of([edit(barrier()), edit(*row(1)), edit(*row(2, "Bob"))]), give_up=NEVER)
    assert [names(post) for post in solr.posts] == [["Ada", "Bob"], ["barrier-0"]]
    assert (tally.accepted, tally.barriers, tally.dead) == (2, 1, 0)


def test_large_batches_are_posted_in_chunks(
    indexer: Processor, solr: FakeSolr, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for documents is bounded by the chunk, in number and in bytes."""
    monkeypatch.setattr(processor, "CHUNK_DOCUMENTS", 3)
    monkeypatch.setattr(processor, "CHUNK_BYTES", 1000)
    indexer.process(Edits.of([edit(*row(n, "x" * 990 if n == 4 else "x")) for n in range(8)]), give_up=NEVER)
    assert [len(post) for post in solr.posts] == [3, 2, 3]


def test_poison_is_isolated_and_the_rest_flows(
    indexer: Processor, solr: FakeSolr, dead_letters: FakeDeadLetters
) -> None:
    """A row that does not map, one of an unknown layout and one that Solr refuses become dead letters, and no other."""
    half = row(3)[:1]
    tally = indexer.process(
        Edits.of(
            [
                edit(*row(1)),
                edit(*row(2, "poison")),
                edit(*half),
                edit(*row(4, layout_id=9)),
                edit(*row(5)),
                edit(barrier()),
            ]
        ),
        give_up=NEVER,
    )
    assert {dead_letter.row: dead_letter.reason for dead_letter in dead_letters.dead_letter_records} == {
        CODEC.row_key({"id": 2}): "HTTP 400",
        CODEC.row_key({"id": 3}): "not a whole row: cell _layout is missing",
        CODEC.row_key({"id": 4}): "layout 9 is not stored",
    }
    assert dead_letters.dead_letter_records[0].cells
    assert (tally.accepted, tally.barriers, tally.dead) == (2, 1, 3)
    assert names(solr.posts[-1]) == ["barrier-0"]


def test_a_damaged_barrier_is_a_dead_letter(indexer: Processor, dead_letters: FakeDeadLetters) -> None:
    """A damaged barrier never makes a batch count as visible."""
    for value in (b"{", b"[]", b"{}", b'{"format": 2}', b'{"format": 1, "x": 1}'):
        indexer.process(Edits.of([edit(barrier()._replace(value=value))]), give_up=NEVER)
    assert len(dead_letters.dead_letter_records) == 5


def test_no_barrier_passes_when_dead_letters_can_not_be_held(
    indexer: Processor, solr: FakeSolr, dead_letters: FakeDeadLetters
) -> None:
    """If Kafka does not accept a dead letter, the batch is sent back: the refused row must not vanish."""
    dead_letters.unavailable = True
    with pytest.raises(Retriable):
        indexer.process(Edits.of([edit(*row(2, "poison")), edit(barrier())]), give_up=NEVER)
    assert names(solr.posts[-1]) == ["poison"]


def test_a_batch_is_merged_window_by_window(
    indexer: Processor, solr: FakeSolr, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a batch of any size, few of its cells are objects at a time. Chunks are full across windows. Barriers are
    still posted last, only the newest."""
    monkeypatch.setattr(processor, "WINDOW_CELLS", 12)
    monkeypatch.setattr(processor, "CHUNK_DOCUMENTS", 3)
    batch = [edit(*row(1)), edit(barrier(10)), edit(*row(2)), edit(*row(3)), edit(barrier(12)), edit(*row(4))]
    tally = indexer.process(Edits.of(batch), give_up=NEVER)
    assert [len(post) for post in solr.posts] == [3, 1, 1]
    assert solr.posts[-1][0]["_fence"] == 26
    assert (tally.accepted, tally.barriers) == (4, 1)


def test_a_deleted_barrier_is_no_barrier_any_more(indexer: Processor, solr: FakeSolr) -> None:
    """Deleting a barrier's row removes the barrier."""
    gone = barrier(20)._replace(type=DELETE_FAMILY, qualifier=b"", value=b"")
    indexer.process(Edits.of([edit(gone)]), give_up=NEVER)
    assert solr.posts == [[{"_id": "barrier-0", "_fence": 43}]]


def test_deletes_leave_tombstones(indexer: Processor, solr: FakeSolr) -> None:
    """A deleted row is posted as key and version, so that an older write cannot restore it."""
    key = CODEC.row_key({"id": 1})
    indexer.process(Edits.of([edit(*row(1), Cell(key, b"d", b"", 12, DELETE_FAMILY, b""))]), give_up=NEVER)
    assert solr.posts == [[{"_id": key.hex(), "_fence": 25}]]


def test_other_tables_are_left_out(indexer: Processor, solr: FakeSolr) -> None:
    """A peer that was widened by hand does not mix tables into the collection."""
    assert indexer.process(Edits.of([edit(*row(1), table=b"other:wide")]), give_up=NEVER).accepted == 0
    assert solr.posts == []


def test_a_batch_that_is_sent_again_resumes(
    indexer: Processor, solr: FakeSolr, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that takes longer than HBase waits completes eventually, and counts each row once."""
    monkeypatch.setattr(processor, "CHUNK_DOCUMENTS", 2)
    batch = [edit(*row(n, f"n{n}")) for n in range(5)]
    solr.unavailable_after = 1
    with pytest.raises(Retriable):
        indexer.process(Edits.of(batch), give_up=NEVER)
    solr.unavailable_after = None
    assert indexer.process(Edits.of(batch), give_up=NEVER).accepted == 5
    assert [names(post) for post in solr.posts] == [["n0", "n1"], ["n2", "n3"], ["n4"]]
    assert indexer.process(Edits.of(batch), give_up=NEVER).accepted == 5
    assert len(solr.posts) == 6


def test_poison_is_looked_at_once_however_often_its_batch_comes(
    indexer: Processor, solr: FakeSolr, dead_letters: FakeDeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch full of refused rows completes eventually, too: they are not posted again, and their dead letters are
    kept."""
    monkeypatch.setattr(processor, "CHUNK_DOCUMENTS", 2)
    batch = [edit(*row(n, "poison" if n < 2 else "Ada")) for n in range(4)] + [edit(*row(9, layout_id=5))]
    solr.unavailable_after = 1
    with pytest.raises(Retriable):
        indexer.process(Edits.of(batch), give_up=NEVER)
    assert dead_letters.dead_letter_records == []
    solr.unavailable_after = None
    tally = indexer.process(Edits.of(batch), give_up=NEVER)
    assert (tally.accepted, tally.dead, len(dead_letters.dead_letter_records)) == (2, 3, 3)
    assert [names(post) for post in solr.posts] == [["poison", "poison"], ["Ada", "Ada"]]


def test_an_unknown_layout_is_looked_for_once_a_batch(
    indexer: Processor, dead_letters: FakeDeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand rows of an unknown layout query HBase once. The next batch queries again, because it may be stored by
    then."""
    asked: list[int] = []

    def layout(self: FakeLayouts, layout_id: int) -> Layout:
        asked.append(layout_id)
        raise Skippable(f"layout {layout_id} is not stored")

    monkeypatch.setattr(FakeLayouts, "layout", layout)
    for _ in range(2):
        assert indexer.process(Edits.of([edit(*row(n)) for n in range(5)]), give_up=NEVER).dead == 5
    assert asked == [1, 1]


def test_time_is_up_before_the_next_chunk(indexer: Processor, solr: FakeSolr) -> None:
    """A batch for which HBase has stopped waiting is dropped, because HBase sends it again."""
    with pytest.raises(Retriable, match="longer than HBase waits"):
        indexer.process(Edits.of([edit(*row(1))]), give_up=-1.0)
    assert solr.posts == []


def test_fields_that_a_collection_lost_are_added_again(
    indexer: Processor, solr: FakeSolr, dead_letters: FakeDeadLetters
) -> None:
    """A collection that is created again under a running indexer must not turn every row into a dead letter."""
    indexer.process(Edits.of([edit(*row(1))]), give_up=NEVER)
    solr.fields.clear()
    assert indexer.process(Edits.of([edit(*row(2))]), give_up=NEVER).accepted == 1
    assert dead_letters.dead_letter_records == []


def test_barriers_have_their_fields_in_older_collections(indexer: Processor, solr: FakeSolr) -> None:
    """A collection from before barriers had `_incomplete` gets the field before the first barrier."""
    indexer.process(Edits.of([edit(barrier())]), give_up=NEVER)
    assert "_incomplete" in solr.fields


def test_a_refused_barrier_stops_the_process(
    indexer: Processor, solr: FakeSolr, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without barriers nothing is known to be visible, so the process stops."""
    monkeypatch.setattr(solr, "post", lambda documents, backlog=False: [RefusedDocument(position=0, reason="HTTP 400")])
    with pytest.raises(Fatal):
        indexer.process(Edits.of([edit(barrier())]), give_up=NEVER)


@pytest.mark.parametrize("timestamp", [99 + 3_600_001, 2**62])
def test_a_timestamp_from_the_future_fences_nothing(
    indexer: Processor, solr: FakeSolr, dead_letters: FakeDeadLetters, timestamp: int
) -> None:
    """A forged one would otherwise hide every later update of the row. The other rows of the batch are indexed."""
    forged = [*row(1, "Eve", timestamp), Cell(barrier_key(0), b"d", b"_barrier", timestamp, PUT, b"")]
    edits = [edit(*forged), edit(*row(1)), edit(*row(2, timestamp=99 + 3_600_000)), edit(barrier())]
    tally = indexer.process(Edits.of(edits), give_up=NEVER)
    assert [names(post) for post in solr.posts] == [["Ada", "Ada"], ["barrier-0"]]
    assert (tally.accepted, tally.barriers, tally.dead) == (2, 1, 2)
    assert {one.row for one in dead_letters.dead_letter_records} == {CODEC.row_key({"id": 1}), barrier_key(0)}
    assert all("in the future" in one.reason for one in dead_letters.dead_letter_records)
    assert {one.version for one in dead_letters.dead_letter_records} == {2 * timestamp}, "no earlier change settles it"


def test_a_scan_does_not_index_rows_from_the_future(
    indexer: Processor, solr: FakeSolr, dead_letters: FakeDeadLetters
) -> None:
    """A rebuild reads the table itself, which may contain such a row."""
    cells = {cell.qualifier: cell.value for cell in row(1)}
    changes = [
        RowChange(CODEC.row_key({"id": number}), version, cells, False)
        for number, version in ((1, 2 * 10), (2, 2**62), (3, 2**62 + 1))
    ]
    tally = indexer.index_rows(changes)
    assert (tally.accepted, tally.dead) == (1, 2)

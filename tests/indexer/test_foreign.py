"""A batch of an external table that takes longer than HBase waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from cdc.model.errors import Retriable
from cdc.model.types import parse_type
from cdc.stored.foreign import ForeignField, ForeignTable
from indexer.foreign import foreign
from indexer.foreign.foreign import ForeignProcessor, RegionProgress
from indexer.foreign.mapping import ForeignRow
from indexer.index.mapping import Document, Field
from indexer.index.processor import DeadLetter, RefusedDocument
from indexer.peer.peer import Edit, Edits
from indexer.peer.wire import PUT, Cell

TABLE = ForeignTable(
    name="t",
    table="default:t",
    mapping="row",
    read_row="dynamic",
    unique_key="string",
    fields=(ForeignField(name="age", family="d", qualifier="age", take="value", type=parse_type("int32")),),
)


class Servers:
    """Simulated HBase, Solr, Kafka and clock: each read of rows takes a second; Kafka can be unavailable."""

    def __init__(self) -> None:
        self.now = 0.0
        self.read: list[bytes] = []
        self.documents: list[Document] = []
        self.dead_letter_records: list[DeadLetter] = []
        self.kafka_is_down = False

    def rows(self, keys: Sequence[bytes]) -> list[ForeignRow]:
        self.now += 1.0
        self.read += keys
        return [ForeignRow(key, {(b"d", b"age"): b"bad" if key == b"r0" else bytes(4)}, 7) for key in keys]

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        return False

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
        raise AssertionError("a fenced post")

    def versions(self, keys: Sequence[str]) -> dict[str, int]:
        return {}

    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[RefusedDocument]]:
        self.documents += documents
        return set(), []

    def keys_of(self, row: str) -> list[str]:
        return []

    def accepted(self, rows: Mapping[bytes, int]) -> None:
        pass

    def put(self, dead_letter_records: Sequence[DeadLetter]) -> None:
        if self.kafka_is_down:
            raise Retriable("Kafka is unavailable")
        self.dead_letter_records += dead_letter_records


def batch(*, rows: int = 6) -> Edits:
    """Return edits of two rows each, as in a region's log."""
    return Edits.of(
        [
            Edit(
                table=b"t",
                region=b"r",
                sequence=100 + first,
                write_time=0,
                cells=[Cell(b"r%d" % number, b"d", b"age", 7, PUT, bytes(4)) for number in (first, first + 1)],
            )
            for first in range(0, rows, 2)
        ]
    )


class Store:
    """Simulated ZooKeeper: its content outlives a processor."""

    def __init__(self) -> None:
        self.stored: dict[bytes, RegionProgress] = {}

    def read(self, region: bytes) -> RegionProgress | None:
        return self.stored.get(region)

    def write(self, region: bytes, progress: RegionProgress) -> None:
        self.stored[region] = progress

    def clear(self, region: bytes) -> None:
        del self.stored[region]


def processor_over(servers: Servers, store: Store) -> ForeignProcessor:
    return ForeignProcessor(
        TABLE,
        search=(),
        rows=servers,
        collections=[servers],
        dead_letters=servers,
        progress=store,
        clock_ms=lambda: 1,
        monotonic=lambda: servers.now,
    )


@pytest.fixture(autouse=True)
def three_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a part to three rows, so that it ends within an edit."""
    monkeypatch.setattr(foreign, "ROWS_AT_A_TIME", 3)


def test_a_batch_that_is_sent_again_resumes() -> None:
    """A batch resumes in another process after the first one died: rows read after its events are not read again, no
    dead letter is lost, and the tally covers the whole batch."""
    servers, store = Servers(), Store()
    servers.kafka_is_down = True
    with pytest.raises(Retriable, match="Kafka"):
        processor_over(servers, store).process(batch(), give_up=100.0)
    servers.kafka_is_down = False
    servers.read.clear()
    for done in (2, 5):
        with pytest.raises(Retriable, match=f"{done} documents"):
            processor_over(servers, store).process(batch(rows=8), give_up=servers.now + 0.5)
    tally = processor_over(servers, store).process(batch(rows=8), give_up=servers.now + 0.5)
    assert servers.read == [b"r%d" % number for number in range(8)]
    assert [dead_letter.row for dead_letter in servers.dead_letter_records] == [b"r0"]
    assert (tally.accepted, tally.dead) == (7, 1)
    assert store.stored == {}


def test_a_batch_that_has_grown_is_indexed_to_its_end() -> None:
    """HBase reads its log again after a restart, and may find more in it."""
    servers, store = Servers(), Store()
    with pytest.raises(Retriable):
        processor_over(servers, store).process(batch(rows=6), give_up=0.5)
    processor_over(servers, store).process(batch(rows=8), give_up=100.0)
    assert servers.read == [b"r%d" % number for number in range(8)]


def test_what_was_answered_is_not_remembered() -> None:
    """A batch that is shipped again although it was answered is indexed again: only running ones are recorded."""
    servers, store = Servers(), Store()
    processor_over(servers, store).process(batch(), give_up=100.0)
    assert store.stored == {}
    processor_over(servers, store).process(batch(), give_up=100.0)
    assert servers.read == 2 * [b"r%d" % number for number in range(6)]


def test_a_row_that_was_read_after_a_write_is_not_read_for_it() -> None:
    cells = [Cell(b"r%d" % (number % 6), b"d", b"age", 7, PUT, bytes(4)) for number in range(60)]
    edits = Edits.of([Edit(table=b"t", region=b"r", sequence=1, write_time=0, cells=cells)])
    servers = Servers()
    processor_over(servers, Store()).process(edits, give_up=100.0)
    assert servers.read == [b"r%d" % number for number in range(6)]

"""A batch of a foreign table that takes longer than HBase waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from cdc.errors import Retriable
from cdc.foreign import ForeignField, ForeignTable
from cdc.types import parse_type
from indexer import foreign
from indexer.foreign import ForeignProcessor, ForeignRow
from indexer.mapping import Document, Field
from indexer.peer import Edit, Edits
from indexer.processor import DeadLetter, Refused
from indexer.wire import PUT, Cell

TABLE = ForeignTable(
    name="t",
    table="default:t",
    mapping="row",
    read_row="dynamic",
    unique_key="string",
    fields=(ForeignField(name="age", family="d", qualifier="age", take="value", type=parse_type("int32")),),
)


class Servers:
    """HBase, Solr, Kafka and the clock: each read of rows takes a second; Kafka is away while told so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.read: list[bytes] = []
        self.documents: list[Document] = []
        self.letters: list[DeadLetter] = []
        self.kafka_is_away = False

    def rows(self, keys: Sequence[bytes]) -> list[ForeignRow]:
        self.now += 1.0
        self.read += keys
        return [ForeignRow(key, {(b"d", b"age"): b"bad" if key == b"r0" else bytes(4)}, 7) for key in keys]

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        return False

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[Refused]:
        raise AssertionError("a fenced post")

    def versions(self, keys: Sequence[str]) -> dict[str, int]:
        return {}

    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[Refused]]:
        self.documents += documents
        return set(), []

    def keys_of(self, row: str) -> list[str]:
        return []

    def put(self, letters: Sequence[DeadLetter]) -> None:
        if self.kafka_is_away:
            raise Retriable("Kafka is away")
        self.letters += letters


def batch(value: bytes = bytes(4)) -> Edits:
    cells = [Cell(b"r%d" % number, b"d", b"age", 7, PUT, value) for number in range(6)]
    return Edits.of([Edit(table=b"t", region=b"r", sequence=0, write_time=0, cells=cells)])


def processor_over(servers: Servers) -> ForeignProcessor:
    return ForeignProcessor(
        TABLE,
        search=(),
        rows=servers,
        collection=servers,
        quarantine=servers,
        clock_ms=lambda: 1,
        monotonic=lambda: servers.now,
    )


def test_a_batch_sent_again_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must end some time: what was read behind its events is not read again, and no letter is lost on the way."""
    monkeypatch.setattr(foreign, "ROWS_AT_A_TIME", 2)
    servers = Servers()
    processor = processor_over(servers)

    def attempt() -> None:
        processor.process(batch(), give_up=servers.now + 0.5)

    with pytest.raises(Retriable, match="2 rows"):
        attempt()
    servers.kafka_is_away = True
    with pytest.raises(Retriable, match="4 rows"):
        attempt()
    with pytest.raises(Retriable, match="Kafka"):
        attempt()
    servers.kafka_is_away = False
    tally = processor.process(batch(), give_up=servers.now + 0.5)
    assert sorted(servers.read) == [b"r%d" % number for number in range(6)]
    assert [letter.row for letter in servers.letters] == [b"r0"]
    assert (tally.accepted, tally.dead) == (5, 1)


def test_another_batch_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were read for one batch are read again for the next: it may show something newer."""
    monkeypatch.setattr(foreign, "ROWS_AT_A_TIME", 2)
    servers = Servers()
    processor = processor_over(servers)
    with pytest.raises(Retriable):
        processor.process(batch(), give_up=0.5)
    processor.process(batch(b"\x00\x00\x00\x01"), give_up=100.0)
    assert sorted(servers.read) == sorted([b"r0", b"r1", *(b"r%d" % number for number in range(6))])

"""Open dead-letter records of a joined table and of an index: none is overlooked, however Kafka returns them."""

from __future__ import annotations

from typing import Any

import orjson

from cdc.model.brokers import Brokers
from indexer.index.kafka_open import OpenRows
from joins.stores.kafka_open import OpenRecords
from tests.support.fake_consumer import FakeConsumer, FakeMessage, end


def consumer_of(first: dict[str, Any], second: dict[str, Any]) -> Any:
    """Return a consumer that returns a record, the end, and the next record in one answer."""
    records = [FakeMessage(offset, orjson.dumps(value)) for offset, value in ((5, first), (6, second))]
    return FakeConsumer([records[0], end(6), records[1], end(7)])


def test_records_after_an_end_of_the_partition_are_read() -> None:
    """A reader at the end receives all of one answer."""
    first, second = (
        {"stage": "join", "table": "t", "topic": "x", "partition": 0, "offset": n, "key": f"k{n}"} for n in (0, 1)
    )
    records = OpenRecords(Brokers("none:1"), "topology", "t")
    records._new._consumer = consumer_of(first, second)
    records.refresh()
    assert sorted(records._logged["x", 0]) == ["k0", "k1"]
    assert records._new.next == 7


def test_an_indexer_reads_records_after_an_end_of_the_partition() -> None:
    """The same in the indexer."""
    first, second = ({"stage": "indexer", "index": "i", "row": row, "version": 1} for row in ("00", "01"))
    rows = OpenRows(Brokers("none:1"), "letters", "i")
    rows._new._consumer = consumer_of(first, second)
    rows.look()
    assert sorted(rows.rows) == [b"\x00", b"\x01"]

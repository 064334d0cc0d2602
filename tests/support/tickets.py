"""Sample tickets: markup and Solr's syntax in values, empty texts and NULLs, sets, long words. They are in Solr, by the
indexer's own mapping."""

from __future__ import annotations

import time

from cdc.model.types import Canonical, parse_type
from cdc.stored.cells import Barrier, RowCodec
from cdc.stored.layout import Layout, LayoutColumn
from cdc.topology.topology import Solr
from indexer.index.collapse import RowChange
from indexer.index.mapping import Mapper, barrier_document, tombstone
from indexer.solr.solr_collection import SolrCollection

COLUMNS = {
    "id": "int64",
    "title": "string",
    "mood": "string",
    "urgent": "bool",
    "cost": "decimal(10,2)",
    "opened_on": "datetime",
    "remark": "string",
    "tags": "string",
}
SEARCH = ("title", "remark")
LAYOUT = Layout(
    topology="t",
    table="tickets",
    id=1,
    family="d",
    columns=tuple(LayoutColumn(name=n, type=parse_type(t), origin="", members=n == "tags") for n, t in COLUMNS.items()),
    row_key=("id",),
    salt_buckets=1,
)
TAGS = ["hot,new", "new", "", None]
LONG = f"{'x' * 90} {'ever longer ' * 30}"
MOODS = ['say "hi"', "grün & süß", "", None]
HOSTILE = ["<img src=x onerror=\"document.title='taken'\">", "<b>bold</b>", "{{ 7*7 }}", "</td></tr><script>1</script>"]


class TicketIndex:
    """A collection of tickets; `fence` grows with each write, and a barrier signals each change."""

    def __init__(self, url: str, name: str) -> None:
        self.collection, self.fence = SolrCollection(Solr(url=url), name, commit_within=0.1), 100
        self.collection.ensure_fields(Mapper(LAYOUT, SEARCH).fields)

    def fill(self) -> None:
        """Index 120 tickets of 120 days with every mood, and one that is deleted."""
        for i in range(121):
            self._post(
                i,
                title=f"Ticket {i} of Müller's" + (f" {LONG}" if i == 118 else ""),
                tags=TAGS[i % 4],
                mood=MOODS[i % 4],
                urgent=i % 3 == 0,
                cost=f"{i}.50",
                opened_on=f"2026-{i // 30 + 1:02}-{i % 28 + 1:02}T10:00:{i % 60:02}.25Z",
                remark=HOSTILE[i % 4] if i >= 110 else None,
            )
        self.delete(120)

    def put(self, number: int, **values: Canonical) -> None:
        """Index a row as the indexer does: decoded from cells, mapped with the layout, with a version fence."""
        self._post(number, **values)
        self.barrier()

    def _post(self, number: int, **values: Canonical) -> None:
        row: dict[str, Canonical] = {**dict.fromkeys(COLUMNS), "id": number, **values}
        codec = RowCodec(LAYOUT)
        self.fence += 2
        now = time.time_ns() // 1_000_000
        cells = codec.cells(row, batch=1, ts_ms=now - 200)
        change = RowChange(row=codec.row_key(row), version=self.fence, cells=cells, deleted=False)
        assert self.collection.post([Mapper(LAYOUT, SEARCH).document(change, now_ms=now)]) == []

    def delete(self, number: int) -> None:
        self.fence += 2
        key = RowCodec(LAYOUT).row_key({"id": number})
        change = RowChange(row=key, version=self.fence + 1, cells={}, deleted=True)
        assert self.collection.post([tombstone(change)]) == []
        self.barrier()

    def barrier(self, incomplete: int = 0) -> None:
        """Write the barrier of a join that has refused a number of changes."""
        self.fence += 2
        made = Barrier(bucket=0, buckets=1, batch=1, timestamp=1, positions={}, incomplete=incomplete)
        assert self.collection.post([barrier_document(made, self.fence, now_ms=1)]) == []

    def close(self) -> None:
        self.collection.close()

"""Sample sales: rows with NULLs, an outlier in time, numbers of every kind. They are in Solr, by the indexer's own
mapping, and in DuckDB, whose answers are the expected ones."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import duckdb

from cdc.model.types import Canonical, parse_type
from cdc.stored.cells import Barrier, RowCodec
from cdc.stored.layout import Layout, LayoutColumn
from cdc.topology.topology import Solr
from indexer.index.collapse import RowChange
from indexer.index.mapping import Mapper, barrier_document
from indexer.solr.solr_collection import SolrCollection

COLUMNS = {
    "id": "int64",
    "country": "string",
    "product": "string",
    "amount": "decimal(10,2)",
    "quantity": "int32",
    "views": "int64",
    "weight": "float64",
    "sold_at": "datetime",
    "paid": "bool",
    "note": "string",
    "tags": "string",
    "serial": "uint64",
    "papers": "json",
}
SEARCH = ("product", "note")
LAYOUT = Layout(
    topology="t",
    table="sales",
    id=1,
    family="d",
    columns=tuple(LayoutColumn(name=n, type=parse_type(t), origin="", members=n == "tags") for n, t in COLUMNS.items()),
    row_key=("id",),
    salt_buckets=1,
)
_SQL = {
    "int64": "BIGINT", "int32": "INTEGER", "string": "VARCHAR", "decimal(10,2)": "DECIMAL(10,2)", "float64": "DOUBLE",
    "datetime": "TIMESTAMP", "bool": "BOOLEAN", "uint64": "UBIGINT", "json": "VARCHAR",
}  # fmt: skip
COUNTRIES = ["DE", "AT", "CH", "FR", "it's", "a,b", "", "<b>bold</b>"]
HOSTILE = ["=1+1", "+49 1", "-x", "@cmd", '{!func}1 "', "*:*", "_query_:x", "<img src=x onerror=alert(1)>"]


def sales(count: int, *, seed: int, until_ms: int) -> list[dict[str, Canonical]]:
    """Return `count` rows of the 60 days that end at `until_ms`; one of them is of the year 9999."""
    random = Random(seed)
    rows: list[dict[str, Canonical]] = []
    for i in range(count):
        at = until_ms - random.randrange(60 * 86_400) * 1000 - 1000
        rows.append(
            {
                "id": i,
                "country": random.choices([*COUNTRIES, None], [9, 6, 5, 4, 3, 2, 1, 1, 2])[0],
                "product": f"Product {int(random.paretovariate(0.7)) % 40}" if random.random() < 0.95 else None,
                "amount": f"{random.randrange(-500, 100_000) / 100:.2f}" if random.random() < 0.95 else None,
                "quantity": random.randrange(1, 30) if random.random() < 0.9 else None,
                "views": random.randrange(10**14),
                "weight": random.uniform(0, 3),
                "sold_at": moment(at) if i else "9999-12-31T00:00:00Z",
                "paid": random.choice([True, False, None]),
                "note": random.choice([*HOSTILE, None, "plain"]),
                "tags": random.choice(["new", "new,hot", "", None]),
                "serial": random.randrange(2**64),
                "papers": '{"a": 1}',
            }
        )
    return rows


def moment(ms: int) -> str:
    """Return an instant as a canonical datetime."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000))


def in_duckdb(rows: Sequence[Mapping[str, Canonical]]) -> duckdb.DuckDBPyConnection:
    """Create the rows as a table `sales`."""
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE sales ({', '.join(f'{n} {_SQL[t]}' for n, t in COLUMNS.items())})")
    marks = ", ".join("?" for _ in COLUMNS)
    values = [[_plain(row[name]) for name in COLUMNS] for row in rows]
    connection.executemany(f"INSERT INTO sales VALUES ({marks})", values)
    return connection


def _plain(value: Canonical) -> Any:
    return value.removesuffix("Z") if isinstance(value, str) and value.endswith("Z") and "T" in value else value


class SalesIndex:
    """A collection of sales; `fence` grows with each write, and a barrier signals each change."""

    def __init__(self, url: str, name: str) -> None:
        self.solr, self.name, self.fence = Solr(url=url), name, 100
        self.collection = SolrCollection(self.solr, name, commit_within=0.1)
        self.collection.ensure_fields(Mapper(LAYOUT, SEARCH).fields)

    def put(self, rows: Sequence[Mapping[str, Canonical]]) -> None:
        """Index rows as the indexer does, then a barrier."""
        codec, mapper = RowCodec(LAYOUT), Mapper(LAYOUT, SEARCH)
        now = time.time_ns() // 1_000_000
        documents = []
        for row in rows:
            self.fence += 2
            cells = codec.cells(row, batch=1, ts_ms=now - 200)
            change = RowChange(row=codec.row_key(row), version=self.fence, cells=cells, deleted=False)
            documents.append(mapper.document(change, now_ms=now))
        assert self.collection.post(documents) == []
        self.barrier()

    def barrier(self, incomplete: int = 0) -> None:
        self.fence += 2
        now = time.time_ns() // 1_000_000
        positions = {"shop": {"sequence": self.fence, "gtid_set": "", "offset": self.fence}}
        made = Barrier(bucket=0, buckets=1, batch=1, timestamp=now, positions=positions, incomplete=incomplete)
        assert self.collection.post([barrier_document(made, self.fence, now_ms=now)]) == []

    def close(self) -> None:
        self.collection.close()

"""What every search engine of an index does: the fence, refused documents, exact values, barriers, conditional writes,
the removal of tombstones, and a swap without a gap. Each test runs on a real Solr and a real OpenSearch.

Marks: tests/contracts/test_solr_collection.py tests what only Solr has."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import requests

from cdc.model.errors import Retriable
from cdc.process.file_topology import load_topology
from cdc.stored import fields
from cdc.stored.cells import Barrier
from cdc.topology.topology import Index, IndexKind, Topology
from indexer.engine.engine import SearchCollection, open_collection
from indexer.index.mapping import Document, Field, barrier_document
from indexer.rebuild.reindex import CollectionAdmin
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.provision.engine_admin import admin_of
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

KINDS: tuple[IndexKind, ...] = ("solr", "opensearch")
TOPOLOGY = """
name: contract
solr: {url: "%s"}
opensearch: {url: "%s"}
foreign_tables:
  people:
    table: people
    mapping: row
    unique_key: string
    fields: {name: {source: "info:name", type: string}}
"""
FIELDS = (
    Field(name="n", type="pint", stored=True),
    Field(name="text", type="exact", stored=True),
    Field(name="_t_text", type="words", stored=False),
)


@pytest.fixture(scope="module")
def topology(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Topology:
    """A topology with both engines; OpenSearch starts for this module and ends with the other servers."""
    stack.start("opensearch")
    addresses = stack.addresses()
    file = tmp_path_factory.mktemp("indexes") / "contract.yml"
    file.write_text(TOPOLOGY % (addresses["solr"], addresses["opensearch"]))
    return load_topology(str(file))


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine with an index of a joined table, whose collection exists."""

    topology: Topology
    index: Index
    admin: CollectionAdmin

    def opened(self, name: str | None = None, *, table: str = "joined", commit_within: float = 0.1) -> SearchCollection:
        index = replace(self.index, table=table, commit_within=commit_within)
        return open_collection(self.topology, index, name)

    def found(self, query: str, name: str = "") -> int:
        """Return how many documents a user's search finds, in the language of Lucene, which both have."""
        name = name or self.index.collection
        if self.index.type == "solr":
            url, asked = f"{self.topology.solr.url}/{name}/select", {"q": query, "rows": "0", "wt": "json"}
            answer = requests.get(url, params=asked | {"fq": "_kind:row"}, timeout=30)
            answer.raise_for_status()
            return int(answer.json()["response"]["numFound"])
        # the alias itself hides what is no row
        answer = requests.get(f"{self.topology.opensearch.url}/{name}/_count", params={"q": query}, timeout=30)
        answer.raise_for_status()
        return int(answer.json()["count"])


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest, topology: Topology, unique: Callable[[str], str]) -> Iterator[Engine]:
    """One engine with an empty collection, which is removed afterwards."""
    index = Index(
        name="i", table="joined", collection=unique("c"), search=("text",), commit_within=0.1, type=request.param
    )
    admin = admin_of(topology, index)
    assert not admin.exists(index.collection)
    admin.create(index.collection)
    assert admin.exists(index.collection)
    yield Engine(topology=topology, index=index, admin=admin)
    if admin.exists(index.collection):
        admin.remove(index.collection)


@pytest.fixture
def collection(engine: Engine) -> Iterator[SearchCollection]:
    with closing(engine.opened()) as opened:
        assert opened.ensure_fields(FIELDS)
        assert not opened.ensure_fields(FIELDS)
        yield opened


def row(key: str, version: int, **values: Any) -> Document:
    return {"_id": key, "_fence": version, "_kind": "row", **values}


def tombstone(key: str, version: int) -> Document:
    return {"_id": key, "_fence": version}


def barrier(bucket: int, buckets: int, timestamp: int) -> Document:
    made = Barrier(bucket=bucket, buckets=buckets, batch=1, timestamp=timestamp, positions={})
    return barrier_document(made, 2 * timestamp, now_ms=1)


def rows_in(collection: SearchCollection) -> int:
    return collection.count_rows(until_ms=2**41)


def test_the_greater_version_wins_in_any_order(collection: SearchCollection) -> None:
    """Histories of puts and deletes of 40 rows, shuffled and repeated, end as the newest write of each row."""
    random = Random(7)
    expected: dict[str, int] = {}
    posts: list[Document] = []
    for history in range(40):
        key, writes = f"{history:02x}", list[Document]()
        for timestamp in random.sample(range(1000, 1100, 2), 5):
            if random.random() < 0.5:
                writes.append(tombstone(key, 2 * timestamp + 1))
            if random.random() < 0.6:
                writes.append(row(key, 2 * (timestamp + 1), n=timestamp))
        posts += writes + random.choices(writes, k=3) if writes else []
        newest = max(writes, key=lambda document: int(str(document["_fence"])), default={})
        if "n" in newest:
            expected[key] = int(str(newest["n"]))
    random.shuffle(posts)
    while posts:
        size = random.randint(1, 40)
        batch, posts = posts[:size], posts[size:]
        assert collection.post(batch) == []
        if random.random() < 0.2:
            rows_in(collection)  # some decisions use what searches see, the others the transaction log
    stored = collection.stored([f"{history:02x}" for history in range(40)])
    assert {key: one["n"] for key, one in stored.items() if one.get("_kind") == "row"} == expected
    assert rows_in(collection) == len(expected)


def test_a_stale_or_equal_version_changes_nothing_and_is_no_error(collection: SearchCollection) -> None:
    """Repeats are accepted silently. A deleted row stays deleted after a second, too: engines forget deletes."""
    assert collection.post([row("a", 10, n=1), row("b", 10, n=1)]) == []
    assert collection.post([row("a", 10, n=2), row("a", 9, n=3), tombstone("a", 9), tombstone("b", 11)]) == []
    time.sleep(1.2)
    assert collection.post([row("b", 10, n=1)]) == []
    assert rows_in(collection) == 1
    assert (collection.stored(["a"])["a"]["n"], collection.stored(["a"])["a"]["_fence"]) == (1, 10)


def test_refused_documents_are_named_and_the_others_are_indexed(collection: SearchCollection) -> None:
    """Three of 200 documents are refused, each with its place and reason; the other 197 are stored."""
    documents = [row(f"{n:03d}", 10, n="x" if n in (0, 77, 199) else n) for n in range(200)]
    refused = collection.post(documents)
    assert [each.position for each in refused] == [0, 77, 199]
    assert all("x" in each.reason for each in refused)
    assert rows_in(collection) == 197
    [unknown] = collection.post([row("z", 1, nothing_known=1), row("y", 1)])
    assert unknown.position == 0
    assert "nothing_known" in unknown.reason


VALUES: dict[str, tuple[str, Any]] = {
    "truth": ("boolean", True),
    "least": ("plong", -(2**63)),
    "most": ("plong", 2**63 - 1),
    "uint64": ("string", "18446744073709551615"),
    "decimal": ("string", "-0.10000000000000000000000000000000000001"),
    "third": ("pdouble", 1 / 3),
    "tiny": ("pdouble", 5e-324),
    "infinite": ("pdouble", "-Infinity"),
    "date": ("string", "9999-12-31"),
    "nanoseconds": ("string", "2026-11-28T05:46:43.123456789Z"),
    "year": ("pdate", "2026-11-28T05:46:43.123Z"),
    "empty": ("exact", ""),
    "control": ("exact", "\x00\x01\x1f\x7f <b>&amp;</b> é😀\ufffe"),
    "large": ("exact", "é" * 200_000),
    "json": ("stored", '{"a": "\\u0000", "b": [' + "1, " * 50_000 + "1]}"),
}


def test_values_of_every_type_are_read_back_unchanged(collection: SearchCollection) -> None:
    """No value is refused, rounded, cleaned or cut; members of lists keep their order."""
    wanted = [Field(name=name, type=type_, stored=True) for name, (type_, _) in VALUES.items()]
    wanted.append(Field(name="list", type="exact", stored=True, many=True))
    assert collection.ensure_fields(wanted)
    document = row("a", 1, **{name: value for name, (_, value) in VALUES.items()}, list=["b", "", "a b", "b"])
    assert collection.post([document, row("b", 1)]) == []
    for held in (collection.stored(["a", "b"]), rows_in(collection) and collection.stored(["a", "b"])):
        assert isinstance(held, dict)
        shown = {**held["a"], "infinite": _finite(held["a"]["infinite"])}
        assert shown == {**document, "infinite": "-Infinity"}
        assert held["b"] == row("b", 1)


def _finite(value: Any) -> Any:
    return "-Infinity" if isinstance(value, float) and math.isinf(value) else value


def test_users_find_rows_by_words_and_derived_fields(engine: Engine, collection: SearchCollection) -> None:
    """Searches see rows only, and filter by the fields that the index derives: exact text, words, numbers, dates."""
    query_fields = [
        Field(name="_q_price", type="pdouble", stored=False),
        Field(name="_q_at", type="pdate", stored=False),
    ]
    collection.ensure_fields([*query_fields, Field(name="_m_tags", type="string", stored=False, many=True)])
    more = {"_q_price": 9.5, "_q_at": "2026-11-28T00:00:00Z", "_m_tags": ["red", "blue"]}
    documents = [row("a", 4, text="New York", _t_text="New York", **more), row("b", 4, text="york", _t_text="york")]
    assert collection.post([*documents, tombstone("c", 5), barrier(0, 1, 3)]) == []
    wait_for(lambda: collection.visible_timestamp() == 3, "the barrier is not visible", 10)
    assert [engine.found(one) for one in ('text:"New York"', "_t_text:york", "_q_price:[9 TO 10]", "_m_tags:blue")] == [
        1, 2, 1, 1,
    ]  # fmt: skip
    assert engine.found("_q_at:[2026-11-27T00:00:00Z TO 2026-11-29T00:00:00Z]") == 1
    assert engine.found("*:*") == 2


def test_a_visible_barrier_means_visible_rows(engine: Engine) -> None:
    """A reader that sees the barriers of all buckets sees all rows written before them, even if the engine is slow."""
    with closing(engine.opened(commit_within=0.5)) as collection:
        collection.ensure_fields(FIELDS)
        assert collection.visible_timestamp() is None
        for turn in range(4):
            assert collection.post([row(f"{turn}{n:03x}", 10, n=n) for n in range(300)], backlog=True) == []
            assert collection.post([barrier(0, 2, 10 + turn)]) == []
            assert collection.post([barrier(1, 2, 10 + turn)]) == []
            wait_for(lambda at=10 + turn: collection.visible_timestamp() == at, "the barriers are not visible", 15)  # type: ignore[misc]  # a default
            assert engine.found("*:*") == 300 * (turn + 1)
        assert sorted(int(one[fields.BUCKETS]) for one in collection.barriers()) == [2, 2]


def test_tombstones_are_removed_once_no_write_can_be_older(collection: SearchCollection) -> None:
    """Only tombstones that are older than a barrier of every bucket; rows and newer tombstones stay."""
    assert collection.post([row("a", 10), tombstone("b", 11), tombstone("c", 2001)]) == []
    assert collection.purge_tombstones(before_ms=10_000, buckets=1) == 0
    assert collection.post([barrier(0, 1, 100)]) == []
    wait_for(lambda: collection.visible_timestamp() == 100, "the barrier is not visible", 10)
    assert collection.purge_tombstones(before_ms=4, buckets=1) == 0
    assert collection.purge_tombstones(before_ms=10_000, buckets=1) == 1
    assert sorted(collection.stored(["a", "b", "c"])) == ["a", "c"]
    assert collection.post([row("b", 300)]) == []
    assert rows_in(collection) == 2


def test_a_conditional_write_of_an_external_table(engine: Engine, collection: SearchCollection) -> None:
    """Of several writers that read the same version, exactly one succeeds; the others repeat."""
    with closing(engine.opened(table="people")) as people:
        key = row("a", 1, n=1)
        assert people.versions(["a"]) == {}
        assert people.put_if([{**key, "_version_": -1}]) == (set(), [])
        assert people.put_if([{**key, "_version_": -1}]) == ({"a"}, [])
        version = people.versions(["a"])["a"]
        with ThreadPoolExecutor(4) as pool:
            tried = list(pool.map(lambda n: people.put_if([{**key, "n": n, "_version_": version}]), range(4)))
        assert sorted(len(conflicts) for conflicts, _ in tried) == [0, 1, 1, 1]
        conflicts, refused = people.put_if([{**key, "n": "x", "_version_": people.versions(["a"])["a"]}])
        assert (conflicts, [one.position for one in refused]) == (set(), [0])
        documents = [{**row(f"a-{n}", 1, _row="61"), "_version_": -1} for n in range(3)]
        people.ensure_fields([Field(name=fields.ROW_KEY, type="string", stored=True)])
        assert people.put_if(documents) == (set(), [])
        assert sorted(people.keys_of("61")) == ["a-0", "a-1", "a-2"]


def test_a_repair_replaces_what_the_fence_would_keep(collection: SearchCollection) -> None:
    """A document with its row's version, or a greater one, is replaced; the fence works as before."""
    assert collection.post([row("equal", 10, n=1), row("greater", 1000, n=1), tombstone("hidden", 1001)]) == []
    for key in ("equal", "greater", "hidden", "absent"):
        right = row(key, 10, n=7)
        for _ in range(50):
            versions = collection.versions([key])
            conflicts, refused = collection.put_if([{**right, "_version_": versions.get(key, -1)}])
            assert refused == []
            if not conflicts:
                break
        assert collection.stored([key])[key] == right
        assert collection.post([row(key, 10, n=8), row(key, 9, n=9)]) == []
        assert collection.stored([key])[key]["n"] == 7
        assert collection.post([row(key, 12, n=12)]) == []
        assert collection.stored([key])[key]["n"] == 12


def test_a_swap_has_no_gap_and_can_be_undone(engine: Engine, collection: SearchCollection) -> None:
    """Searches of the live name see all rows at every moment of two swaps; each name leads writes to its collection."""
    live, other, admin = engine.index.collection, f"{engine.index.collection}_r1", engine.admin
    documents = [row(f"{n:03x}", 10, n=n) for n in range(100)]
    admin.create(other)
    with closing(engine.opened(other)) as fresh:
        fresh.ensure_fields(FIELDS)
        for each in (collection, fresh):
            assert each.post(documents) == []
            assert rows_in(each) == 100
    before, candidate, standby = admin.identity(live), admin.identity(other), admin.standby_name(live, other)
    counts, over = set[int](), threading.Event()

    def search() -> None:
        while not over.is_set():
            counts.add(engine.found("*:*"))

    with ThreadPoolExecutor(1) as pool:
        searching = pool.submit(search)
        admin.swap(live, other)
        assert (admin.identity(live), admin.identity(standby)) == (candidate, before)
        with closing(engine.opened()) as now, closing(engine.opened(standby)) as former:
            assert now.post([row("live", 10, n=1)]) == []
            assert former.stored(["live"]) == {}
            assert now.stored(["live"])["live"]["n"] == 1
            assert now.post([tombstone("live", 12)]) == []
            assert rows_in(now) == 100
        admin.swap(live, standby)
        assert admin.identity(live) == before
        over.set()
        searching.result()
    assert counts <= {100, 101}
    admin.remove(other)
    assert not admin.exists(other)
    assert rows_in(collection) == 100


def test_a_column_that_changed_its_type_does_not_stop_the_indexer(collection: SearchCollection) -> None:
    """Values that the old field can hold continue to be indexed; the others are refused one by one, with the remedy."""
    assert not collection.ensure_fields([Field(name="n", type="exact", stored=True)])
    refused = collection.post([row("a", 1, n="7"), row("b", 1, n="seven"), row("c", 1), row("d", 1, n="-3")])
    assert [each.position for each in refused] == [1]
    assert "field n is a pint, which cannot hold 'seven'" in refused[0].reason
    assert "reindex" in refused[0].reason
    assert {key: one.get("n") for key, one in collection.stored(["a", "c", "d"]).items()} == {
        "a": 7,
        "c": None,
        "d": -3,
    }
    assert collection.field_types()["n"] == "pint"
    assert [one.name for one in collection.know_fields([FIELDS[0], Field(name="m", type="pint", stored=True)])] == ["m"]


def test_several_processes_add_the_same_fields_at_once(engine: Engine, collection: SearchCollection) -> None:
    """Indexers and a rebuild read a new layout at the same time: each finds its fields, none fails."""

    def ensure(wanted: list[Field]) -> bool:
        with closing(engine.opened()) as other:
            return other.ensure_fields(wanted)

    with ThreadPoolExecutor(4) as pool:
        for turn in range(4):
            wanted = [[Field(name=f"f{turn}_{n}", type="pint", stored=True) for n in range(k, 3)] for k in (0, 0, 1, 2)]
            assert any(pool.map(ensure, wanted))
            assert not collection.ensure_fields(wanted[0])


def test_a_missing_server_or_collection_is_retried(engine: Engine, tmp_path: Path) -> None:
    """HBase keeps the backlog while the engine is unavailable or lacks the collection, and nothing is created."""
    nowhere = replace(
        engine.topology,
        solr=replace(engine.topology.solr, url="http://127.0.0.1:9/solr"),
        opensearch=replace(engine.topology.opensearch, url="http://127.0.0.1:9"),
    )
    for topology in (engine.topology, nowhere):
        with closing(open_collection(topology, engine.index, "no_such_collection")) as missing:
            for act in (lambda: missing.post([row("a", 1)]), lambda: missing.ensure_fields(FIELDS), missing.barriers):
                with pytest.raises(Retriable):
                    act()
            if topology is engine.topology:
                assert not missing.exists()
    assert not engine.admin.exists("no_such_collection")

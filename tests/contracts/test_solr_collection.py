"""The features of Solr that we rely on: the version fence, isolation of refused documents, exact values of any length,
facets, words."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
import requests

from cdc.model.errors import Retriable
from cdc.stored.cells import Barrier
from cdc.topology.topology import Solr
from indexer.index.mapping import Document, Field, barrier_document
from indexer.index.processor import RefusedDocument
from indexer.solr.solr_collection import SolrCollection
from indexer.solr.solr_rows import all_documents
from tailorbird.provision.file_configset import install_configset
from tailorbird.provision.solr_admin import SolrAdmin
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration


@pytest.fixture
def url() -> str:
    return f"http://127.0.0.1:{os.environ['TAILORBIRD_PORT_SOLR']}/solr"


@pytest.fixture
def name(url: str, unique: Callable[[str], str]) -> Iterator[str]:
    """The name of a test's collection, which is removed afterwards."""
    admin = SolrAdmin(url, install=install_configset)
    collection = unique("c")
    assert not admin.exists(collection)
    admin.create(collection)
    assert admin.exists(collection)
    yield collection
    admin.remove(collection)


@pytest.fixture
def collection(url: str, name: str) -> Iterator[SolrCollection]:
    made = SolrCollection(Solr(url=url), name, commit_within=0.1)
    wanted = [Field(name="n", type="pint", stored=True), Field(name="text", type="exact", stored=True)]
    assert made.ensure_fields([*wanted, Field(name="_t_text", type="words", stored=False)])
    assert not made.ensure_fields(wanted)
    yield made
    made.close()


def row(key: str, version: int, **values: Any) -> Document:
    return {"_id": key, "_fence": version, "_kind": "row", **values}


def query(url: str, name: str, **parameters: Any) -> dict[str, Any]:
    """Run a query that sees everything posted so far."""
    requests.get(f"{url}/{name}/update", params={"commit": "true", "wt": "json"}, timeout=30).raise_for_status()
    answer = requests.post(
        f"{url}/{name}/select", data={"q": "*:*", "fq": "_kind:row", "wt": "json", **parameters}, timeout=30
    )
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def test_a_barrier_is_visible_sooner_than_a_row(url: str, name: str) -> None:
    """A barrier may arrive just after its rows' commit: it, and everything before it, is visible within a quarter of
    the commit interval of rows."""
    with contextlib.closing(SolrCollection(Solr(url=url), name, commit_within=16.0)) as collection:
        begun = time.monotonic()
        assert collection.post([row("1", 10)]) == []
        barrier = Barrier(bucket=0, buckets=1, batch=1, timestamp=5, positions={})
        assert collection.post([barrier_document(barrier, 11, now_ms=1)]) == []
        wait_for(lambda: collection.visible_timestamp() == 5, "the barrier is not visible", 14)
        answer = requests.get(f"{url}/{name}/select", params={"q": "_id:1", "wt": "json"}, timeout=30).json()
        assert answer["response"]["numFound"] == 1
        assert time.monotonic() - begun < 14


def test_the_greater_version_wins_in_any_order(collection: SolrCollection, url: str, name: str) -> None:
    """The property of tests/laws on the real Solr: 40 histories of adds and deletes, shuffled and repeated."""
    random = Random(7)
    expected: dict[str, int] = {}
    posts: list[Document] = []
    for history in range(40):
        key = f"{history:02d}"
        timestamps = random.sample(range(1000, 1100, 2), 5)
        writes: list[Document] = []
        for timestamp in timestamps:
            # as the sink writes: a delete at its timestamp, a put at timestamp + 1, sometimes both
            if random.random() < 0.5:
                writes.append({"_id": key, "_fence": 2 * timestamp + 1})
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
            query(url, name)  # some decisions use the index, the others the transaction log
    query(url, name)
    assert {document["_id"]: document["n"] for document in all_documents(url, name)} == expected


def test_a_stale_or_equal_version_changes_nothing_and_is_no_error(
    collection: SolrCollection, url: str, name: str
) -> None:
    """Replays are accepted silently: only a strictly greater version wins."""
    assert collection.post([row("a", 10, n=1)]) == []
    assert collection.post([row("a", 10, n=2), row("a", 9, n=3), {"_id": "a", "_fence": 9}]) == []
    [found] = query(url, name)["response"]["docs"]
    assert (found["n"], found["_fence"]) == (1, 10)


def test_a_write_without_a_version_is_refused(url: str, name: str, collection: SolrCollection) -> None:
    """The fence is in the default chain, so that no client bypasses it by accident."""
    answer = requests.post(f"{url}/{name}/update", json=[{"_id": "a", "n": 1}], timeout=30)
    assert answer.status_code >= 400
    assert "_fence" in answer.text
    assert query(url, name)["response"]["numFound"] == 0


def test_refused_documents_are_named_and_the_others_are_indexed(
    collection: SolrCollection, url: str, name: str
) -> None:
    """Three of 200 documents are refused, each with its place and reason; the other 197 are in Solr."""
    documents = [row(f"{n:03d}", 10, n="x" if n in (0, 77, 199) else n) for n in range(200)]
    refused = collection.post(documents)
    assert [each.position for each in refused] == [0, 77, 199]
    assert all("For input string" in each.reason or "Error adding field" in each.reason for each in refused)
    assert query(url, name, rows=0)["response"]["numFound"] == 197
    unknown = collection.post([row("z", 1, nothing_known=1)])
    assert unknown == [RefusedDocument(position=0, reason=unknown[0].reason)]
    assert "nothing_known" in unknown[0].reason


@pytest.mark.parametrize(
    "text",
    ["", " ", "\x00\x01\x1f\x7f", "<b>&amp;</b>", "é😀\ufffe", "x" * 40_000, "é" * 200_000, '{"a": "\\u0000"}'],
    ids=["empty", "blank", "control", "markup", "wide", "large", "larger than a term", "escape"],
)
def test_texts_are_read_back_unchanged(collection: SolrCollection, url: str, name: str, text: str) -> None:
    """No value is refused, cleaned or cut: not the empty text, control characters or 400,000 bytes."""
    assert collection.post([row("a", 1, text=text)]) == []
    query(url, name)
    [document] = all_documents(url, name)
    assert document["text"] == text


def test_exact_text_is_filtered_sorted_and_counted_whole(collection: SolrCollection, url: str, name: str) -> None:
    """A text column supports facets, filters and sorting like a string, and words for search."""
    texts = ["New York", "new york", "Übersee", "", "New York"]
    assert collection.post([row(str(n), 1, text=text, _t_text=text) for n, text in enumerate(texts)]) == []
    facet = json.dumps({"texts": {"type": "terms", "field": "text"}})
    buckets = query(url, name, **{"json.facet": facet})["facets"]["texts"]["buckets"]
    assert {bucket["val"]: bucket["count"] for bucket in buckets} == {"New York": 2, "new york": 1, "Übersee": 1, "": 1}
    found = query(url, name, fq="{!term f=text}New York")
    assert found["response"]["numFound"] == 2
    ordered = query(url, name, sort="text desc, _id asc", fl="text")["response"]["docs"]
    assert [document["text"] for document in ordered] == ["Übersee", "new york", "New York", "New York", ""]
    assert query(url, name, q="_t_text:york")["response"]["numFound"] == 3
    assert query(url, name, q="_t_text:ubersee")["response"]["numFound"] == 1


def test_points_are_found_and_sorted_by_distance(collection: SolrCollection, url: str, name: str) -> None:
    """This also works in a collection created before point fields were supported; an invalid point is not indexed."""
    without = requests.post(f"{url}/{name}/schema", json={"delete-field-type": {"name": "location"}}, timeout=30)
    without.raise_for_status()
    place = Field(name="_l_p", type="location", stored=False)
    assert collection.ensure_fields([Field(name="p", type="exact", stored=True), place])
    rows = [("a", "48.85,2.35"), ("b", "52.5,13.4"), ("c", "-33.9,151.2"), ("d", "90.0,-180.0")]
    assert collection.post([row(key, 1, _l_p=where) for key, where in rows] + [row("e", 1, p="POINT(200 100)")]) == []
    near = {"pt": "49.0,2.5", "sfield": "_l_p"}
    found = query(url, name, fq="{!geofilt d=1000}", sort="geodist() asc", fl="_id", **near)["response"]["docs"]
    assert [document["_id"] for document in found] == ["a", "b"]
    everywhere = query(url, name, fq="_l_p:[-90,-180 TO 90,180]", sort="geodist() asc", fl="_id", **near)
    assert [document["_id"] for document in everywhere["response"]["docs"]] == ["a", "b", "d", "c"]


def test_lists_keep_their_order_and_are_counted_by_member(collection: SolrCollection, url: str, name: str) -> None:
    """Lists of texts, numbers and booleans work; a single-valued field accepts a list of one and refuses more."""
    lists: dict[str, tuple[str, list[Any]]] = {
        "texts": ("exact", ["b", "", "a b", "b"]),
        "days": ("string", ["2026-11-21", "1999-01-01"]),
        "counts": ("pint", [3, -1, 3]),
        "shares": ("pdouble", [0.5, 0.1]),
        "truths": ("boolean", [True, False, True]),
    }
    collection.ensure_fields([Field(name=n, type=type_, stored=True, many=True) for n, (type_, _) in lists.items()])
    assert collection.post([row("a", 2, **{n: values for n, (_, values) in lists.items()}), row("b", 2)]) == []
    facets = json.dumps({n: {"type": "terms", "field": n, "missing": True} for n in lists})
    found = query(url, name, sort="_id asc", **{"json.facet": facets})
    for n, (_, values) in lists.items():
        assert found["response"]["docs"][0][n] == values
        counted = found["facets"][n]
        assert {bucket["val"]: bucket["count"] for bucket in counted["buckets"]} == dict.fromkeys(values, 1)
        assert counted["missing"]["count"] == 1
        for value in set(values):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            assert query(url, name, fq=f"{{!term f={n} v=$v}}", v=text)["response"]["numFound"] == 1, (n, value)
    collection.ensure_fields([Field(name="n", type="pint", stored=True, many=True)])
    refused = collection.post([row("c", 2, n=[7]), row("d", 2, n=[7, 8])])
    assert [(one.position, "reindex" in one.reason) for one in refused] == [(1, True)]


def test_a_column_that_changed_its_type_does_not_stop_the_indexer(
    collection: SolrCollection, url: str, name: str
) -> None:
    """Values that the old field can hold continue to be indexed; the others are refused one by one, with the remedy."""
    assert not collection.ensure_fields([Field(name="n", type="exact", stored=True)])
    refused = collection.post([row("a", 1, n="7"), row("b", 1, n="seven"), row("c", 1), row("d", 1, n="-3")])
    assert [each.position for each in refused] == [1]
    assert "field n is a pint, which cannot hold 'seven'" in refused[0].reason
    assert "reindex" in refused[0].reason
    shown = {document["_id"]: document.get("n") for document in query(url, name)["response"]["docs"]}
    assert shown == {"a": 7, "c": None, "d": -3}


def test_fields_of_one_collection_are_not_in_another(
    collection: SolrCollection, url: str, unique: Callable[[str], str]
) -> None:
    """Each collection has its own configuration: two indexes may use one field name with different types."""
    admin, other = SolrAdmin(url, install=install_configset), unique("c")
    admin.create(other)
    try:
        with contextlib.closing(SolrCollection(Solr(url=url), other, commit_within=1)) as second:
            assert second.ensure_fields([Field(name="n", type="exact", stored=True)])
    finally:
        admin.remove(other)


def test_several_processes_add_the_same_fields_at_once(collection: SolrCollection, url: str, name: str) -> None:
    """Indexers and a rebuild read a new layout at the same time: each finds its fields, none fails."""

    def ensure(wanted: list[Field]) -> bool:
        with contextlib.closing(SolrCollection(Solr(url=url), name, commit_within=1)) as other:
            return other.ensure_fields(wanted)

    with ThreadPoolExecutor(4) as pool:
        for turn in range(10):
            wanted = [[Field(name=f"f{turn}_{n}", type="pint", stored=True) for n in range(k, 3)] for k in (0, 0, 1, 2)]
            assert any(pool.map(ensure, wanted))
            assert not collection.ensure_fields(wanted[0])


def test_many_documents_are_paged(collection: SolrCollection, url: str, name: str) -> None:
    """A whole collection is read in pages, each document once, without tombstones and barriers."""
    documents = [row(f"{n:05d}", 1, n=n) for n in range(4500)]
    collection.post([*documents, {"_id": "gone", "_fence": 3}, {"_id": "barrier-0", "_fence": 1, "_kind": "barrier"}])
    query(url, name)
    assert [document["n"] for document in all_documents(url, name)] == list(range(4500))


def test_a_missing_solr_or_collection_is_retried(url: str) -> None:
    """HBase keeps the backlog while Solr is unavailable, starts, or lacks the collection."""
    for base in (url, "http://127.0.0.1:9/solr"):
        nowhere = SolrCollection(Solr(url=base), "no_such_collection", commit_within=1, timeout=5)
        with pytest.raises(Retriable):
            nowhere.post([row("a", 1)])
        with pytest.raises(Retriable):
            nowhere.ensure_fields([Field(name="n", type="pint", stored=True)])
        nowhere.close()
    with contextlib.closing(SolrCollection(Solr(url=url), "no_such_collection", commit_within=1)) as missing:
        assert not missing.exists()

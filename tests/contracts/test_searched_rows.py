"""Programs search an index and follow its changes alike in Solr and in OpenSearch: the same rows for the same request,
each change once, and no column that the dashboard hides. Each test runs on a real server of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cdc.stored import fields
from cdc.stored.cells import Barrier
from cdc.topology.reader import read_topology
from cdc.topology.topology import IndexKind
from indexer.engine.engine import open_collection
from indexer.index.mapping import Document, Field, barrier_document
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.provision.engine_admin import admin_of
from tailorbird.web.api.changes import IndexChanges
from tailorbird.web.mcp import bodies, opensearch_rows, searches
from tailorbird.web.mcp.protocol import ToolRefusal
from tailorbird.web.mcp.run_answers import DashboardAnswers
from tailorbird.web.mcp.tools import Handles, tools_of
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

KINDS: tuple[IndexKind, ...] = ("solr", "opensearch")
TOPOLOGY = """
name: searched
solr: {url: "%s"}
opensearch: {url: "%s"}
sources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [a], server_id: 1}}
tables: {wide: {query: SELECT a.id FROM s.a, row_key: [id]}}
indexes: {rows: {type: %s, table: wide, search: [name], collection: %s, commit_within: 100ms}}
dashboards: {people: {index: rows, columns: [id, name, amount, at, paid, tags]}}
"""
FIELDS = (
    Field(name="id", type="pint", stored=True),
    Field(name="name", type="exact", stored=True),
    Field(name="_t_name", type="words", stored=False),
    Field(name="amount", type="string", stored=True),
    Field(name="_q_amount", type="pdouble", stored=False),
    Field(name="at", type="string", stored=True),
    Field(name="_q_at", type="pdate", stored=False),
    Field(name="paid", type="boolean", stored=True),
    Field(name="tags", type="exact", stored=True, many=True),
    Field(name="secret", type="exact", stored=True),
)
# id → name, amount, at, paid, tags; None is NULL
ROWS: dict[int, tuple[str | None, str | None, str | None, bool | None, list[str]]] = {
    1: ("Ann O'Neil", "10.50", "2026-01-31T10:00:00Z", True, ["red", "blue"]),
    2: ("Bob Müller-Lee", "9.99", "2026-02-01T00:00:00Z", False, ["red"]),
    3: ("annabel", "-3", "2025-12-31T23:59:59.999Z", None, []),
    4: (None, None, None, True, ["a*b (c) AND d"]),
    5: ("x OR _t_secret:* {!term}", "1e3", "2026-01-31T10:00:00Z", False, []),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A dashboard over a collection with `ROWS`, and what writes to it."""

    answers: DashboardAnswers
    post: Callable[[list[Document]], None]

    def ids(self, **arguments: Any) -> list[int]:
        """Return the ids of the rows that the tool `search` returns."""
        return [one["values"]["id"] for one in self.search(**arguments)["rows"]]

    def search(self, **arguments: Any) -> Mapping[str, Any]:
        [tool] = [one for one in tools_of({"people": self.answers}, Handles(lambda: "1")) if one.name == "search"]
        return tool.answer({"dashboard": "people", "sort": "id", **arguments})

    def changes(self, position: int | None) -> list[tuple[str, Any]]:
        feed = IndexChanges(self.answers, Handles(lambda: "1"))
        return [(one.kind, one.data if one.kind == "rows" else one.id) for one in feed.since(position)]


def key(id_: int) -> str:
    return f"{id_:08x}"


def row(id_: int, version: int) -> Document:
    """Return the document of one of `ROWS`."""
    name, amount, at, paid, tags = ROWS[id_]
    values = {
        "id": id_, "name": name, "_t_name": name, "amount": amount, "_q_amount": amount and float(amount), "at": at,
        "_q_at": at, "paid": paid, "tags": tags or None, "secret": f"hidden{id_}",
    }  # fmt: skip
    document: Document = {fields.UNIQUE_KEY: key(id_), fields.FENCE: version, fields.KIND: fields.ROW}
    document.update((field, value) for field, value in values.items() if value is not None)  # type: ignore[misc]  # Value
    return document


def barrier(timestamp: int) -> Document:
    made = Barrier(bucket=0, buckets=1, batch=1, timestamp=timestamp, positions={"s": {"offset": timestamp}})
    return barrier_document(made, 2 * timestamp, now_ms=1)


@pytest.fixture(params=KINDS)
def searched(
    request: pytest.FixtureRequest, stack: Stack, unique: Callable[[str], str], tmp_path: Path
) -> Iterator[Searched]:
    if request.param == "opensearch":
        stack.start("opensearch")
    addresses = stack.addresses()
    text = TOPOLOGY % (addresses["solr"], addresses.get("opensearch", ""), request.param, unique("c"))
    topology = read_topology(text, file="searched.yml", environ={})
    index = topology.indexes["rows"]
    admin = admin_of(topology, index)
    admin.create(index.collection)
    with closing(open_collection(topology, index)) as collection:
        assert collection.ensure_fields(FIELDS)

        def post(documents: list[Document]) -> None:
            assert collection.post(documents) == []

        answers = DashboardAnswers(topology, topology.dashboards["people"], lambda *_: None)
        post([row(id_, 2000) for id_ in ROWS])
        post([barrier(1000)])
        wait_for(lambda: answers.progress().version == 2000, "the barrier is not visible", 20)
        yield Searched(answers=answers, post=post)
    admin.remove(index.collection)


@pytest.mark.timeout(240)
def test_searches_find_the_same_rows(searched: Searched) -> None:
    """Words, each operator, NULL, order and pages. A user's text is never syntax."""
    assert searched.search(limit=2)["total"] == len(ROWS)
    assert searched.search(limit=1)["rows"] == [
        {"key": key(1), "values": {
            "id": 1, "name": "Ann O'Neil", "amount": "10.50", "at": "2026-01-31T10:00:00Z", "paid": True,
            "tags": ["red", "blue"],
        }},
    ]  # fmt: skip
    wanted: dict[str, list[int]] = {
        "amount >= 9.99": [1, 2, 5], "amount > 9.99": [1, 5], "amount < 0": [3], "amount <= 10.5": [1, 2, 3],
        "amount = 10.5": [1], "amount != 10.5": [2, 3, 5], "amount is null": [4], "amount is not null": [1, 2, 3, 5],
        "at = 2026-01-31 10:00": [1, 5], "at < 2026-01-01": [3], "at >= 2026-02-01": [2],
        "paid = true": [1, 4], "paid != true": [2, 5], "paid is null": [3],
        "tags = red": [1, 2], "tags != red": [4], "tags is null": [3, 5], "tags = 'a*b (c) AND d'": [4],
        "name = annabel": [3], "name = ann*": [], "name in (annabel, 'Bob Müller-Lee')": [2, 3],
        "name not in (annabel, 'Bob Müller-Lee')": [1, 5], "id in (1, 5)": [1, 5], "id > 3": [4, 5],
    }  # fmt: skip
    assert {text: searched.ids(filters=[text]) for text in wanted} == wanted
    assert searched.ids(filters=["paid = true", "tags = red"]) == [1]
    words = {
        "ann": [1, 3],
        "ANN": [1, 3],
        "müller": [2],
        "bob lee": [2],
        "o'neil ann": [1],
        "hidden1": [],
        "_t_secret:*": [5],
    }
    assert {text: searched.ids(words=text) for text in words} == words
    assert searched.ids(sort="-id", limit=2) == [5, 4]
    assert searched.ids(offset=3) == [4, 5]
    assert searched.ids(sort="-amount", filters=["amount is not null"]) == [5, 1, 2, 3]
    for refused in ({"filters": ["secret = hidden1"]}, {"columns": ["secret"]}, {"sort": "secret"}):
        with pytest.raises(ToolRefusal):
            searched.search(**refused)
    with pytest.raises(ToolRefusal, match="offset"):
        searched.search(offset=10_001)


@pytest.mark.timeout(240)
def test_changes_are_reported_once_and_in_order(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a position on: each changed row and each deleted one, in pages, up to the barrier and no further."""
    for module in (searches, bodies, opensearch_rows):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 2)
    assert searched.changes(None) == [("cut", 2000)]
    assert searched.changes(2000) == []
    searched.post([row(1, 2002), row(2, 2002), row(3, 2002), {fields.UNIQUE_KEY: key(4), fields.FENCE: 2003}])
    searched.post([barrier(1001)])
    wait_for(lambda: searched.answers.progress().version == 2002, "the barrier is not visible", 20)
    searched.post([row(5, 2004)])  # after the barrier
    found = searched.changes(2000)
    assert found[-1] == ("cut", 2002)
    assert [one["values"]["id"] for _, data in found[:-1] for one in data["rows"]] == [1, 2, 3]
    assert [one for _, data in found[:-1] for one in data["deleted"]] == [key(4)]
    assert len(found) == 3
    assert "hidden" not in str(found)
    assert searched.changes(2002) == []
    assert searched.ids() == [1, 2, 3, 5] or searched.ids() == [1, 2, 3], "the deleted row is not found"


def test_rows_beyond_the_limit_of_opensearch_are_refused() -> None:
    """OpenSearch answers at most 10,000 rows by number; the message says what to do."""
    server = read_topology(TOPOLOGY % ("http://h:1/solr", "http://h:2", "opensearch", "c"), file="t.yml", environ={})
    reader = opensearch_rows.OpenSearchRows(server.opensearch, "c")
    board: Any = None
    asked = searches.RowsSearch(board=board, words="", where=board, columns=(), order=(), offset=9_999, limit=1)
    with pytest.raises(ToolRefusal, match="narrow"):
        reader.found(replace(asked, limit=2))

"""Searches and selections of users never become Solr's syntax, and facets refine one another."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.topology.reader import read_topology
from tailorbird.web.dashboard.panels.asking import rows_params
from tailorbird.web.dashboard.panels.columns import Misfit
from tailorbird.web.dashboard.panels.facets import MOST_VALUES, facets_params, read_facets
from tailorbird.web.dashboard.panels.fitting import FitBoard, fit
from tailorbird.web.dashboard.panels.rows import asked_of, page_params, read_page
from tailorbird.web.dashboard.panels.state import LONGEST_SEARCH, Selection
from tailorbird.web.dashboard.query import MOST_WORDS, Params, search_words, words_query
from tailorbird.web.dashboard.time import Span, instant_of
from tailorbird.web.dashboard.view import IndexField

TOPOLOGY = """\
name: t
sources:
  s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [orders], server_id: 1}
tables:
  orders: {query: SELECT 1, row_key: [id]}
indexes:
  orders: {table: orders, search: [customer, note]}
dashboards:
  orders: {index: orders, facets: [status, quantity], time: created_at, columns: [id, status]}
"""
TYPES = {"id": "plong", "status": "string", "quantity": "pint", "created_at": "string", "_q_created_at": "pdate",
         "customer": "string", "_t_customer": "words", "_t_note": "words"}  # fmt: skip


def board() -> FitBoard:
    topology = read_topology(TOPOLOGY, file="t.yml", environ={})
    fields = {name: IndexField(name=name, type=type_, counted=type_ != "words") for name, type_ in TYPES.items()}
    return fit(topology, topology.dashboards["orders"], fields)


BOARD = board()
HOSTILE = [
    '{!func}sum(1,2)',
    "{!xmlparser v='<x/>'}",
    "status:paid OR *:*",
    '_query_:"{!lucene}*:*"',
    "a) OR (b",
    "+(*:*)",
    "word^1000 ~2 [* TO *] {a TO b}",
    "$q ${user.home} #{7*7}",
    '"unbalanced',
    "back\\slash \\",
    "AND OR NOT TO && || !",
    "* ?* wild*card",
    "/regex.*/",
    "&rows=9999&fl=*",
    "\x00\x01\ud7ff",
]  # fmt: skip


def facets(params: Params) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(str(params["json.facet"]))
    return found


@given(st.one_of(st.text(), st.sampled_from(HOSTILE)))
def test_words_are_dead_letters_and_digits_only(text: str) -> None:
    """Whatever is typed, the words hold no character that Solr's parsers know, and are few."""
    words = search_words(text)
    assert len(words) <= MOST_WORDS
    for word in words:
        assert word
        assert re.fullmatch(r"\w+(?:[.,'’]\w+)*", word)


@given(st.one_of(st.text(), st.sampled_from(HOSTILE)))
def test_words_query_has_one_shape(text: str) -> None:
    """The query is clauses `+("word" word*)` only: no text can leave its clause or become an operator."""
    query = words_query(search_words(text))
    # lower case of a few characters has two code points, the second of which is a combining mark
    clause = r"""\+\("[\w.,'’]+" [\w.,'’\u0300-\u036f]+\*\)"""
    assert re.fullmatch(rf"(?:{clause}(?: {clause})*)?", query)
    assert not re.search(r"(?:AND|OR|NOT|TO)\*", query)


@given(st.one_of(st.text(), st.sampled_from(HOSTILE)), st.text())
def test_searches_and_values_stay_in_their_parameters(text: str, value: str) -> None:
    """The queries that Solr parses are the same whatever the values are; only parameters of their own carry them."""

    def parsed(words: str, value: str) -> dict[str, Any]:
        params = rows_params(BOARD, None, Selection(words=words, picks={"status": frozenset([value])}), None)
        queries = " ".join(str(query) for query in params.values())
        literal = set(re.findall(r"\{!term f=\w+ v=\$(\w+)\}", queries))
        assert any(params[name] == value for name in literal)
        return {name: query for name, query in params.items() if name not in {*literal, "words"}}

    words = "plain" if search_words(text) else ""
    assert parsed(text[:LONGEST_SEARCH], value) == parsed(words, "plain")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_field_can_be_named_in_the_words(text: str) -> None:
    """Edismax is configured to allow no field names, although the words are already harmless."""
    params = rows_params(BOARD, None, Selection(words=text or "x"), None)
    if "words" in params:
        assert params["uf"] == "-*"
        assert params["qf"] == "_t_customer _t_note"


def test_only_living_rows_are_asked_for() -> None:
    """Tombstones and barriers are in no answer and in no count."""
    params = facets_params(BOARD, Selection(), None)
    assert params["fq"] == ["_kind:row"]
    assert facets(params)["all"]["domain"] == {"query": "_kind:row"}
    assert page_params(BOARD, asked_of(BOARD, {}), Selection(), None)["fq"] == ["_kind:row"]


def test_counts_of_a_facet_ignore_its_own_choice_only() -> None:
    """More values of a facet can be chosen, while its counts follow every other filter."""
    chosen = Selection(picks={"status": frozenset(["paid"])})
    asked = facets(facets_params(BOARD, chosen, None))
    assert asked["f0"]["domain"] == {"excludeTags": "c_status"}
    assert asked["f1"]["domain"] == {"excludeTags": "c_quantity"}
    assert asked["f0"]["limit"] == MOST_VALUES


def test_time_range_leaves_out_its_end() -> None:
    """Two neighbouring bars never show one row twice."""
    start, end = instant_of("2026-03-01T00:00:00Z"), instant_of("2026-03-02T00:00:00Z")
    assert start is not None
    assert end is not None
    params = rows_params(BOARD, None, Selection(), Span(start=start, end=end))
    assert isinstance(params["fq"], list)
    assert params["fq"][-1].endswith("_q_created_at:[2026-03-01T00:00:00.000Z TO 2026-03-02T00:00:00.000Z}")


def test_search_without_words_narrows_nothing() -> None:
    """Punctuation alone is no search."""
    assert rows_params(BOARD, None, Selection(words=" *:* "), None) == rows_params(BOARD, None, Selection(), None)
    assert search_words("*:* -- “”") == []


def test_an_empty_index_is_an_answer() -> None:
    """Solr leaves out what it can not compute over no rows."""
    nothing: dict[str, Any] = {"response": {"numFound": 0, "docs": []}, "facets": {"count": 0}}
    found = read_facets(BOARD, Selection(), nothing)
    assert (found["total"], found["all"], found["newest_ms"]) == (0, 0, None)
    assert [one["values"] for one in found["facets"]] == [[], []]
    page = read_page(BOARD, asked_of(BOARD, {}), nothing)
    assert (page["rows"], page["indexed_ms"], page["pages"]) == ([], None, 1)


@pytest.mark.parametrize("params", [{"page": "0000019999999"}, {"page": "0"}, {"page": "²"}, {"panel": "000000999"}])
def test_pages_and_panels_that_do_not_exist_are_refused(params: dict[str, str]) -> None:
    with pytest.raises(Misfit):
        asked_of(BOARD, params)


def test_rows_have_what_freshness_needs() -> None:
    """Values stay exact; the version, the commit and the time of indexing are those of the document."""
    row = {"_id": "a", "_fence": 7, "_ts": 5, "_indexed_at": 6, "id": 2**60}
    answer = {"response": {"numFound": 9, "docs": [row, {"_id": "b"}]}, "facets": {"indexed": 6.0, "newest": 5}}
    page = read_page(BOARD, asked_of(BOARD, {}), answer)
    assert page["indexed_ms"] == 6
    assert page["rows"] == [
        {"key": "a", "version": 7, "committed_ms": 5, "indexed_ms": 6, "values": {"id": 2**60, "status": None}},
        {"key": "b", "version": 0, "committed_ms": None, "indexed_ms": None, "values": {"id": None, "status": None}},
    ]
    assert [(one["name"], one["key"]) for one in page["columns"][:2]] == [("id", True), ("status", False)]
    fields = str(page_params(BOARD, asked_of(BOARD, {}), Selection(), None)["fl"]).split(",")
    assert {"_id", "_fence", "_ts", "_indexed_at", "id", "status"} == set(fields)

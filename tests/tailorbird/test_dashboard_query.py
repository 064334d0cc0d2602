"""The dashboard's one query: what people type and click never becomes Solr's syntax, and counts refine each other."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailorbird.web.dashboard.query import MOST_WORDS, Filters, Params, Value, query_params, search_words, words_query
from tailorbird.web.dashboard.time import Span, axis_of, instant_of
from tailorbird.web.dashboard.view import PageColumn, View

VIEW = View(
    title="Orders",
    facets=(
        PageColumn(name="status", look="text", heading="Status"),
        PageColumn(name="quantity", look="number", heading="Quantity"),
    ),
    columns=(
        PageColumn(name="id", look="number", heading="Id"),
        PageColumn(name="status", look="text", heading="Status"),
    ),
    time="_q_created_at",
    time_heading="Created at",
    words=("_t_customer", "_t_note"),
)
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


def texts(params: Params) -> list[str]:
    """Every parameter that Solr parses; `v…` alone is taken as it is, by `{!term}`."""
    found: list[str] = []
    for name, value in params.items():
        if not re.fullmatch(r"v\d+_\d+", name):
            found += [str(value)] if not isinstance(value, list) else value
    return found


def facets(params: Params) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(str(params["json.facet"]))
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


@given(st.one_of(st.text(), st.sampled_from(HOSTILE)), st.text(), st.floats(allow_nan=False))
def test_what_is_typed_and_clicked_stays_in_its_parameters(text: str, value: str, number: float) -> None:
    """The queries that Solr parses are the same whatever the values are; only parameters of their own carry them."""

    def asked(words: str, first: Value, second: Value) -> Params:
        picks = {"status": frozenset([first]), "quantity": frozenset([second])}
        return query_params(VIEW, Filters(words=words, picks=picks), None)

    params, plain = asked(text, value, number), asked("plain" if search_words(text) else "", "plain", 1.5)
    params.pop("words", None)
    plain.pop("words", None)
    assert texts(params) == texts(plain)
    assert params["v0_0"] == value


@pytest.mark.parametrize("text", HOSTILE)
def test_no_field_can_be_named_in_the_words(text: str) -> None:
    """Edismax is configured to allow no field names, although the words are already harmless."""
    params = query_params(VIEW, Filters(words=text or "x"), None)
    if "words" in params:
        assert params["uf"] == "-*"
        assert params["qf"] == "_t_customer _t_note"


def test_only_living_rows_are_asked_for() -> None:
    """Tombstones and barriers are in no answer and in no count."""
    params = query_params(VIEW, Filters(), None)
    assert params["fq"] == ["_kind:row"]
    assert facets(params)["all"]["domain"] == {"query": "_kind:row"}


def test_several_values_of_a_facet_widen_and_facets_narrow() -> None:
    """Values of one facet are alternatives; rows without a value are one of them; the facets' filters add up."""
    picks: dict[str, frozenset[Value]] = {"status": frozenset(['say "hi"', None]), "quantity": frozenset([3])}
    params = query_params(VIEW, Filters(picks=picks), None)
    assert params["fq"] == [
        "_kind:row",
        "{!bool tag=f0 should=$qv0_0 should=$qv0_1}",
        "{!bool tag=f1 should=$qv1_0}",
    ]
    assert params["qv0_0"] == "+*:* -status:[* TO *]"
    assert (params["qv0_1"], params["v0_1"]) == ("{!term f=status v=$v0_1}", 'say "hi"')
    assert (params["qv1_0"], params["v1_0"]) == ("{!term f=quantity v=$v1_0}", "3")


def test_counts_of_a_facet_ignore_its_own_choice_only() -> None:
    """More values of a facet can be chosen, while its counts follow every other filter."""
    asked = facets(query_params(VIEW, Filters(picks={"status": frozenset(["paid"])}), None))
    assert asked["f0"]["domain"] == {"excludeTags": "f0"}
    assert asked["f1"]["domain"] == {"excludeTags": "f1"}


def test_true_and_false_are_written_as_solr_reads_them() -> None:
    """A facet over a boolean filters by `true`, not by Python's `True`."""
    params = query_params(VIEW, Filters(picks={"status": frozenset([True])}), None)
    assert params["v0_0"] == "true"


def test_time_window_leaves_out_its_end() -> None:
    """Two neighbouring bars never show one row twice."""
    start, end = instant_of("2026-03-01T00:00:00Z"), instant_of("2026-03-02T00:00:00Z")
    assert start is not None
    assert end is not None
    params = query_params(VIEW, Filters(window=Span(start=start, end=end)), None)
    assert params["fq"] == ["_kind:row", "_q_created_at:[2026-03-01T00:00:00.000Z TO 2026-03-02T00:00:00.000Z}"]


def test_histogram_is_asked_for_in_the_same_query() -> None:
    """A refresh is one query: rows, counts, freshness and histogram."""
    axis = axis_of(Span(start=0, end=30 * 86_400_000))
    bars = facets(query_params(VIEW, Filters(), axis))["bars"]
    assert bars["gap"] == "+12HOURS"
    assert (bars["start"], bars["end"]) == ("1970-01-01T00:00:00.000Z", "1970-01-31T00:00:00.000Z")


def test_a_choice_taken_back_leaves_no_filter() -> None:
    """Ticking a value and unticking it is the same as never having ticked it."""
    filters = Filters(picks=Filters().toggled("status", "", True))
    assert filters.narrowing
    undone = Filters(picks=filters.toggled("status", "", False))
    assert not undone.narrowing
    assert query_params(VIEW, undone, None) == query_params(VIEW, Filters(), None)


def test_search_without_words_narrows_nothing() -> None:
    """Punctuation alone is no search, so the page does not claim to have narrowed anything."""
    assert not Filters(words=" *:* ").narrowing
    assert search_words("*:* -- “”") == []


def test_what_is_missing_is_asked_of_collections_that_know() -> None:
    """Solr refuses a query that names a field which an older collection has not."""
    for reports in (True, False):
        view = replace(VIEW, reports_incomplete=reports)
        assert ("_incomplete" in str(query_params(view, Filters(), None)["json.facet"])) == reports

"""Searches in the query language of OpenSearch. User input is a value in them, never syntax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.stored.fields import BARRIER, FENCE, KIND, ROW
from cdc.topology.panels import PanelFilter
from indexer.opensearch.mappings import KEY
from tailorbird.web.dashboard.panels.columns import PanelColumn, filtered, literal_of
from tailorbird.web.dashboard.query import search_words
from tailorbird.web.dashboard.view import IndexField
from tailorbird.web.mcp.searches import ROWS_AT_ONCE, RowsChanged, RowsSearch

MOST_REACHED = 10_000  # OpenSearch's limit of offset and rows together
_RANGES = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_NOT_COUNTED = ("stored", "words", "location")
Body = dict[str, Any]


def index_fields(types: Mapping[str, tuple[str, bool]]) -> dict[str, IndexField]:
    """Return the fields of an index, from the type of each field and whether it takes several values."""
    return {
        name: IndexField(name=name, type=kind, counted=kind not in _NOT_COUNTED, many=many)
        for name, (kind, many) in types.items()
    }


def search_body(search: RowsSearch) -> Body:
    """Return the body of a search. Raises Misfit for a value that a column cannot have."""
    filters: list[Body] = [{"term": {KIND: ROW}}]
    if search.board.words:
        filters += [_word(word, search.board.words) for word in search_words(search.words)]
    filters += [_condition(column, one) for column, one in search.where.where]
    order = [
        {field: {"order": "desc", "missing": "_last"} if greatest_first else {"order": "asc", "missing": "_first"}}
        for field, greatest_first in search.order
    ]
    return {
        "query": {"bool": {"filter": filters}},
        "_source": [KEY, *search.columns],
        "sort": [*order, {KEY: "asc"}],
        "from": search.offset,
        "size": search.limit,
        "track_total_hits": True,
    }


def changes_body(asked: RowsChanged, last: list[Any] | None) -> Body:
    """Return the body for a page of changed documents, after the sort values of the last document."""
    before, until = asked.versions
    after = {} if last is None else {"search_after": last}
    return {
        "query": {
            "bool": {
                "filter": [{"range": {FENCE: {"gt": before, "lte": until}}}],
                "must_not": [{"term": {KIND: BARRIER}}],
            }
        },
        "_source": [KEY, KIND, *asked.columns],
        "sort": [{FENCE: "asc"}, {KEY: "asc"}],
        "size": ROWS_AT_ONCE,
        "track_total_hits": False,
        **after,
    }


def _word(word: str, fields: tuple[str, ...]) -> Body:
    """Return the condition that a row contains a word, whole or as a beginning."""
    whole = {"multi_match": {"query": word, "type": "phrase", "fields": list(fields)}}
    begins = [{"prefix": {field: {"value": word.lower()}}} for field in fields]
    return {"bool": {"should": [whole, *begins], "minimum_should_match": 1}}


def _condition(column: PanelColumn, one: PanelFilter) -> Body:
    """Return a filter. As in SQL, a row without a value matches only `is null`."""
    filtered(column, one.operator, one.values, "w")  # raises Misfit for what does not fit, as with Solr
    present = {"exists": {"field": column.counted or column.ordered}}
    if one.operator == "is not null":
        return present
    if one.operator == "is null":
        return {"bool": {"must_not": [present]}}
    if one.operator in _RANGES:
        return {"range": {column.ordered: {_RANGES[one.operator]: literal_of(column, one.values[0])}}}
    equal = [_equal(column, value) for value in one.values]
    if one.operator in ("!=", "not in"):
        return {"bool": {"filter": [present], "must_not": equal}}
    return {"bool": {"should": equal, "minimum_should_match": 1}}


def _equal(column: PanelColumn, value: str) -> Body:
    if column.ordered:
        literal = literal_of(column, value)
        return {"range": {column.ordered: {"gte": literal, "lte": literal}}}
    return {"term": {column.counted: {"value": value}}}

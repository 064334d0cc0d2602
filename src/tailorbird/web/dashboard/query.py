"""Build the parameters of the Solr query for one refresh.

User input never becomes query syntax. Words keep only letters and digits. Values are separate parameters (`$v0`),
which `{!term}` takes literally."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc.stored.fields import BARRIER, FENCE, INCOMPLETE, INDEXED_AT, KIND, ROW, TS, UNIQUE_KEY
from tailorbird.web.dashboard.time import Axis, Span, solr_instant
from tailorbird.web.dashboard.view import View

Value = str | int | float | bool | None  # None: rows without a value
Shown = Value | list[Value]  # a list contains its members
Params = dict[str, str | int | list[str]]

ROWS = 50
FEW_VALUES, MANY_VALUES = 10, 200
MOST_WORDS, LONGEST_WORD = 12, 80
_WORD = re.compile(r"\w+(?:[.,'’]\w+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The user's selection: search words, selected values by facet (`picks`), and a time range (`window`).

    A row matches a facet with any of its values. `whole` are facets whose values are all listed."""

    words: str = ""
    picks: Mapping[str, frozenset[Value]] = field(default_factory=dict)
    window: Span | None = None
    whole: frozenset[str] = frozenset()

    @property
    def narrowing(self) -> bool:
        """Return whether the filters may exclude rows."""
        return bool(search_words(self.words) or any(self.picks.values()) or self.window)

    def toggled(self, column: str, value: Value, chosen: bool) -> Mapping[str, frozenset[Value]]:
        """Return the selected values by facet after one value is selected (`chosen`) or deselected."""
        others = self.picks.get(column, frozenset()) - {value}
        return {**self.picks, column: others | {value} if chosen else others}


def search_words(text: str) -> list[str]:
    """Split a search text into words of letters, digits and underscores. `.`, `,` and apostrophes may join them.

    All other characters, including Solr's syntax, only separate words."""
    return [word[:LONGEST_WORD].rstrip(".,'’") for word in _WORD.findall(text)[:MOST_WORDS]]


def words_query(words: list[str]) -> str:
    """Return an edismax query for rows that contain every word, as a whole word or as a prefix."""
    # lower case, so that no prefix is an operator; a quoted word is analysed and never an operator
    return " ".join(f'+("{word}" {word.lower()}*)' for word in words)


def query_params(view: View, filters: Filters, axis: Axis | None) -> Params:
    """Return the parameters of Solr's `select` for one refresh. `axis` is None until the time range is known.

    The counts of a facet ignore its own filter, so that more of its values can be selected. `all` counts the whole
    index."""
    params: Params = {
        "q": "*:*",
        "rows": ROWS,
        "sort": f"{view.time} desc, {UNIQUE_KEY} desc" if view.time else f"{TS} desc, {UNIQUE_KEY} desc",
        "fl": ",".join([UNIQUE_KEY, FENCE, TS, INDEXED_AT, *dict.fromkeys(column.name for column in view.columns)]),
    }
    queries = [f"{KIND}:{ROW}"]
    words = search_words(filters.words)
    if words and view.words:
        queries.append("{!edismax qf=$qf uf=$uf mm=0 q.op=OR sow=false lowercaseOperators=false v=$words}")
        # no field may be named in the words: `-*` disables that syntax
        params |= {"qf": " ".join(view.words), "uf": "-*", "words": words_query(words)}
    for i, column in enumerate(view.facets):
        if picked := filters.picks.get(column.name):
            clauses = []
            for j, value in enumerate(sorted(picked, key=lambda v: (v is not None, str(v)))):
                name = f"v{i}_{j}"
                clauses.append(f"should=$q{name}")
                if value is None:
                    params[f"q{name}"] = f"+*:* -{column.counted}:[* TO *]"
                else:
                    params |= {f"q{name}": f"{{!term f={column.counted} v=${name}}}", name: value_text(value)}
            queries.append(f"{{!bool tag=f{i} {' '.join(clauses)}}}")
    if filters.window and view.time:
        start, end = solr_instant(filters.window.start), solr_instant(filters.window.end)
        queries.append(f"{view.time}:[{start} TO {end}}}")
    params["fq"] = queries
    params["json.facet"] = json.dumps(_facets(view, filters, axis), separators=(",", ":"))
    return params


def value_text(value: str | int | float | bool) -> str:
    """Return a facet's value as Solr parses it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _facets(view: View, filters: Filters, axis: Axis | None) -> dict[str, Any]:
    facets: dict[str, Any] = {
        "newest": f"max({TS})",
        "indexed": f"max({INDEXED_AT})",
        "all": {"type": "query", "q": "*:*", "domain": {"query": f"{KIND}:{ROW}"}},
    }
    if view.reports_incomplete:
        most = {"incomplete": f"max({INCOMPLETE})"}
        facets["barriers"] = {"type": "query", "q": "*:*", "domain": {"query": f"{KIND}:{BARRIER}"}, "facet": most}
    if view.time:
        facets["all"]["facet"] = {"first": f"min({view.time})", "last": f"max({view.time})"}
    for i, column in enumerate(view.facets):
        facets[f"f{i}"] = {
            "type": "terms",
            "field": column.counted,
            "limit": MANY_VALUES if column.name in filters.whole else FEW_VALUES,
            "missing": True,
            "numBuckets": True,
            "domain": {"excludeTags": f"f{i}"},
        }
    if view.time and axis:
        facets["bars"] = {
            "type": "range",
            "field": view.time,
            "start": solr_instant(axis.span.start),
            "end": solr_instant(axis.span.end),
            "gap": axis.gap.solr,
        }
    return facets

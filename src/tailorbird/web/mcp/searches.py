"""Requests for rows of an index, for every search engine, and their parameters for Solr.

Only columns of a dashboard are in them. User input never becomes query syntax."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cdc.stored.fields import BARRIER, FENCE, KIND, UNIQUE_KEY
from tailorbird.web.dashboard.panels.asking import rows_params
from tailorbird.web.dashboard.panels.fitting import FitBoard, FitPanel
from tailorbird.web.dashboard.panels.state import Selection
from tailorbird.web.dashboard.query import Params
from tailorbird.web.dashboard.view import IndexField

ROWS_AT_ONCE = 500
Documents = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSearch:
    """A search: the fields for `words` (`board.words`), the filters (`where`), and the columns to return.

    `order` are fields, each with whether the greatest comes first. Rows of equal values are ordered by their keys."""

    board: FitBoard
    words: str
    where: FitPanel
    columns: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    offset: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsFound:
    """A page of rows, with their keys as `_id`, and the number of all rows that match."""

    documents: Documents
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsChanged:
    """A request for the documents, of rows and of deleted rows, with a version (`_fence`) later than that of the rows
    of `after`, and not later than the deletes of `until`."""

    columns: tuple[str, ...]
    after: int
    until: int

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the fields of a document that are needed."""
        return tuple(dict.fromkeys((UNIQUE_KEY, KIND, *self.columns)))

    @property
    def versions(self) -> tuple[int, int]:
        """Return the version before the first one, and the last one. A delete has one more than the rows of its
        batch."""
        return self.after + 1, self.until + 1


class RowsReader(Protocol):
    """Reads rows from one index. Raises Retriable while the search engine is unavailable.

    - `fields` returns the fields of the index by name.
    - `changed` yields pages of documents, in the order of their versions."""

    def fields(self) -> dict[str, IndexField]: ...
    def found(self, search: RowsSearch) -> RowsFound: ...
    def changed(self, asked: RowsChanged) -> Iterator[Documents]: ...


def search_params(search: RowsSearch) -> Params:
    """Return the parameters of a search in Solr. Raises Misfit for a value that a column cannot have."""
    order = [f"{field} {'desc' if greatest_first else 'asc'}" for field, greatest_first in search.order]
    return {
        **rows_params(search.board, search.where, Selection(words=search.words), None),
        "fl": ",".join([UNIQUE_KEY, *search.columns]),
        "rows": search.limit,
        "start": search.offset,
        "sort": ", ".join([*order, f"{UNIQUE_KEY} asc"]),
    }


def changes_params(asked: RowsChanged, mark: str) -> Params:
    """Return the parameters for a page of changed documents in Solr, from a cursor mark on."""
    before, last = asked.versions
    return {
        "q": "*:*",
        "fq": [f"{FENCE}:{{{before} TO {last}]", f"-{KIND}:{BARRIER}"],
        "fl": ",".join(asked.fields),
        "sort": f"{FENCE} asc, {UNIQUE_KEY} asc",
        "rows": ROWS_AT_ONCE,
        "cursorMark": mark,
    }

"""The tools of the MCP server: their arguments, and their answers from a topology's dashboards.

A client sees what a dashboard shows, and no more: only the columns that the dashboard lists (`columns`; all of the
index without a list). Other columns can be neither read, nor filtered or sorted by, nor searched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from cdc.stored.fields import UNIQUE_KEY, words_field
from cdc.topology.panels import Panel, filter_of
from indexer.index.barriers import IndexProgress
from tailorbird.web.dashboard.panels.columns import Misfit, PanelColumn, filtered
from tailorbird.web.dashboard.panels.explained import explained_of
from tailorbird.web.dashboard.panels.fitting import FitBoard, FitPanel
from tailorbird.web.dashboard.panels.rows import shown_first, sorts
from tailorbird.web.dashboard.panels.state import LONGEST_SEARCH
from tailorbird.web.mcp.protocol import Tool, ToolRefusal
from tailorbird.web.mcp.searches import Documents, RowsChanged, RowsFound, RowsSearch

MOST_ROWS, USUAL_ROWS, MOST_FILTERS, MOST_HANDLES, MOST_OFFSET = 50, 10, 20, 10_000, 10_000
INSTRUCTIONS = (
    "Rows of live databases, joined into tables. Call `tables` first. Each answer has a proof: `complete_up_to` is the"
    " position of each source database up to which the answer contains every commit, and `verification` is the last"
    " comparison of the table with its sources. Quote both when you report rows."
)


class BoardAnswers(Protocol):
    """Reads one dashboard's index and table on the servers. Raises Retriable while one is unavailable.

    - `board` returns the dashboard with the fields of its index.
    - `changed` yields pages of changed documents, in the order of their versions.
    - `progress` returns up to where queries see everything.
    - `verification` returns the last results of `verify` for the table and the index.
    - `explain` returns the output of `tailorbird explain --json` for a document's key, None without such a row."""

    def board(self) -> FitBoard: ...
    def found(self, search: RowsSearch) -> RowsFound: ...
    def changed(self, asked: RowsChanged) -> Iterator[Documents]: ...
    def progress(self) -> IndexProgress: ...
    def verification(self) -> Mapping[str, Any]: ...
    def explain(self, key: bytes) -> Mapping[str, Any] | None: ...


class Handles:
    """Names for the keys of rows whose key columns are not shown: a key contains the values of these columns.

    `random_name` returns a new name. The newest `MOST_HANDLES` are known."""

    def __init__(self, random_name: Callable[[], str]) -> None:
        self._random_name = random_name
        self._keys, self._names = dict[str, str](), dict[str, str]()

    def given(self, key: str) -> str:
        """Return the name of a key, a new one for a new key."""
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"row-{self._random_name()}"
            self._keys[name] = key
            if len(self._keys) > MOST_HANDLES:
                oldest = next(iter(self._keys))
                del self._names[self._keys.pop(oldest)]
        return name

    def key(self, text: object) -> str:
        """Return the key of a name, or the text if it is a key itself. Raises ToolRefusal for an unknown name."""
        if not isinstance(text, str):
            raise ToolRefusal("key must be a text")
        if text.startswith("row-") and text not in self._keys:
            raise ToolRefusal("that row is no longer known: search again")
        return self._keys.get(text, text)


def tools_of(boards: Mapping[str, BoardAnswers], handles: Handles) -> list[Tool]:
    """Return the tools over some dashboards, by name. `handles` name the keys of rows."""
    dashboard = {"type": "string", "enum": list(boards), "description": "The dashboard whose table is meant."}

    def tool(
        name: str, about: str, answer: Callable[[BoardAnswers, Mapping[str, Any]], Mapping[str, Any]], **more: Any
    ) -> Tool:
        required = ["dashboard", *(key for key, one in more.items() if one.pop("required", False))]
        schema = {
            "type": "object", "properties": {"dashboard": dashboard, **more}, "required": required,
            "additionalProperties": False,
        }  # fmt: skip

        def asked(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            try:
                return answer(_named(boards, arguments), arguments)
            except Misfit as error:
                raise ToolRefusal(f"{error}; expected {error.expected}") from error

        return Tool(name=name, about=about, arguments=schema, answer=asked)

    return [
        Tool(
            name="tables",
            about="List the tables that can be searched, with their columns.",
            arguments={"type": "object", "properties": {}, "additionalProperties": False},
            answer=lambda _: {"tables": [_table(name, one.board()) for name, one in boards.items()]},
        ),
        tool(
            "search",
            "Search the rows of a joined table. The answer has the rows, their total number, and the proof.",
            partial(_search, handles),
            words=_text("Words that the rows contain, whole or as beginnings."),
            filters=_texts("Conditions that all hold, such as `status = paid`, `amount >= 10`, `note is null`."),
            columns=_texts("Columns to return. Default: all that the dashboard shows."),
            sort=_text("The column to sort by; `-column`: the greatest first. Default: the newest rows first."),
            offset={"type": "integer", "minimum": 0, "maximum": MOST_OFFSET, "description": "Rows to leave out."},
            limit={"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "description": f"Default: {USUAL_ROWS}."},
        ),
        tool(
            "explain",
            "Show which events of the source databases each cell of a row comes from.",
            partial(_explain, handles),
            key={**_text("The `key` of a row of `search`."), "required": True},
        ),
        tool(
            "cut",
            "Show up to which commit of each source database the table is complete.",
            lambda answers, _: cut_of(answers.progress()),
        ),
        tool(
            "verification",
            "Show the last comparison of the table with its source databases, and its verdict.",
            lambda answers, _: answers.verification(),
        ),
    ]


def _text(about: str) -> dict[str, Any]:
    return {"type": "string", "description": about}


def _texts(about: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "maxItems": MOST_FILTERS, "description": about}


def _named(boards: Mapping[str, BoardAnswers], arguments: Mapping[str, Any]) -> BoardAnswers:
    name = arguments.get("dashboard")
    if not isinstance(name, str) or name not in boards:
        raise ToolRefusal(f"unknown dashboard {str(name)[:100]}; one of {', '.join(boards)}")
    return boards[name]


def _table(name: str, board: FitBoard) -> dict[str, Any]:
    columns = [{"name": one.name, "type": one.look, "sorts": sorts(one)} for one in shown_first(board)]
    return {"dashboard": name, "title": board.dashboard.title, "columns": columns}


def _search(handles: Handles, answers: BoardAnswers, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    board = answers.board()
    asked = search_of(board, arguments)
    proof = {
        "complete_up_to": cut_of(answers.progress()),
        "verification": answers.verification(),
    }  # before the rows are read
    found = answers.found(asked)
    hidden = not board.keys <= {column.name for column in shown_first(board)}
    rows = [
        {
            "key": handles.given(one[UNIQUE_KEY]) if hidden else one[UNIQUE_KEY],
            "values": {name: one.get(name) for name in asked.columns},
        }
        for one in found.documents
    ]
    return {"rows": rows, "total": found.total, **proof}


def cut_of(progress: IndexProgress) -> dict[str, Any]:
    """Return the position of each source up to which queries see every commit, and the time of it, as JSON."""
    return {
        "sources": {source: dict(one) for source, one in progress.positions.items()},
        "timestamp_ms": progress.timestamp if progress.positions else None,
    }


def search_of(board: FitBoard, arguments: Mapping[str, Any]) -> RowsSearch:
    """Return the search that the arguments describe.

    Raises ToolRefusal or Misfit for arguments that do not fit, and for columns that the dashboard does not show."""
    shown = {column.name: column for column in shown_first(board)}
    words, limit = arguments.get("words", ""), arguments.get("limit", USUAL_ROWS)
    if not isinstance(words, str) or len(words) > LONGEST_SEARCH:
        raise ToolRefusal(f"words must be a text of at most {LONGEST_SEARCH} characters")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_ROWS:
        raise ToolRefusal(f"limit must be a number from 1 to {MOST_ROWS}")
    offset = arguments.get("offset", 0)
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= MOST_OFFSET:
        raise ToolRefusal(f"offset must be a number from 0 to {MOST_OFFSET}")
    searched = {words_field(name) for name in shown}
    some = replace(board, words=tuple(field for field in board.words if field in searched))
    if words and not some.words:
        raise ToolRefusal("no shown column of this dashboard is searched by words; use filters")
    where = _filters(_list(arguments, "filters"), shown)
    columns = [_shown(shown, name).name for name in _list(arguments, "columns")] or list(shown)
    return RowsSearch(
        board=some,
        words=words,
        where=where,
        columns=tuple(dict.fromkeys(columns)),
        order=_order(board, shown, arguments.get("sort", "")),
        offset=offset,
        limit=limit,
    )


def _list(arguments: Mapping[str, Any], name: str) -> list[str]:
    found = arguments.get(name) or []
    if not isinstance(found, list) or len(found) > MOST_FILTERS or not all(isinstance(one, str) for one in found):
        raise ToolRefusal(f"{name} must be a list of at most {MOST_FILTERS} texts")
    return found


def _shown(shown: Mapping[str, PanelColumn], name: str) -> PanelColumn:
    if name not in shown:
        raise ToolRefusal(f"unknown column {name[:100]}; one of {', '.join(shown)}")
    return shown[name]


def _filters(texts: list[str], shown: Mapping[str, PanelColumn]) -> FitPanel:
    where = []
    for text in texts:
        try:
            one = filter_of(text)
        except ValueError as error:
            raise ToolRefusal(f"filter {text[:100]!r}: {error}; write e.g. `status = paid`") from error
        column = _shown(shown, one.field)
        filtered(column, one.operator, one.values, "w")  # raises Misfit for a value that the column cannot have
        where.append((column, one))
    nothing = Panel(type="table", title="", width=12)
    return FitPanel(panel=nothing, sums=(), measured=(), fields=(), by=None, where=tuple(where))


def _order(board: FitBoard, shown: Mapping[str, PanelColumn], sort: object) -> tuple[tuple[str, bool], ...]:
    if not isinstance(sort, str):
        raise ToolRefusal("sort must be a text")
    if not sort:
        # a time that is not shown must not order the rows either
        by = board.time if board.time is not None and board.time.name in shown else None
        return ((by.ordered, True),) if by is not None else ()
    column = _shown(shown, sort.removeprefix("-"))
    if not sorts(column):
        raise ToolRefusal(f"column {column.name} cannot be sorted by")
    return ((column.ordered or column.counted, sort.startswith("-")),)


def _explain(handles: Handles, answers: BoardAnswers, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        key = bytes.fromhex(handles.key(arguments.get("key", "")))
    except (ValueError, TypeError) as error:
        raise ToolRefusal("key must be the `key` of a row of `search`") from error
    proof = {"complete_up_to": cut_of(answers.progress()), "verification": answers.verification()}
    found = answers.explain(key)
    if found is None:
        raise ToolRefusal("there is no such row; it may have been deleted: search again")
    return {**explained_of(found, shown_first(answers.board())), **proof}

"""Changes of an index, in the order in which they became visible, from a position on.

A position is the version of rows (`_fence`) up to which queries see every row. Every row with a later version than a
position, and not a later one than the next position, is reported between the two. So a client that resumes at its last
position misses no row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdc.stored.fields import KIND, ROW, UNIQUE_KEY
from tailorbird.web.dashboard.panels.rows import shown_first
from tailorbird.web.mcp.searches import RowsChanged
from tailorbird.web.mcp.tools import BoardAnswers, Handles, cut_of


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEvent:
    """An event of an index: `rows` with changed rows, then `cut` with the next position in `id`."""

    kind: str
    data: Mapping[str, Any]
    id: int | None = None


class IndexChanges:
    """The changes of one dashboard's index: only its columns, and names for hidden keys from `handles`."""

    def __init__(self, answers: BoardAnswers, handles: Handles) -> None:
        self._answers, self._handles = answers, handles

    def since(self, position: int | None) -> Iterator[IndexEvent]:
        """Yield what changed after a position, and the new position; nothing if there is none.

        Without a position, only the current one. Raises Retriable while a server is unavailable."""
        progress = self._answers.progress()
        reached = progress.version
        if reached is None or (position is not None and reached <= position):
            return
        if position is not None:
            yield from self._rows(position, reached)
        yield IndexEvent(kind="cut", data=cut_of(progress), id=reached)

    def _rows(self, position: int, reached: int) -> Iterator[IndexEvent]:
        board = self._answers.board()
        names = [column.name for column in shown_first(board)]
        hidden = not board.keys <= set(names)
        for page in self._answers.changed(RowsChanged(columns=tuple(names), after=position, until=reached)):
            documents = [one for one in page if _is_row_key(one[UNIQUE_KEY])]
            given = {one[UNIQUE_KEY]: self._handles.given(one[UNIQUE_KEY]) if hidden else one[UNIQUE_KEY]
                     for one in documents}  # fmt: skip
            rows = [
                {"key": given[one[UNIQUE_KEY]], "values": {name: one.get(name) for name in names}}
                for one in documents
                if one.get(KIND) == ROW
            ]
            deleted = [given[one[UNIQUE_KEY]] for one in documents if one.get(KIND) != ROW]
            if documents:
                yield IndexEvent(kind="rows", data={"rows": rows, "deleted": deleted})


def _is_row_key(text: str) -> bool:
    """Return whether a document's id is a row key, which is hexadecimal; an indexer's probe is not."""
    try:
        bytes.fromhex(text)
    except ValueError:
        return False
    return True

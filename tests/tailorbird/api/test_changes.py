"""A stream of events of an index asks the search engine little while nothing changes."""

from __future__ import annotations

from indexer.index.barriers import IndexProgress
from tailorbird.web.api.changes import IndexChanges
from tailorbird.web.mcp.tools import Handles
from tests.support.served_api import ChangingAnswers


class CountedAnswers(ChangingAnswers):
    """Counts the reads of barriers, each of which is one request."""

    reads = 0

    def progress(self) -> IndexProgress:
        self.reads += 1
        return super().progress()


def test_without_a_change_barriers_are_read_once_and_no_rows() -> None:
    """Positions, time and version of a cut come from the same barriers; rows are read only after a later barrier."""
    answers = CountedAnswers()
    changes = IndexChanges(answers, Handles(lambda: "1"))
    assert list(changes.since(10)) == []
    assert (answers.reads, answers.asked) == (1, [])
    rows, cut = changes.since(8)
    assert (rows.kind, cut.id, cut.data) == (
        "rows", 10, {"sources": {"s": {"gtid_set": "u:1-9"}}, "timestamp_ms": 4},
    )  # fmt: skip
    assert (answers.reads, len(answers.asked)) == (2, 1)

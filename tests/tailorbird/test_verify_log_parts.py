"""Parts of the log stage: the remaining spans, waiting for a busy source, and stored progress."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.merkle.leaves import Grid
from cdc.model.errors import Fatal, TableChanged, UsageError
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology
from tailorbird.verify.findings import INCOMPLETE, Verdict
from tailorbird.verify.log import run_topics
from tailorbird.verify.log.file_progress import OLDEST_MS, Progress, ProgressFile
from tailorbird.verify.log.load import Load, limits_of
from tailorbird.verify.log.spans import GROUP_ROWS, ComparedSpan, spans_of
from tailorbird.verify.log.topic_comparison import LogStageOptions, TopicComparison

CAPTURES = """
name: parts
sources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [a, b, c], server_id: 1}}
log: {bootstrap_servers: 'k:9092'}
"""


def partition_ledger(counts: dict[int, int]) -> Any:
    """A table whose ledger has so many rows in each leaf."""
    return SimpleNamespace(grid=Grid(kind="integer", column="id"), counts=lambda: counts)


leaves = st.integers(0, 200)


@given(st.dictionaries(leaves, st.integers(1, GROUP_ROWS)), st.sets(leaves, max_size=8))
def test_settled_and_spans_are_all_leaves(counts: dict[int, int], edges: set[int]) -> None:
    """All leaves that a run has not settled are compared exactly once, in pieces of bounded size."""
    bounds = sorted(edges)
    settled = [ComparedSpan(*pair, 0, 0) for pair in zip(bounds[::2], bounds[1::2], strict=False)]
    spans = spans_of(partition_ledger(counts), settled)
    last, begin = Grid(kind="integer", column="id").last, 0
    for first, end in sorted([*spans, *(one[:2] for one in settled)]):
        assert first == begin <= end
        begin = end + 1
    assert begin == last + 1
    for first, end in spans:
        assert sum(rows for leaf, rows in counts.items() if first <= leaf < end) < GROUP_ROWS


def test_one_waits_while_a_server_is_busy() -> None:
    """Like pt-table-checksum's --max-load: waits get longer and are reported once; an unknown status is an error."""
    running, pauses, reported = iter([30, 40, 26, 25]), list[float](), list[str]()
    Load(limits_of("Threads_running=25"), lambda name: next(running), pauses.append, reported.append).wait()
    assert pauses == [0.2, 0.4, 0.8]
    assert reported == ["Threads_running is 30, more than 25"]
    with pytest.raises(UsageError, match="no such status"):
        Load({"Threads_walking": 1}, lambda name: None, pauses.append, reported.append).wait()
    with pytest.raises(UsageError, match="--max-load Threads_running=25"):
        limits_of("25")


def test_what_is_kept_between_runs(tmp_path: Path) -> None:
    """An interrupted run resumes, and an equal table has a cut, but not with another shape and not forever."""
    kept = ProgressFile(tmp_path, "shop")
    assert list(tmp_path.iterdir()) == []
    kept.begin("s.d.t", Progress("GTIDs a:1-5", {("topic", 0): 7}, 1000, "3|"))
    kept.settle("s.d.t", ComparedSpan(0, 9, 100, 3))
    kept.close()
    kept = ProgressFile(tmp_path, "shop")
    found = kept.interrupted("s.d.t", "3|")
    assert found is not None
    assert (found.settled, found.ends) == ([ComparedSpan(0, 9, 100, 3)], {("topic", 0): 7})
    assert kept.interrupted("s.d.t", "4|") is None
    assert kept.equal("s.d.t", "3|", 1000) is None
    kept.end("s.d.t", equal=True)
    kept = ProgressFile(tmp_path, "shop")
    assert kept.interrupted("s.d.t", "3|") is None
    equal = kept.equal("s.d.t", "3|", 2000)
    assert equal is not None
    assert (equal.cut, equal.settled) == ("GTIDs a:1-5", [])
    assert kept.equal("s.d.t", "3|", 1000 + OLDEST_MS) is None
    (tmp_path / "verify" / "shop.json").write_text("{}")
    with pytest.raises(Fatal, match="delete it"):
        ProgressFile(tmp_path, "shop")


def test_a_table_that_is_altered_meanwhile_hides_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The table is not compared, and the tables after it are."""

    class Comparer:
        def __init__(self, *_: Any) -> None: ...

        def compared(self, table: TableId, _: Any) -> TopicComparison:
            if table.table == "b":
                raise TableChanged("it was dropped")
            return TopicComparison(table=table, verdict=Verdict(stage="log", table=str(table), cut="now"))

        def close(self) -> None: ...

    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    monkeypatch.setattr(run_topics, "TopicComparer", Comparer)
    monkeypatch.setattr(run_topics, "_LEAVES", {"mysql": lambda *_: nullcontext()})
    tables = [TableId(source="s", database="d", table=name) for name in "abc"]
    topology = read_topology(CAPTURES, file="t.yml", environ={})
    ledger: Any = None
    found = run_topics._source(topology, topology.sources["s"], tables, ledger, LogStageOptions())
    assert [one.verdict.outcome for one in found] == ["equal", INCOMPLETE, "equal"]

"""A traced log sends one span per sampled change, with names, positions and times, and after the commit only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from cdc.model.event import Position
from cdc.otel.stages import CAPTURE, GATEWAY, Sampling, Stage, TracedChange
from ingest.log.memory_log import Broker, MemoryLog
from ingest.log.traced_log import TracedLog
from ingest.records.capture_interfaces import Checkpoint, OpenLog, Record

_PLACE = Position(file="f", pos=4, row=0, gtid_set="", sequence=9)


class Sent:
    """Keeps the spans."""

    def __init__(self, ratio: float = 1.0) -> None:
        self.sampling = Sampling(topology="t", ratio=ratio)
        self.spans: list[tuple[int, Stage, Stage | None, int, int, dict[str, Any]]] = []

    def span(
        self,
        change: TracedChange,
        stage: Stage,
        *,
        parent: Stage | None,
        began_ns: int,
        ended_ns: int,
        attributes: Mapping[str, str | int],
    ) -> None:
        self.spans.append((change.sequence, stage, parent, began_ns, ended_ns, dict(attributes)))


class OpenedLog(MemoryLog):
    """A log in memory, whose topics exist."""

    def ensure_topic(self, name: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def record(number: int, op: str = "u", **row: object) -> Record:
    value = {"before": None, "after": row, "source": {"ts_ms": 3, "sequence": number}, "op": op, "ts_ms": 4}
    return Record("t.s.d.t", b"{}", orjson.dumps(value))


def traced(sent: Sent, stage: Stage = CAPTURE) -> TracedLog[OpenLog]:
    log = TracedLog[OpenLog](OpenedLog(Broker(), "t.schemas", "t.history"), "s", sent, lambda: 10_000_000, stage)
    log.recover()
    return log


def commit(log: TracedLog[OpenLog]) -> None:
    log.commit(Checkpoint(position=_PLACE, snapshot="done", ts_ms=3))


def test_changes_of_a_commit_have_spans_and_no_values() -> None:
    """Rows of snapshots, tombstones and other records have none; a column called `sequence` does not confuse it."""
    sent = Sent()
    log = traced(sent)
    log.extend([record(1, secret="hidden", sequence=77), record(1), record(2, op="r"), Record("t", b"k", None)])
    log.append(Record("t.history", b"k", b'{"sequence":5}'))
    assert sent.spans == []
    commit(log)
    [(sequence, stage, parent, began, ended, attributes)] = sent.spans
    assert (sequence, stage, parent, began, ended) == (1, CAPTURE, None, 3_000_000, 10_000_000)
    assert attributes["messaging.destination.name"] == "t.s.d.t"
    assert "hidden" not in str(attributes)
    commit(log)
    assert len(sent.spans) == 1, "once"


def test_what_was_aborted_has_no_span() -> None:
    """The next session sends it, when it has committed it."""
    sent = Sent()
    log = traced(sent)
    log.append(record(1))
    log.abort()
    commit(log)
    assert sent.spans == []


def test_a_gateways_span_begins_when_it_has_received_the_change() -> None:
    """Its parent is the span of the capture, which is in another process."""
    sent = Sent()
    log = traced(sent, GATEWAY)
    log.append(record(1))
    commit(log)
    assert [span[1:5] for span in sent.spans] == [(GATEWAY, CAPTURE, 10_000_000, 10_000_000)]


def test_only_sampled_changes_have_spans() -> None:
    """Those whose trace id is below the bound, as every other stage decides."""
    sent = Sent(ratio=0.2)
    log = traced(sent)
    log.extend([record(number) for number in range(1, 101)])
    commit(log)
    expected = [n for n in range(1, 101) if sent.sampling.change("s", n)]
    assert [span[0] for span in sent.spans] == expected
    assert 5 < len(expected) < 40

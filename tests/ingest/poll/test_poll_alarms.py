"""Thresholds of a polled source are alarms: of the last success, the backlog, and the distance of the cursor."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from prometheus_client import REGISTRY

from cdc.model.errors import TailorbirdError, TopologyError
from cdc.model.naming import schemas_topic
from cdc.model.polling import PollAlarms
from cdc.topology.reader import read_source
from cdc.topology.topology import Topology
from ingest.capture.observer import Observer
from ingest.log.memory_log import Broker, MemoryLog
from ingest.poll.run_poll import poll
from ingest.report.http_reports import Reports
from ingest.report.poll_progress import PollProgress
from tests.ingest.poll.test_sql_reader import execute, file, topology

__all__ = ["file"]  # a fixture
ALARMS = "alarm_since_success: 1m, alarm_backlog: 4, alarm_behind: 90s, "
TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, updated_at DATETIME NOT NULL)"
INDEX = "CREATE INDEX i ON t (updated_at)"


def insert(file: Path, first: int, count: int, minute: int) -> None:
    execute(
        file, *(f"INSERT INTO t VALUES ({first + n}, '2026-11-21 10:{minute:02}:{n:02}')" for n in range(count))
    )  # fmt: skip


def run(top: Topology, broker: Broker, progress: PollProgress | None, cycles: int) -> None:
    """Run a session of so many cycles."""
    source, left = top.sources["s"], [cycles]
    assert source.poll is not None

    def wait(seconds: float) -> None:
        left[0] -= 1

    log = MemoryLog(broker, schemas_topic("top"))
    stopped = lambda: left[0] <= 0  # noqa: E731
    poll(top, source, source.poll, log, observer=Observer(), stopped=stopped, wait=wait, progress=progress)


def test_a_backlog_and_a_distance_are_alarms_until_they_are_read(file: Path) -> None:
    """The rows that wait are those at the begin of a poll. A distance is that of the newest row to the last one read.

    `/health` reports an alarm without being unhealthy, because a restart would not help.
    """
    execute(file, TABLE, INDEX)
    insert(file, 1, 5, 0)
    top, broker = topology(file, ALARMS), Broker()
    reports = Reports("top", top.sources["s"], structlog.wrap_logger(None, processors=[]))
    progress = reports.polling
    assert progress is not None
    run(top, broker, progress, 1)
    assert progress.alarm(time.monotonic()) == "main.t: at least 5 rows wait (alarm_backlog: 4)"
    assert reports.verdict()[1]["alarm"] == progress.alarm(time.monotonic())
    assert REGISTRY.get_sample_value("tailorbird_poll_alarm", {"source": "s"}) == 1
    run(top, broker, progress, 1)
    assert progress.alarm(time.monotonic()) == ""
    assert "alarm" not in reports.verdict()[1]
    assert REGISTRY.get_sample_value("tailorbird_poll_alarm", {"source": "s"}) == 0
    insert(file, 10, 1, 2)
    run(top, broker, progress, 1)
    assert progress.alarm(time.monotonic()) == "main.t: the cursor is 116 behind (alarm_behind: 90)"
    run(top, broker, progress, 1)
    assert progress.alarm(time.monotonic()) == ""


def test_sessions_that_fail_are_no_success(file: Path) -> None:
    """The time since the last success is that of all sessions: a new one does not reset it."""
    execute(file, "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    top = topology(file, ALARMS)
    progress = PollProgress(alarms=PollAlarms(since_success=60.0), success=time.monotonic() - 100)
    for _ in range(2):
        with pytest.raises(TailorbirdError, match="has no column updated_at"):
            run(top, Broker(), progress, 1)
    since = REGISTRY.get_sample_value("tailorbird_poll_seconds_since_success", {"source": "s"})
    assert since is not None
    assert since >= 100
    assert "no poll has succeeded for 10" in progress.alarm(time.monotonic())
    execute(file, "DROP TABLE t", TABLE, INDEX)
    run(top, Broker(), progress, 1)
    assert progress.alarm(time.monotonic()) == ""
    assert "no poll has succeeded for 61 s" in progress.alarm(progress.success + 61)


SOURCE = "{{type: sql, capture: poll, url: 'sqlite:///x', database: main, tables: [t], {0}}}"


def test_thresholds_are_read() -> None:
    """None is set by default. A feed's distance is a number."""
    plain = read_source(SOURCE.format("limit: 3"), name="s", file="f").poll
    assert plain is not None
    assert plain.alarms == PollAlarms()
    assert PollProgress(alarms=plain.alarms, success=0.0, tables={"t": (10_000, 1e9)}).alarm(1e9) == ""
    feed = read_source(SOURCE.format("mode: feed, alarm_behind: 500"), name="s", file="f").poll
    assert feed is not None
    assert feed.alarms == PollAlarms(behind=500.0)


@pytest.mark.parametrize(
    "wrong", ["alarm_backlog: 10000", "alarm_backlog: -1", "alarm_behind: many", "alarm_since_success: 0x"]
)
def test_a_threshold_that_is_never_reached_is_refused(wrong: str) -> None:
    """A backlog is counted up to 10,000 rows."""
    with pytest.raises(TopologyError, match=wrong.partition(":")[0]):
        read_source(SOURCE.format(wrong), name="s", file="f")


def test_sources_that_share_a_table_wait_longer(file: Path) -> None:
    """With three of them, each polls a third as often, from the next poll on."""
    execute(file, TABLE, INDEX)
    top, waited, sources = topology(file), list[float](), [1, 3, 2]
    source = replace(top.sources["s"], sharing=lambda: sources[len(waited)] if len(waited) < 3 else 1)
    assert source.poll is not None
    settings = replace(source.poll, interval=1000.0)
    log = MemoryLog(Broker(), schemas_topic("top"))
    stopped = lambda: len(waited) > 2  # noqa: E731
    poll(top, source, settings, log, observer=Observer(), stopped=stopped, wait=waited.append)
    assert [round(seconds, -2) for seconds in waited] == [1000.0, 3000.0, 2000.0]

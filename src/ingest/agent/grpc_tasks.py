"""Sources that are assigned to an agent: the task of capturing one, and its reports to the gateway."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from cdc.topology.topology import Source
from ingest.agent.policy import LocalConnection, NarrowedSource, Policy
from ingest.fleet.desired import SourceSpec
from ingest.fleet.fleet_pb2 import APPLYING, FAILED, Assign, Progress, Report
from ingest.gateway_client.gateway_log import SessionChannels

_REASON = 2000  # characters


@dataclass(slots=True)
class TaskReport:
    """Status of one source for the gateway. `send` sends it.

    `session` is the progress of the capture session with a reason. `refused` is why the policy refuses a newer version.
    """

    report: Report
    send: Callable[[Report], None]
    session: tuple[Progress, str] = (APPLYING, "")
    refused: str = ""
    sent_at: float = 0.0  # monotonic clock

    def now(self, progress: Progress, reason: str = "") -> None:
        """Set the progress of the capture session, and send it if it changed."""
        self.session = progress, reason
        self._send_report()

    def refuse(self, version: int, why: str) -> None:
        """Report that the policy refuses a newer version; the previous one keeps running."""
        self.report.version, self.refused = version, why
        self._send_report()

    def accept(self, version: int) -> None:
        """Report that the running configuration is also that of a newer version."""
        self.report.version, self.refused = version, ""
        self._send_report(again=True)

    def at(self, position: Mapping[str, Any], *, every: float) -> None:
        """Set the source's position, and send it if the last report is at least `every` seconds old."""
        self.report.position = orjson.dumps(position)
        if time.monotonic() - self.sent_at >= every:
            self._send_report(again=True)

    def _send_report(self, *, again: bool = False) -> None:
        progress, reason = (FAILED, self.refused) if self.refused else self.session
        if again or (progress, reason[:_REASON]) != (self.report.progress, self.report.reason):
            self.report.progress, self.report.reason = progress, reason[:_REASON]
            self.sent_at = time.monotonic()
            self.send(self.report)


@dataclass(frozen=True, slots=True)
class Task:
    """One source to capture until `stopped` is set.

    `local` is its server. `channels` returns session channels under the source's lease. `restrictions` is a text that
    says how the policy narrows the configuration.
    """

    topology: str
    policy: Policy
    local: LocalConnection
    source: Source
    restrictions: str
    channels: Callable[[], SessionChannels]
    stopped: threading.Event
    reported: TaskReport


Capture = Callable[[Task], None]  # runs sessions until stopped; raises errors after which no retry helps


@dataclass(slots=True)
class SourceTask:
    """A source that is assigned to the agent, with the thread that captures it.

    `assigned` is its assignment with the request type, and `newer` one that the policy refuses while this one keeps
    running. `runs` is what the thread captures; None if the policy refuses the assignment.
    """

    assigned: tuple[int, Assign]
    epoch: int
    version: int
    reported: TaskReport
    newer: tuple[int, Assign] | None = None
    runs: NarrowedSource | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of the policy for an assignment: a task that is not started, and what it captures (`spec`).

    `refused` is why the policy refuses it. `error` is an internal error that prevented the decision.
    """

    task: SourceTask
    spec: SourceSpec | None = None
    refused: str = ""
    error: Exception | None = None

    def is_same(self, before: SourceTask) -> bool:
        """Return whether the session of a previous assignment already captures the same under the same lease."""
        same = (before.runs, before.epoch) == (self.task.runs, self.task.epoch)
        return same and before.thread is not None and not before.stopped.is_set()

    def keeps(self, before: SourceTask) -> bool:
        """Return whether the previous assignment continues, because it has the same lease and this one is refused."""
        allowed = before.runs is not None and not before.stopped.is_set()
        return self.spec is None and allowed and before.epoch == self.task.epoch


def sharing(tasks: Mapping[str, SourceTask], runs: NarrowedSource) -> int:
    """Return how many of an agent's tasks poll the table of `runs` that most of them poll."""
    polled = Counter(
        (one.database, one.table)
        for task in tasks.values()
        if task.runs is not None and not task.stopped.is_set()
        if task.runs.source.poll is not None and task.runs.local.alias == runs.local.alias
        for one in task.runs.source.tables
    )
    return max((polled[one.database, one.table] for one in runs.source.tables), default=1)

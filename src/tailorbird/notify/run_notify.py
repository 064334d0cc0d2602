"""Watch a topology and send its webhooks until the process is stopped."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import structlog
from prometheus_client import Counter, Gauge

from cdc.model.errors import Retriable, Skippable, TailorbirdError, UsageError
from cdc.otel.http_metrics import send_metrics
from cdc.process.file_running import announced
from cdc.process.file_topology import home
from cdc.process.http_operation import serve_operation
from cdc.process.verdict import HealthTracker
from cdc.topology.hooks.webhook import Webhook
from cdc.topology.topology import Topology
from tailorbird.notify.conditions import (
    NotifyCondition,
    SteadyConditions,
    differences,
    exceeded_slot,
    incomplete_tables,
    stopped_sources,
)
from tailorbird.notify.file_outbox import load_outbox, store_outbox
from tailorbird.notify.http_webhook import post
from tailorbird.notify.outbox import Outbox
from tailorbird.notify.pg_slots import kept_bytes
from tailorbird.operate.status.dead_letters import DeadLetterList
from tailorbird.operate.status.file_parts import asked_parts
from tailorbird.operate.status.full_reread import reread_sources
from tailorbird.operate.status.kafka_captured import PositionsReader
from tailorbird.operate.status.kafka_dead_letters import DeadLetterReader
from tailorbird.operate.status.quarantine import quarantined
from tailorbird.verify.checks.kafka_runs import RunsReader

PART = "notify"
SENT = Counter("tailorbird_webhook_events", "Events that a webhook has accepted", ["webhook"])
FAILED = Counter("tailorbird_webhook_failures", "Attempts that failed, or were rejected", ["webhook"])
WAITING = Gauge("tailorbird_webhook_waiting_events", "Events that a webhook has not accepted yet", ["webhook"])
_LOOK_EVERY, _SLOTS_EVERY = 2.0, 15.0
_SETTLING = 6.0  # seconds for which a source must be stopped: `run` restarts a process sooner
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0

log = structlog.get_logger()


class ConditionWatch:
    """Determines the conditions that hold. A kind of condition that cannot be determined is not in `looked`."""

    def __init__(self, topology: Topology, standing: HealthTracker, closing: ExitStack) -> None:
        self._topology, self._standing = topology, standing
        self._positions = closing.enter_context(PositionsReader(topology))
        self._letters = closing.enter_context(DeadLetterReader(topology, DeadLetterList(topology.name, keep=0)))
        self._runs = closing.enter_context(RunsReader(topology))
        self._steady = SteadyConditions(_SETTLING)
        self._slots: list[NotifyCondition] = []
        self._slots_due = 0.0
        self.looked = set[str]()

    def look(self, now: float) -> list[NotifyCondition]:
        """Return the conditions that hold at `now`, in seconds of a monotonic clock."""
        self.looked = {"source_stopped"}
        found = self._steady.steady(list(stopped_sources(asked_parts(self._topology))), now)
        try:
            captured = self._positions.read()
            waiting = [*quarantined(captured), *self._letters.read().waiting]
            found += incomplete_tables(waiting, reread_sources(captured, time.time_ns() // 1_000_000))
            found += differences(run for name, run in self._runs.read().items() if name in self._topology.checks)
            self.looked |= {"table_incomplete", "verify_different"}
            self._standing.resumes("kafka")
        except Retriable as error:
            self._standing.waits("kafka", str(error), now)
        return [*found, *self._of_slots(now)]

    def _of_slots(self, now: float) -> list[NotifyCondition]:
        if now >= self._slots_due:
            self._slots_due = now + _SLOTS_EVERY
            try:
                sizes = list(kept_bytes(self._topology))
                self._slots = [
                    one for source, kept in sizes for one in exceeded_slot(source.name, kept, source.alarm_slot)
                ]
                self.looked.add("slot_exceeded")
            except TailorbirdError as error:  # a stopped server is reported by its capture
                log.warning("slots are not known", reason=str(error))
        return self._slots


class EventSender:
    """Sends the events of an outbox, for each webhook in order. After a failure a webhook waits, up to 5 minutes."""

    def __init__(self, hooks: dict[str, Webhook], outbox: Outbox, folder: Path, standing: HealthTracker) -> None:
        self._hooks, self._outbox, self._folder, self._standing = hooks, outbox, folder, standing
        self._due, self._pauses = dict.fromkeys(hooks, 0.0), dict.fromkeys(hooks, 0.0)

    def send(self) -> None:
        """Send what is due."""
        for name, hook in self._hooks.items():
            while time.monotonic() >= self._due[name] and (event := self._outbox.next_of(name)) is not None:
                try:
                    post(hook, event)
                    SENT.labels(name).inc()
                except Skippable as error:
                    FAILED.labels(name).inc()
                    log.error("event rejected", webhook=name, id=event["id"], type=event["type"], reason=str(error))
                except Retriable as error:
                    FAILED.labels(name).inc()
                    self._wait(name, error)
                    break
                self._pauses[name] = 0.0
                self._standing.resumes(name)
                self._outbox.done(name, event["id"])
                store_outbox(self._folder, self._outbox)
            WAITING.labels(name).set(self._outbox.lacking(name))

    def _wait(self, name: str, error: Retriable) -> None:
        pause = self._pauses[name] = min(max(2 * self._pauses[name], _FIRST_PAUSE), _LONGEST_PAUSE)
        self._due[name] = time.monotonic() + pause
        self._standing.waits(name, str(error), time.monotonic())
        log.warning("waiting", webhook=name, reason=str(error), seconds=pause)


def run_notify(topology: Topology, *, metrics_port: int = 0) -> None:
    """Watch and send until SIGTERM or SIGINT. Each event is sent at least once, also after a restart.

    Raises UsageError for a topology without webhooks, and Fatal if the stored events cannot be read."""
    if not topology.webhooks:
        raise UsageError(f"{topology.file} has no `webhooks:`", "topologies/README.md shows how to write them")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    hooks, standing, folder = dict(topology.webhooks), HealthTracker(), home()
    outbox = load_outbox(folder, topology.name, hooks)
    sender = EventSender(hooks, outbox, folder, standing)
    send_metrics(topology.name, PART)
    with announced(topology.name, PART, metrics_port), ExitStack() as closing:
        if metrics_port:
            serve_operation(metrics_port, lambda: (standing.judge(time.monotonic()), {}))
        watcher = ConditionWatch(topology, standing, closing)
        standing.ready()
        while True:
            time.sleep(_LOOK_EVERY)
            found = watcher.look(time.monotonic())
            if outbox.observe(found, watcher.looked, hooks, time.time_ns() // 1_000_000):
                store_outbox(folder, outbox)
            sender.send()

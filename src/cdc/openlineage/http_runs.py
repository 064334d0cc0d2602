"""Send the events of runs to an OpenLineage receiver, from a thread of their own. Nothing is imported without one.

No event stops or delays a stage: it is dropped while the receiver is unavailable, and the next one is complete again.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, Counter

from cdc.model.errors import UsageError
from cdc.model.extras import extras_named
from cdc.openlineage.datasets import JobKind, LineageDataset, LineageJob, Sides, job_of
from cdc.openlineage.events import RunMoment, RunStep, event_of, producer_of, reason_of

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

_EVERY = 60.0  # seconds between two events of a run
_MOST = 10_000  # events that wait
_FLUSH = 3.0  # seconds that the end of a process waits for its last events
_SETTINGS = "docs/observability.md lists the settings"
_LOGIN = re.compile(r"//[^/\s]*@")

log = structlog.get_logger()
Describe = Callable[[], tuple[Sequence[LineageDataset], Sequence[LineageDataset]]]


def wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the environment names a receiver of events, and does not switch them off."""
    if environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = any(environ.get(name) for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG"))
    return named or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in environ)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """An event that waits: its step and time, and the reason of a failure. `describe` returns the datasets, if they may
    have changed. `beat`: the run just continues."""

    step: RunStep
    at: datetime
    reason: str = ""
    describe: Describe | None = None
    beat: bool = False


class LineageRun:
    """The run of one job. Its methods never wait and never fail: the sender's thread does the work."""

    def __init__(self, job: LineageJob, run: str, sender: LineageSender, events: Counter) -> None:
        self.job, self.id, self.events = job, run, events
        self.due = time.monotonic() + sender.every
        self.incomplete = False  # whether the receiver may lack the newest datasets
        self._sender, self._lock, self._over = sender, threading.Lock(), False
        self._lost: RunNote | None = None  # the newest description that did not get into the queue
        self._datasets: Sides = (), ()

    def started(self, describe: Describe) -> None:
        """Send that the run begins, with the datasets that its topology names."""
        self._sender.live(self)
        self._put("START", describe=describe)

    def reads_and_writes(self, describe: Describe) -> None:
        """Send the inputs and outputs that `describe` returns if they have changed, as columns do."""
        self._put("RUNNING", describe=describe)

    def ended(self, step: RunStep, reason: str = "") -> None:
        """Send that the run has ended."""
        self._sender.live(self, ends=True)
        self._put(step, reason, last=True)

    def beat(self) -> None:
        """Send that the run continues; with the datasets only if the receiver may lack them."""
        self._put("RUNNING", beat=True)

    def dropped(self, note: RunNote) -> None:
        """Remember what the receiver lacks."""
        self.incomplete = True
        if note.describe is not None:
            self._lost = note

    def moment(self, note: RunNote) -> RunMoment | None:
        """Return the event of a note, or None if there is nothing to send. For the sender's thread alone.

        Raises whatever the description of the datasets raises."""
        describe, lost, before = note.describe, self._lost, self._datasets
        if lost is not None and lost.at < note.at:
            describe, self._lost = describe or lost.describe, None
        if describe is not None:
            inputs, outputs = describe()
            self._datasets = tuple(inputs), tuple(outputs)
        if note.describe is not None and note.step == "RUNNING" and self._datasets == before and not self.incomplete:
            return None
        bare = note.beat and describe is None and not self.incomplete
        inputs, outputs = ((), ()) if bare else self._datasets
        return RunMoment(step=note.step, at=note.at, inputs=inputs, outputs=outputs, reason=note.reason)

    def _put(
        self, step: RunStep, reason: str = "", *, describe: Describe | None = None, beat: bool = False,
        last: bool = False,
    ) -> None:  # fmt: skip
        with self._lock:  # nothing follows the last event
            if not self._over:
                self.due, self._over = time.monotonic() + self._sender.every, last
                note = RunNote(step=step, at=datetime.now(UTC), reason=reason, describe=describe, beat=beat)
                self._sender.put(self, note)


class LineageSender:
    """Sends the events of all runs of this process, in order. `emit` sends one; it may raise anything, and take long.

    Every `every` seconds each run sends that it continues."""

    def __init__(self, emit: Callable[[RunEvent], None], *, every: float = _EVERY, most: int = _MOST) -> None:
        self._emit, self.every = emit, every
        self._waiting = queue.Queue[tuple[LineageRun, RunNote]](most)
        self._runs, self._failing, self._version = dict[str, LineageRun](), False, version("tailorbird")
        threading.Thread(target=self._work, name="openlineage", daemon=True).start()

    def live(self, run: LineageRun, *, ends: bool = False) -> None:
        """Note that a run begins or ends."""
        if ends:
            self._runs.pop(run.id, None)
        else:
            self._runs[run.id] = run

    def put(self, run: LineageRun, note: RunNote) -> None:
        """Add an event to those that wait. If these are too many, drop it."""
        try:
            self._waiting.put_nowait((run, note))
        except queue.Full:
            run.dropped(note)
            self._dropped(run, "too many events wait for the receiver")

    def flush(self, seconds: float = _FLUSH) -> None:
        """Wait until all events are sent, at most so long."""
        until = time.monotonic() + seconds
        while self._waiting.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.02)

    def _work(self) -> None:
        while True:
            try:
                run, note = self._waiting.get(timeout=min(1.0, self.every))
            except queue.Empty:
                self._beat()
                continue
            try:
                self._send(run, note)
            finally:
                self._waiting.task_done()

    def _beat(self) -> None:
        now = time.monotonic()
        for run in list(self._runs.values()):
            if run.due <= now:
                run.beat()

    def _send(self, run: LineageRun, note: RunNote) -> None:
        try:
            if (moment := run.moment(note)) is None:
                return
            self._emit(event_of(run.job, run.id, moment, self._version))
        except Exception as error:  # noqa: BLE001  # whatever a transport raises, the stage continues
            run.incomplete = True
            self._dropped(run, f"{type(error).__name__}: {_LOGIN.sub('//', str(error))}")
            return
        run.events.labels("sent").inc()
        if moment.inputs or moment.outputs:
            run.incomplete = False
        if self._failing:
            self._failing = False
            log.info("OpenLineage events are accepted again")

    def _dropped(self, run: LineageRun, reason: str) -> None:
        run.events.labels("dropped").inc()
        if not self._failing:
            self._failing = True
            remedy = "check the receiver, OPENLINEAGE_URL and OPENLINEAGE_API_KEY; the pipeline does not need it"
            log.warning("OpenLineage events are dropped", reason=reason[:300], remedy=remedy)


@contextmanager
def lineage_run(
    topology: str,
    kind: JobKind,
    part: str,
    describe: Describe,
    registry: CollectorRegistry = REGISTRY,
) -> Iterator[LineageRun | None]:
    """Send a run's START, and at the end of the block COMPLETE, or FAIL if it raises. Yields the run.

    Yields None, and sends nothing, if the environment names no receiver. `part` is the source, table or index,
    `describe` returns the inputs and outputs that the topology names. `registry` counts the events.
    Raises UsageError for invalid settings, and if `tailorbird[openlineage]` is not installed."""
    sender = sender_of_process()
    if sender is None:
        yield None
        return
    from openlineage.client.uuid import generate_new_uuid

    job = job_of(topology, kind, part, os.environ)
    run = LineageRun(job, str(generate_new_uuid()), sender, _counter(registry))
    run.started(describe)
    try:
        yield run
    except Exception as error:
        run.ended("FAIL", reason_of(error, kind))
        raise
    run.ended("COMPLETE")


_one_at_a_time = threading.Lock()


def sender_of_process() -> LineageSender | None:
    """Return the process's sender, or None if the environment names no receiver. Raises UsageError as `lineage_run`."""
    with _one_at_a_time:
        return _sender()


@cache
def _sender() -> LineageSender | None:
    if not wanted(os.environ):
        return None
    if "OPENLINEAGE_CLIENT_LOGGING" not in os.environ:
        # they log each attempt; the sender reports failures
        for name in ("openlineage", "urllib3.connectionpool"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    with extras_named("openlineage"):
        from openlineage.client import OpenLineageClient, event_v2
        from openlineage.client.transport.http import HttpTransport
    event_v2.set_producer(producer_of(version("tailorbird")))
    # it would send the URL of whatever git repository the working directory is in
    own = {"facets": {"source_code_location": {"disabled": True}}}
    try:
        client = OpenLineageClient(config=own)
        found = client.config.transport or {}
    except Exception as error:
        what = f"OpenLineage's client rejects its settings: {type(error).__name__}: {_LOGIN.sub('//', str(error))}"
        raise UsageError(what, _SETTINGS) from error
    if client.transport.kind == "console" and not found.get("type"):
        raise UsageError(f"no transport in {os.environ.get('OPENLINEAGE_CONFIG', 'OpenLineage settings')}", _SETTINGS)
    if isinstance(client.transport, HttpTransport):
        client.transport.session.max_redirects = 0  # one could send the events to another host
    sender = LineageSender(client.emit)
    atexit.register(sender.flush)
    return sender


@cache
def _counter(registry: CollectorRegistry) -> Counter:
    about = "Events about runs for an OpenLineage receiver, by outcome: sent or dropped."
    return Counter("tailorbird_openlineage_events", about, ["outcome"], registry=registry)

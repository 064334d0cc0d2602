"""Run a capture in threads of the test's own process, into a log in memory; it is killed and restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import orjson

from cdc.model.errors import Retriable
from cdc.model.naming import history_topic, schemas_topic
from cdc.model.schema import TableId, schema_from_json
from cdc.topology.topology import Source, Topology
from ingest.capture.groups import Limits
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.capture_interfaces import Checkpoint, OpenLog, Record
from ingest.records.records import Recorder
from ingest.run_capture import phases_of, tables_of
from ingest.sources import server_of


class KilledError(Exception):
    """The process was killed."""


class DyingLog(MemoryLog):
    """A log whose process dies at a commit on request: uncommitted records are lost, as with kill -9."""

    def __init__(self, capturing: ThreadedCapture) -> None:
        topology = capturing.topology.name
        super().__init__(capturing.broker, schemas_topic(topology), history_topic(topology))
        self._capturing = capturing

    def ensure_topic(self, name: str) -> None:
        """See `OpenLog`."""

    def close(self) -> None:
        """See `OpenLog`."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """See `ChangeLog`."""
        if self._capturing.dies():
            raise KilledError
        super().commit(checkpoint)


@dataclass
class SessionReports(Observer):
    """Collects the reports of the sessions."""

    lines: list[str] = field(default_factory=list)

    def phase(self, what: str, **details: object) -> None:
        """See `Observer`."""
        if what != "stream":
            self.lines.append(f"{what} {details}")


@dataclass
class ThreadedCapture:
    """One source, captured by one session after another; `kills`: how many of them die at one of their own commits."""

    topology: Topology
    random: Random
    kills: int = 0
    broker: Broker = field(default_factory=Broker)
    said: SessionReports = field(default_factory=SessionReports)
    failed: BaseException | None = None
    retried: list[str] = field(default_factory=list)
    deaths: int = 0
    _until: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def source(self) -> Source:
        """The only source."""
        return next(iter(self.topology.sources.values()))

    def start(self) -> None:
        """Capture until `stop`."""
        self._stop.clear()
        self._until = self.random.randrange(2, 12) if self.kills else 0
        self._thread = threading.Thread(target=self._run, name="capturing")
        self._thread.start()

    def opened(self) -> OpenLog:
        """Open the log of one session."""
        return DyingLog(self)

    def kill(self) -> None:
        """Let the session die at its next commit; another one starts."""
        self._until = 1

    def dies(self) -> bool:
        """Return whether the session dies at this commit."""
        if not self._until:
            return False
        self._until -= 1
        return self._until == 0

    def _run(self) -> None:
        while not self._stop.is_set():
            source, log = self.source, self.opened()
            session = Session(
                source=server_of(self.topology.name, source), log=log,
                recorder=Recorder(self.topology.name, source.type, log.ensure_topic, phases=phases_of(source)),
                tables=tables_of(source),
                mode="initial",
                clock=time.time, stopped=self._stop.is_set, observer=self.said, limits=Limits(rows=200, ask=0.5),
                cascades=source.cascades if source.type in ("mysql", "mariadb") else "ignore",
                position_lost=source.position_lost,
            )  # fmt: skip
            try:
                session.run()
            except KilledError:
                self.deaths += 1
                self._until = self.random.randrange(5, 60) if self.deaths < self.kills else 0
            except Retriable as error:
                self.retried.append(str(error))
                self._stop.wait(min(error.retry_after, 0.3))
            except BaseException as error:  # noqa: BLE001  # looked at by the test's own thread
                self.failed = error
                return
            finally:
                log.close()

    def stop(self) -> None:
        """Stop the sessions cleanly."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)
            assert not self._thread.is_alive()

    def wait(self, reached: Callable[[Checkpoint], bool], seconds: float) -> bool:
        """Wait until it has caught up; False if it has ended, or committed nothing new for so many seconds."""
        deadline, commits, last = time.monotonic() + seconds, 0, time.monotonic() + 10 * seconds
        while time.monotonic() < min(deadline, last) and self.failed is None:
            if len(self.broker.checkpoints) > commits:
                deadline, commits = time.monotonic() + seconds, len(self.broker.checkpoints)
            found = self.broker.checkpoints[-1] if self.broker.checkpoints else None
            if found is not None and settled(found) and reached(found):
                return True
            time.sleep(0.02)
        return False

    def passed(self) -> dict[str, object]:
        """Return the tables that are left out although the log has changes of them, as `status` names them."""
        return {
            name.partition(".")[2]: why for name, why in self.broker.checkpoints[-1].state.get("left_out", {}).items()
        }

    def records(self) -> dict[str, list[Record]]:
        """Return the committed records by topic."""
        found: dict[str, list[Record]] = {}
        for record in self.broker.records:
            found.setdefault(record.topic, []).append(record)
        return found

    def published(self) -> dict[str, TableId]:
        """Return the tables that are captured at the log's end, by name."""
        found: dict[bytes, TableId] = {}
        for record in self.records().get(schemas_topic(self.topology.name), ()):
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = schema_from_json(orjson.loads(record.value)).table_id
        return {table.table: table for table in found.values()}


def settled(checkpoint: Checkpoint) -> bool:
    """Return whether nothing is being read, held or repaired."""
    rest, repairs = checkpoint.state, checkpoint.state.get("mends", {})
    waiting = rest.get("snapshots") or repairs.get("tables") or repairs.get("again")
    return checkpoint.snapshot == "done" and checkpoint.open is None and not waiting

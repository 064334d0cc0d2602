"""One session of capture: recover, snapshot if there is none yet, then stream until told to stop; pure wiring.

Exactly once: records and the position behind them are one commit of the log, and a session begins by reading back
what is committed. So whatever ends a session (an error, kill -9), the next one neither loses nor repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from cdc.errors import Fatal, Retriable
from cdc.schema import TableId, TableSchema
from cdc.topology import SnapshotMode
from ingest.agent.facts import CaughtUp, Fact
from ingest.agent.records import Recorder
from ingest.agent.seams import ChangeLog, Checkpoint, Source
from ingest.agent.transactions import Transactions, snapshot_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How commits are grouped: a commit is made at the first transaction end behind `rows` rows or `linger` seconds.

    An idle source's transaction is committed at once. A source transaction is one commit whatever its size, in bounded
    memory; publishing it may take `longest` seconds, since Kafka aborts transactions that stay open. `idle_commit` is
    how often, in seconds, the position alone is committed while only tables change that are not captured.
    """

    rows: int = 5000
    linger: float = 0.03
    idle_commit: float = 1.0
    longest: float = 800.0


class Observer:
    """What a session reports as it goes; the base class ignores it."""

    def phase(self, what: str, **details: object) -> None:
        """The session begins something: a snapshot, the stream."""

    def captured(self, changes: int) -> None:
        """So many changes were committed."""

    def quarantined(self, images: int) -> None:
        """So many row images went to the dead letters."""

    def lag(self, seconds: float) -> None:
        """How far behind the source's commits the committed log is; 0 when caught up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Everything that one session works with; `clock` gives seconds since 1970, `stopped` whether to end."""

    source: Source
    log: ChangeLog
    recorder: Recorder
    mode: SnapshotMode
    clock: Callable[[], float]
    stopped: Callable[[], bool]
    observer: Observer
    limits: Limits = Limits()

    def run(self) -> None:
        """Capture until stopped; raises what source and log raise, with everything uncommitted given up."""
        try:
            self._run()
        finally:
            self.log.abort()

    def _run(self) -> None:
        recovered = self.log.recover()
        schemas, checkpoint = dict(recovered.schemas), recovered.checkpoint
        current = self.source.schemas(schemas)
        if checkpoint is None or checkpoint.snapshot == "running":
            for table, schema in current.items():
                if schemas.get(table) != schema:
                    self.log.append(self.recorder.schema(schema))
            schemas = dict(current)
            if checkpoint is None:
                checkpoint = Checkpoint(
                    position=self.source.head(), snapshot="running" if self.mode == "initial" else "done", ts_ms=0
                )
            self.log.commit(checkpoint)
        else:
            # Rows that wait in the log may still have the schemas known: the log says when they change.
            for table in current:
                if table not in schemas:
                    raise Fatal(
                        f"table {table} was added to the topology after the snapshot of its source",
                        "take it out of `tables:`, or start over under a new topology name",
                    )
        if checkpoint.snapshot == "running":
            done = self._snapshot(checkpoint, schemas)
            if done is None:
                return
            checkpoint = done
        self._stream(checkpoint, schemas)

    def _snapshot(self, checkpoint: Checkpoint, schemas: Mapping[TableId, TableSchema]) -> Checkpoint | None:
        """Read all tables; None when stopped. Every commit repeats the low watermark, so that a restart keeps it.

        A new attempt reads everything again, and the log is read from the *first* attempt's watermark: a row that was
        deleted between two attempts is deleted by the log, else it would stay for ever.
        """
        low = checkpoint.position
        self.observer.phase("snapshot", gtid_set=low.gtid_set, tables=len(schemas))
        pending = read = 0
        with self.source.snapshot(schemas) as pages:
            for schema, images in pages:
                if self.stopped():
                    return None
                if not read and self.source.schemas(schemas) != schemas:
                    raise Retriable("a captured table was altered while its snapshot began")
                read += len(images)
                quarantined = 0
                for record in snapshot_records(self.recorder, schema, images, low, self._now_ms()):
                    self.log.append(record)
                    quarantined += record.topic == self.recorder.dead_letters
                pending += len(images) - quarantined
                if quarantined:
                    self.observer.quarantined(quarantined)
                if pending >= self.limits.rows:
                    self.log.commit(checkpoint)
                    self.observer.captured(pending)
                    pending = 0
        done = replace(checkpoint, snapshot="done", ts_ms=self._now_ms())
        self.log.commit(done)
        self.observer.captured(pending)
        self.observer.phase("snapshot done", rows=read)
        return done

    def _stream(self, checkpoint: Checkpoint, schemas: Mapping[TableId, TableSchema]) -> None:
        """Follow the log until stopped; a transaction that waits alone is committed at once."""
        self.observer.phase("stream", gtid_set=checkpoint.position.gtid_set, sequence=checkpoint.position.sequence)
        transactions = Transactions(self.recorder, checkpoint)
        with self.source.stream(checkpoint.position, schemas) as facts:
            try:
                self._follow(facts, transactions)
            except Fatal:
                if transactions.clean:  # what came before the trouble is whole: publish it
                    self.log.commit(transactions.checkpoint())
                raise

    def _follow(self, facts: Iterator[Fact], transactions: Transactions) -> None:
        appended = changes = quarantined = 0
        first = last = self.clock()
        for fact in facts:
            now = self.clock()
            for record in transactions.records(fact, int(now * 1000)):
                if not appended:
                    first = now
                self.log.append(record)
                appended += 1
            if not transactions.whole:
                if self.stopped():
                    return
                if appended and now - first > self.limits.longest:
                    raise Fatal(
                        f"a source transaction could not be published within {self.limits.longest:.0f} s",
                        "split it at the source, or start over under a new topology name to take a new snapshot",
                    )
                continue
            caught_up, stopped = isinstance(fact, CaughtUp), self.stopped()
            if appended:
                due = caught_up or stopped or appended >= self.limits.rows or now - first >= self.limits.linger
            else:
                due = transactions.moved and now - last >= self.limits.idle_commit
            if due:
                committed = transactions.checkpoint()
                self.log.commit(committed)
                self.observer.captured(transactions.changes - changes)
                self.observer.quarantined(transactions.quarantined - quarantined)
                self.observer.lag(max(0.0, self.clock() - committed.ts_ms / 1000) if appended else 0.0)
                changes, quarantined = transactions.changes, transactions.quarantined
                appended, last = 0, self.clock()
            elif caught_up:
                self.observer.lag(0.0)
            if stopped:
                return

    def _now_ms(self) -> int:
        return int(self.clock() * 1000)

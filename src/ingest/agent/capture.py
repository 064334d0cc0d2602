"""One session of capture: recover, then follow the log until told to stop, with snapshots interleaved; pure wiring.

Exactly once: records and the position behind them are one commit of the log, and a session begins by reading back
what is committed. So whatever ends a session (an error, kill -9), the next one neither loses nor repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from cdc.errors import Fatal, Retriable, Skippable, UsageError
from cdc.event import Position
from cdc.history import Record as HistoryRecord
from cdc.naming import change_topic
from cdc.schema import TableId
from cdc.topology import SnapshotMode
from ingest.agent.facts import (
    CaughtUp,
    StatementLogged,
    TableDescribed,
    TransactionBegan,
    TransactionEnded,
    TransactionLogged,
)
from ingest.agent.groups import Group, Limits
from ingest.agent.marks import REPLAYED, SLACK, Marks, check_replay, reached_before, replayed, restated
from ingest.agent.records import Recorder
from ingest.agent.redecode import waiting
from ingest.agent.seams import ChangeLog, Checkpoint, PositionLost, Recovered, Seen, Source, Stream
from ingest.agent.signals import Signals
from ingest.agent.snapshots import ChunkReader, Snapshots
from ingest.agent.tables import Tables
from ingest.agent.transactions import Transactions


class Observer:
    """What a session reports as it goes; the base class ignores it."""

    def resumed(self, position: Position) -> None:
        """The log is read from here; what is before is committed."""

    def committed(self, checkpoint: Checkpoint) -> None:
        """So far the log holds everything."""

    def phase(self, what: str, **details: object) -> None:
        """The session begins something: a snapshot, the stream."""

    def captured(self, changes: int) -> None:
        """So many changes were committed."""

    def quarantined(self, images: int) -> None:
        """So many row images went to the dead letters."""

    def snapshot(self, rows: Mapping[str, int]) -> None:
        """So many rows were read of each table whose snapshot is under way."""

    def lag(self, seconds: float) -> None:
        """How far behind the source's commits the committed log is; 0 when caught up."""


class Snapshotted(Source, Protocol):
    """A source whose tables can be read beside its log."""

    def chunks(self) -> AbstractContextManager[ChunkReader]:
        """The reader of snapshots' chunks, for one session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Everything that one session works with; `clock` gives seconds since 1970, `stopped` whether to end.

    `position_lost` says what becomes of a position that the source's log does not continue: `fail`, or all tables are
    read again. `wheres` limits the rows that first snapshots read, by table.
    """

    source: Snapshotted
    log: ChangeLog
    recorder: Recorder
    tables: Callable[[Seen], Tables]
    mode: SnapshotMode
    clock: Callable[[], float]
    stopped: Callable[[], bool]
    observer: Observer
    limits: Limits = field(default_factory=Limits)
    position_lost: Literal["fail", "resnapshot"] = "fail"
    signals: Signals | None = None
    parallel: int = 2
    marks: Marks = field(default_factory=Marks)

    def run(self) -> None:
        """Capture until stopped; raises what source and log raise, with everything uncommitted given up."""
        try:
            self._run()
        finally:
            self.log.abort()

    def _run(self) -> None:
        recovered = self.log.recover()
        checkpoint = recovered.checkpoint
        seen, head = self._beginning() if checkpoint is None else (self.source.seen(), None)
        tables = self.tables(seen)
        self.marks.restore(tables.source, recovered.history)
        stored = checkpoint.state.get("snapshots", {}) if checkpoint else {}
        partial = checkpoint.state.get("partial", ()) if checkpoint else ()
        snapshots = Snapshots(tables.source, self.recorder, tables, stored, partial=partial, parallel=self.parallel)
        if checkpoint is None or not recovered.history:
            checkpoint = self._first(checkpoint, head, recovered, tables, snapshots, seen)
        else:
            check_replay(checkpoint, self.source.holds)
            tables.restore(recovered.history, checkpoint.position)
            checkpoint = self._tidied(checkpoint, recovered.history, tables, snapshots)
            checkpoint = self._added(recovered, checkpoint, tables, snapshots)
        with self.source.chunks() as chunks:
            try:
                self._stream(checkpoint, tables, snapshots, chunks)
            except PositionLost as lost:
                if self.position_lost == "fail":
                    raise
                self.observer.phase("position lost: all tables are read again", why=str(lost))
                checkpoint = self._again(checkpoint, tables, snapshots)
                self._stream(checkpoint, tables, snapshots, chunks)

    def _beginning(self) -> tuple[Seen, Position]:
        """What the server shows, and a place in its log where that is what it shows."""
        for _ in range(20):
            before, head, after = self.source.seen(), self.source.head(), self.source.seen()
            if before.catalog == after.catalog:
                return after, head
        raise Retriable("the tables were altered again and again while the capture began")

    def _first(
        self,
        checkpoint: Checkpoint | None,
        head: Position | None,
        recovered: Recovered,
        tables: Tables,
        snapshots: Snapshots,
        seen: Seen,
    ) -> Checkpoint:
        """Begin the history with what the server shows, and a snapshot of every table."""
        change = tables.begin(seen.catalog)
        for why in (change.refused or {}).values():
            raise UsageError(why)
        self.log.extend(self.recorder.history(change.history))
        self.log.extend(self.recorder.schema(s) for s in change.schemas if recovered.schemas.get(s.table_id) != s)
        if checkpoint is None:
            assert head is not None, "a first start knows where the log ended"
            checkpoint = Checkpoint(position=head, snapshot="running" if self.mode == "initial" else "done", ts_ms=0)
        if checkpoint.snapshot == "running":
            for schema in change.schemas:
                snapshots.start(schema.table_id, initial=True, where=tables.where(schema.table_id))
        elif self.mode == "never":
            snapshots.partial.update(schema.table_id for schema in change.schemas)
        return self._commit(checkpoint, snapshots)

    def _added(self, recovered: Recovered, checkpoint: Checkpoint, tables: Tables, snapshots: Snapshots) -> Checkpoint:
        """Tables that the topology names since: their schemas are published, their rows read beside the log.

        Rows are read again of tables that the log has lost or that were not captured for a time.
        """
        number = checkpoint.position.sequence + (REPLAYED not in checkpoint.state)
        for schema in tables.schemas():
            table, where = schema.table_id, tables.where(schema.table_id)
            if table not in recovered.schemas:
                self.log.append(self.recorder.schema(schema))
                snapshots.start(table, where=where)
            elif change_topic(self.recorder.topology, table) in recovered.behind:
                self.observer.phase("the log lacks what was captured of a table: it is read again", table=str(table))
                snapshots.start(table, initial=True, where=where, marker=number)
                checkpoint = replace(checkpoint, position=replace(checkpoint.position, sequence=number))
        return checkpoint

    def _again(self, checkpoint: Checkpoint, tables: Tables, snapshots: Snapshots) -> Checkpoint:
        """Begin anew at the log's end: rows that are not seen again vanish by the marker that ends each snapshot."""
        seen, head = self._beginning()
        self.log.extend(self.recorder.history(self.marks.forget(lambda _: False)))
        number = replayed(checkpoint)["sequence"] + 1
        checkpoint = replace(checkpoint, state={k: v for k, v in checkpoint.state.items() if k != REPLAYED})
        place = replace(head, sequence=number)
        change = tables.adopt(seen.catalog, place)
        self.log.extend(self.recorder.history(change.history))
        self.log.extend(self.recorder.schema(schema) for schema in change.schemas)
        for schema in tables.schemas():
            snapshots.start(schema.table_id, initial=True, marker=number)
        return self._commit(replace(checkpoint, position=place, open=None), snapshots)

    def _tidied(
        self, checkpoint: Checkpoint, found: Sequence[HistoryRecord], tables: Tables, snapshots: Snapshots
    ) -> Checkpoint:
        """Forget what the source cannot be read from any more; restate a history most of which is superfluous."""
        forgotten = self.marks.forget(self.source.holds)
        self.log.extend(self.recorder.history(forgotten))
        known, tables.written = self.marks.known, 0
        oldest = known[0].position if known else checkpoint.position
        anew = restated(found, tables.source, oldest, known)
        if len(found) <= 2 * len(anew.records) + SLACK:
            # at once: an idle source's next commit may be later than Kafka lets a transaction stay open
            return self._commit(checkpoint, snapshots, checkpoint.state.get("signals")) if forgotten else checkpoint
        self.observer.phase("history restated", records=len(found), now=len(anew.records))
        self.log.extend(self.recorder.history(anew.gone))
        self.log.restate(self.recorder.history(anew.records))
        tables.forget(oldest)
        return self._commit(checkpoint, snapshots, checkpoint.state.get("signals"))

    def _commit(self, checkpoint: Checkpoint, snapshots: Snapshots, signals: int | None = None) -> Checkpoint:
        partial = sorted(f"{table.database}.{table.table}" for table in snapshots.partial)
        state: dict[str, Any] = {**checkpoint.state, "snapshots": snapshots.state, "partial": partial}
        if signals is not None:
            state["signals"] = signals
        checkpoint = replace(checkpoint, snapshot="running" if snapshots.initial else "done", state=state)
        self.log.extend(self.recorder.history(self.marks.due(checkpoint, self.clock())))
        self.log.commit(checkpoint)
        self.observer.committed(checkpoint)
        return checkpoint

    def _stream(self, checkpoint: Checkpoint, tables: Tables, snapshots: Snapshots, chunks: ChunkReader) -> None:
        """Follow the log until stopped; it is opened anew when snapshots begin or are done, to be busy or quiet."""
        going: Checkpoint | None = checkpoint
        while going is not None:
            position = going.position
            self.observer.resumed(position)
            self.observer.phase(
                "stream", gtid_set=position.gtid_set, sequence=position.sequence, snapshots=len(snapshots.state)
            )
            with self.source.stream(going, tables, busy=bool(snapshots)) as stream:
                follower = _Follower(self, stream, Transactions(self.recorder, tables, going, snapshots), snapshots)
                going = follower.follow(chunks, going)


class _Follower:
    """Follows one stream and groups what it tells into commits; a transaction that waits alone is committed at once."""

    def __init__(self, session: Session, stream: Stream, transactions: Transactions, snapshots: Snapshots) -> None:
        self._session, self._stream = session, stream
        self._transactions, self._snapshots = transactions, snapshots
        self._changes, self._quarantined = snapshots.rows, snapshots.quarantined
        self._progressed = False
        self._last = session.clock()
        self._group = Group(session.limits, self._last)
        self._signals: int | None = None
        self._asked = 0.0
        self._reopen = False
        self._replayed: Position | None = None

    def follow(self, chunks: ChunkReader, checkpoint: Checkpoint) -> Checkpoint | None:
        """Until told to stop (None), or until the stream is to be opened anew at the checkpoint returned."""
        try:
            return self._follow(chunks, checkpoint)
        except Fatal:
            if self._transactions.clean and self._group.size:  # what came before the trouble is whole: publish it
                self._commit()
            raise

    def _follow(self, chunks: ChunkReader, checkpoint: Checkpoint) -> Checkpoint | None:
        session, limits, clock = self._session, self._session.limits, self._session.clock
        extend, records_of, snapshots = session.log.extend, self._transactions.records, self._snapshots
        session_tables = self._transactions.tables
        group, busy, now = self._group, bool(snapshots), clock()
        self._signals = checkpoint.state.get("signals")
        self._replayed = reached_before(checkpoint)
        for fact in self._stream:
            kind = type(fact)
            if kind is TransactionBegan or kind is TransactionLogged:
                now = clock()
                group.begin()
            records = records_of(fact, int(now * 1000))
            if records:
                extend(records)
                group.add(len(records), now)
            if kind is TransactionLogged:
                if group.size and not (group.due(now) or snapshots or self._replayed):
                    continue  # nothing is to be done yet: what most transactions of a busy source come to
                whole = True
            else:
                whole = kind is TransactionEnded or kind is CaughtUp
                # a statement is never told apart from its transaction's end: it would be folded twice
                if not whole and (not group.huge or kind is StatementLogged):
                    continue
                now = clock()
            if whole:
                if self._replayed is not None and self._stream.reached(self._replayed):
                    self._transactions.count_on(self._replayed.sequence)
                    self._replayed = None
                idle = kind is CaughtUp
                self._take_turn(chunks, now, signalled=idle or now - self._last > limits.idle_commit, caught_up=idle)
            stopped = session.stopped()
            if self._due(now, kind is CaughtUp, stopped, whole):
                checkpoint = self._commit()
                if whole and not stopped and (self._reopen or busy != bool(snapshots)):
                    return checkpoint
            elif kind is CaughtUp:
                session.observer.lag(0.0)
                if session_tables.written > SLACK:
                    checkpoint = session._tidied(checkpoint, session.log.history(), session_tables, snapshots)
            if stopped:
                return None
        return None

    def _take_turn(self, chunks: ChunkReader, now: float, *, signalled: bool, caught_up: bool) -> None:
        """Between transactions: obey signals, publish chunks, ask for more."""
        session, snapshots = self._session, self._snapshots
        if signalled and session.signals is not None:
            self._obey(session.signals)
        if caught_up:
            self._transactions.rest(self._stream)
            self._ask_the_server(now)
        if not snapshots:
            return
        place = self._transactions.place
        records = snapshots.turn(chunks, lambda: place(self._stream), self._stream.reached, int(now * 1000))
        if records:
            session.log.extend(records)
            self._group.add(len(records), now)
        if snapshots.moved:
            snapshots.moved, self._progressed = False, True
            session.observer.snapshot(snapshots.progress())

    def _obey(self, signals: Signals) -> None:
        found, behind = signals.read(self._signals)
        if behind != self._signals:
            self._signals, self._transactions.moved = behind, True
        for signal in found:
            if signal.type == "schema-set":
                why = self._told(signal.described(self._transactions.tables))
            else:
                why = signal.obey(self._snapshots, self._transactions.tables, self._transactions.number)
            self._session.observer.phase("signal", type=signal.type, tables=list(signal.tables), refused=why)

    def _told(self, fact: TableDescribed) -> str:
        """Somebody says what a table's columns are: publish what was kept of it; the reason why not, or an empty text.

        The stream is opened anew then, since its decoders were made without that knowledge.
        """
        session, transactions, table = self._session, self._transactions, fact.table
        name = f"{table.database}.{table.table}"
        if not transactions.tables.captured(table.database, table.table):
            return f"{name} is not captured"
        records = transactions.tell(fact)
        self._reopen = True
        if name in transactions.kept:
            self._commit()  # what was kept in the open commit must be readable
            letters = waiting(session.log.kept(), table, transactions.kept[name])
            try:
                records += transactions.replay(letters, table, int(session.clock() * 1000))
            except Skippable as error:
                session.log.extend(records)
                self._group.add(len(records), session.clock())
                return str(error)
        session.log.extend(records)
        self._group.add(len(records), session.clock())
        return ""

    def _ask_the_server(self, now: float) -> None:
        """Nothing waits in the log: what the server shows of tables in quarantine are the columns of what was kept."""
        kept, transactions = self._transactions.kept, self._transactions
        if not kept or now - self._asked < self._session.limits.ask:
            return
        self._asked = now
        seen, head = self._session.source.seen(), self._session.source.head()
        if not self._stream.reached(head):
            return
        for name in list(kept):
            database, _, table = name.partition(".")
            found = seen.catalog.tables.get((database, table))
            if found is not None:
                shown = found.schema(TableId(source=transactions.tables.source, database=database, table=table), 0)
                why = self._told(TableDescribed(shown.table_id, shown.columns, shown.primary_key))
                self._session.observer.phase("quarantine", table=name, still=why)

    def _due(self, now: float, caught_up: bool, stopped: bool, whole: bool) -> bool:
        limits = self._session.limits
        if self._group.size:
            return caught_up or stopped or not whole or self._group.due(now)
        if self._progressed:
            return True
        if limits.heartbeat and caught_up and now - self._last >= limits.heartbeat:
            return True
        return self._transactions.moved and now - self._last >= limits.idle_commit

    def _commit(self) -> Checkpoint:
        session, transactions = self._session, self._transactions
        checkpoint = transactions.checkpoint(self._stream)
        if transactions.kept or "kept" in checkpoint.state:
            checkpoint = replace(checkpoint, state={**checkpoint.state, "kept": dict(transactions.kept)})
        if self._replayed is None and REPLAYED in checkpoint.state:
            checkpoint = replace(checkpoint, state={k: v for k, v in checkpoint.state.items() if k != REPLAYED})
        checkpoint = session._commit(checkpoint, self._snapshots, self._signals)
        changes = transactions.changes + self._snapshots.rows
        session.observer.captured(changes - self._changes)
        self._changes = changes
        session.observer.quarantined(transactions.quarantined + self._snapshots.quarantined - self._quarantined)
        self._quarantined = transactions.quarantined + self._snapshots.quarantined
        self._last = session.clock()
        lag = max(0.0, self._last - checkpoint.ts_ms / 1000) if self._group.size else 0.0
        session.observer.lag(lag)
        self._group.committed(lag)
        self._progressed = False
        return checkpoint

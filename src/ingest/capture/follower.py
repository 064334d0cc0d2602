"""The loop of a session: facts of one stream → records in the log, with turns of snapshots and mends between; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cdc.model.errors import Fatal, Skippable
from cdc.model.event import Position
from cdc.model.history import Record as HistoryRecord
from cdc.model.schema import TableId
from ingest.capture.groups import Limits
from ingest.capture.leaving import reports_more, settled
from ingest.capture.marks import REPLAYED, SLACK, reached_before
from ingest.capture.observer import Observer
from ingest.capture.pace import Moment, Pace, Stand
from ingest.capture.signals import ONLY_REPORTED, READS, Signals
from ingest.events.log_events import (
    CaughtUp,
    StatementLogged,
    TableAltered,
    TableDescribed,
    TransactionBegan,
    TransactionEnded,
    TransactionLogged,
)
from ingest.events.redecode import waiting
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import ChangeLog, Checkpoint, Record, Seen, SourceServer, Stream
from ingest.records.records import Recorder
from ingest.repair.repairing import RepairingTransactions
from ingest.repair.repairs import name_of
from ingest.repair.rounds import RepairRunner, SharedChunkReader

# What a fact leaves a stream at; any other leaves it inside a transaction.
_STANDS: Mapping[type, Stand] = {TransactionEnded: "between", CaughtUp: "idle"}


class Following(Protocol):
    """What the loop needs of its session."""

    @property
    def source(self) -> SourceServer: ...
    @property
    def log(self) -> ChangeLog: ...
    @property
    def recorder(self) -> Recorder: ...
    @property
    def clock(self) -> Callable[[], float]: ...
    @property
    def stopped(self) -> Callable[[], bool]: ...
    @property
    def observer(self) -> Observer: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def signals(self) -> Signals | None: ...
    @property
    def rereads(self) -> bool: ...
    @property
    def dumps(self) -> bool: ...

    def commit(self, checkpoint: Checkpoint, repairs: RepairRunner, signals: int | None = None) -> Checkpoint:
        """Commit what was appended."""

    def tidy(
        self, checkpoint: Checkpoint, found: Sequence[HistoryRecord], tables: Tables, repairs: RepairRunner
    ) -> Checkpoint:
        """Restate the history where most of it is superfluous."""


class Follower:
    """Follows one stream and groups what it tells into commits; a transaction that waits alone is committed at once."""

    def __init__(
        self, session: Following, stream: Stream, transactions: RepairingTransactions, repairs: RepairRunner
    ) -> None:
        self._session, self._stream = session, stream
        self._transactions, self._repairs = transactions, repairs
        self._snapshots = snapshots = repairs.snapshots
        self._changes, self._refused, self._quarantined = snapshots.rows, snapshots.refused, 0
        busy = bool(snapshots or repairs)
        self._pace = Pace(session.limits, session.clock(), busy=busy, repairs=bool(repairs))
        self._signals: int | None = None
        self._asked = self._learned = 0.0
        self._settling = session.limits.ask
        self._replayed: Position | None = None

    def follow(self, chunks: SharedChunkReader, checkpoint: Checkpoint) -> Checkpoint | None:
        """Until told to stop (None), or until the stream is to be opened anew at the checkpoint returned."""
        try:
            return self._follow(chunks, checkpoint)
        except Fatal:
            if self._transactions.clean and self._pace.group.size:  # what came before the trouble is whole: publish it
                self._commit()
            raise

    def _follow(self, chunks: SharedChunkReader, checkpoint: Checkpoint) -> Checkpoint | None:
        session, clock, pace = self._session, self._session.clock, self._pace
        records_of, snapshots, values = self._transactions.records, self._snapshots, self._transactions.values
        extend = session.log.extend
        group, repairs, now = pace.group, self._repairs, clock()
        self._signals = checkpoint.state.get("signals")
        self._replayed = reached_before(checkpoint)
        for event in self._stream:
            kind = type(event)
            if kind is TransactionBegan or kind is TransactionLogged:
                now = clock()
                group.begin()
            records = records_of(event, int(now * 1000))
            if records:
                records += values.follow(records)
                extend(records)
                group.add(len(records), now)
            if kind is TransactionLogged:
                if group.size and not (group.due(now) or snapshots or repairs or self._replayed):
                    continue  # nothing is to be done yet: what most transactions of a busy source come to
                stand: Stand = "between"
            else:
                stand = _STANDS.get(kind, "inside")
                # a statement is never told apart from its transaction's end: it would be folded twice
                if stand == "inside" and (not group.huge or kind is StatementLogged):
                    continue
                now = clock()
            if stand != "inside":
                self._take_turn(chunks, now, stand)
            stopped = session.stopped()
            if pace.due(self._moment(stand, now, stopped=stopped)):
                checkpoint = self._commit()
                if pace.again(self._moment(stand, now, stopped=stopped)):
                    return checkpoint
            elif stand == "idle":
                session.observer.lag(0.0)
                checkpoint = self._tidy(checkpoint)
            if stopped:
                return None
        return None

    def _moment(self, stand: Stand, now: float, *, stopped: bool) -> Moment:
        repairs = bool(self._repairs)
        return Moment(stand, now, stopped, self._transactions.moved, bool(self._snapshots) or repairs, repairs)

    def _tidy(self, checkpoint: Checkpoint) -> Checkpoint:
        tables, session = self._transactions.tables, self._session
        if tables.written <= SLACK:
            return checkpoint
        return session.tidy(checkpoint, session.log.history(), tables, self._repairs)

    def _take_turn(self, chunks: SharedChunkReader, now: float, stand: Stand) -> None:
        """Between transactions: obey signals, publish chunks, ask for more."""
        session, snapshots, caught_up = self._session, self._snapshots, stand == "idle"
        if self._replayed is not None and self._stream.reached(self._replayed):
            self._transactions.count_on(self._replayed.sequence)
            self._replayed = None
        if session.signals is not None and self._pace.signalled(stand, now):
            self._obey(session.signals)
        if caught_up:
            self._transactions.rest(self._stream)
            self._ask_the_server(now)
        self._learn(now, caught_up=caught_up)
        self._settle(now)
        if not snapshots and not self._repairs:
            return
        stream, place = self._stream, self._transactions.place
        going = set(snapshots.state)
        records = self._repairs.turn(chunks, session.log, lambda: place(stream), stream.reached, int(now * 1000))
        records += snapshots.turn(chunks, lambda: place(stream), stream.reached, int(now * 1000))
        self._repairs.marked(going - set(snapshots.state))
        if failed := chunks.failed():
            self._transactions.tables.cannot_read(failed, now, session.limits.ask)
        if records:
            self._publish(records, now)
        if snapshots.take_moved():
            self._pace.progressed()
            session.observer.snapshot(snapshots.progress())
        if self._repairs.take_moved():
            self._pace.progressed()

    def _settle(self, now: float) -> None:
        """Look after the tables that are left out; those that could not be read are tried again, ever more seldom."""
        session, transactions = self._session, self._transactions
        transactions.tables.try_again(now)
        if transactions.tables.unsettled:
            self._settling = session.limits.ask
        records = settled(
            transactions.tables, self._repairs, session.recorder, session.observer, transactions.number,
            int(now * 1000),
            reads=session.dumps and session.rereads,
        )  # fmt: skip
        if records:
            session.log.extend(records)
            self._pace.group.add(len(records), now)

    def _learn(self, now: float, *, caught_up: bool) -> None:
        """Ask for the foreign keys: at once where the log makes or drops some, and again where no older log is left."""
        repairs, source = self._repairs, self._session.source
        if repairs.asks:
            repairs.set_foreign_keys(source.foreign_keys(), exactly=False)
        elif repairs.unsure and caught_up and now - self._learned >= self._session.limits.ask:
            self._learned = now
            found, head = source.foreign_keys(), source.head()
            repairs.set_foreign_keys(found, exactly=self._stream.reached(head))

    def _obey(self, signals: Signals) -> None:
        found, behind = signals.read(self._signals)
        if behind != self._signals:
            self._signals, self._transactions.moved = behind, True
        for signal in found:
            if signal.type in READS and not self._session.rereads:
                why = ONLY_REPORTED
            elif signal.type == "schema-set":
                why = self._describe(signal.described(self._transactions.tables))
            elif signal.type == "mend-rows":
                why = self._repairs.request_rows(self._transactions.tables.named(signal.tables[0]), signal.keys)
            else:
                why = signal.obey(self._snapshots, self._transactions.tables, self._transactions.number)
            self._session.observer.phase("signal", type=signal.type, tables=list(signal.tables), refused=why)

    def _describe(self, event: TableDescribed) -> str:
        """Somebody says what a table's columns are: publish what was kept of it; the reason why not, or an empty text.

        The stream is opened anew then, since its decoders were made without that knowledge.
        """
        session, transactions, table = self._session, self._transactions, event.table
        name = table.name
        if not transactions.tables.captured(table.database, table.table):
            return f"{name} is not captured"
        records = transactions.report(event)
        self._pace.reopen()
        if name in transactions.kept:
            self._commit()  # what was kept in the open commit must be readable
            dead_letters = waiting(session.log.kept(), table, transactions.kept[name]["sequence"])
            try:
                records += transactions.replay(dead_letters, table, int(session.clock() * 1000))
            except Skippable as error:
                self._publish(records, session.clock())
                return str(error)
        self._publish(records, session.clock())
        return ""

    def _publish(self, records: list[Record], now: float) -> None:
        records += self._transactions.values.follow(records)
        self._session.log.extend(records)
        self._pace.group.add(len(records), now)

    def _ask_the_server(self, now: float) -> None:
        """Nothing waits in the log: what the server shows holds, of tables that the log does not tell whole.

        The columns of tables in quarantine are those of what was kept; a table that is left out may be captured now.
        Seldom where only these wait: a person must do something.
        """
        kept, transactions = self._transactions.kept, self._transactions
        tables = transactions.tables
        if not (kept or tables.passed or tables.asks) or now - self._asked < self._settling:
            return
        self._asked = now
        seen, head = self._session.source.seen(), self._session.source.head()
        if not self._stream.reached(head):
            return
        waiting = {*map(tables.named, kept), *tables.asks}
        tables.show_kinds(seen.kinds)
        news = [self._ask_of(table, seen) for table in sorted(waiting, key=str)]
        ask = self._session.limits.ask
        self._settling = ask if kept or any(news) else min(2 * self._settling, 12 * ask)

    def _ask_of(self, table: TableId, seen: Seen) -> bool:
        """Take what the server shows of a table that its log did not tell; whether there is news."""
        transactions, name = self._transactions, (table.database, table.table)
        tables, found = transactions.tables, seen.catalog.tables.get(name)
        if found is None or not tables.captured(*name):
            return False
        if name in tables.catalog.unknown or name_of(table) in transactions.kept:
            shown = found.schema(table, 0)
            why = self._describe(TableDescribed(shown.table_id, shown.columns, shown.primary_key))
            self._session.observer.phase("quarantine", table=name_of(table), still=why)
            if tables.why_left_out(table) is not None:
                transactions.kept.pop(name_of(table), None)
            elif why:  # what was kept is of other columns
                transactions.kept.pop(name_of(table), None)
                self._repairs.drop(table)
                self._snapshots.start(table, where=tables.where(table), marker=transactions.number())
            return True
        if not reports_more(tables.catalog.tables.get(name), found, table):
            return False
        records = transactions.report(TableAltered(table, found))
        self._session.log.extend(records)
        self._pace.group.add(len(records), now := self._session.clock())
        transactions.moved, self._asked = True, now
        self._pace.reopen()
        return True

    def _commit(self) -> Checkpoint:
        session, transactions = self._session, self._transactions
        checkpoint = transactions.checkpoint(self._stream)
        if transactions.kept or "kept" in checkpoint.state:
            checkpoint = replace(checkpoint, state={**checkpoint.state, "kept": dict(transactions.kept)})
        if self._replayed is None and REPLAYED in checkpoint.state:
            checkpoint = replace(checkpoint, state={k: v for k, v in checkpoint.state.items() if k != REPLAYED})
        checkpoint = session.commit(checkpoint, self._repairs, self._signals)
        changes = transactions.changes + self._snapshots.rows
        session.observer.captured(changes - self._changes)
        self._changes = changes
        refused, quarantined = transactions.refused + self._snapshots.refused, transactions.quarantined
        session.observer.refused(refused - self._refused, quarantined - self._quarantined)
        self._refused, self._quarantined = refused, quarantined
        session.observer.unrepresentable(transactions.values.take_reported())
        session.observer.left_out(transactions.tables.take_left_out())
        for why, table in self._repairs.take_rereads():
            session.observer.phase("table is read again: the log does not tell its rows", why=why, table=table)
        session.observer.repaired(self._repairs.take_counts(), self._repairs.waiting)
        now = session.clock()
        lag = max(0.0, now - checkpoint.ts_ms / 1000) if self._pace.group.size else 0.0
        session.observer.lag(lag)
        self._pace.committed(now, lag, repairs=bool(self._repairs))
        return checkpoint

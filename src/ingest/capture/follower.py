"""The main loop of a session: turn the events of one stream into records; run snapshots and repairs in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdc.model.errors import Fatal, Skippable
from cdc.model.event import Position
from cdc.model.schema import TableId
from ingest.capture.beginning import definitions, unread
from ingest.capture.capture_parts import CaptureParts
from ingest.capture.commits import Commits
from ingest.capture.leaving import differs, update_left_out
from ingest.capture.marks import REPLAYED, SLACK, reached_before
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
from ingest.records.capture_interfaces import FROM, Checkpoint, Record, ServerTables, Stream
from ingest.records.waiting import note, reasons
from ingest.repair.repairing import RepairingTransactions
from ingest.repair.repairs import name_of
from ingest.repair.rounds import RepairRunner, SharedChunkReader

# Looks for the rows of small tables until the log is read again, seconds between them, and how many may be in vain.
_LOOKS, _LOOK, _VAIN = 25, 0.002, 3
# Records of consecutive small transactions that are appended to the log at once, because each call costs time.
_GATHER = 32
# State of the stream after some types of event. After any other event it is inside a transaction.
_STANDS: Mapping[type, Stand] = {TransactionEnded: "between", CaughtUp: "idle"}


class Follower:
    """Follows one stream and groups its transactions into commits.

    While the source is idle, a single transaction is committed at once.
    """

    def __init__(
        self,
        session: CaptureParts,
        commits: Commits,
        stream: Stream,
        transactions: RepairingTransactions,
        repairs: RepairRunner,
    ) -> None:
        self._session, self._commits, self._stream = session, commits, stream
        self._transactions, self._repairs = transactions, repairs
        self._snapshots = snapshots = repairs.snapshots
        self._changes, self._refused, self._quarantined = snapshots.rows, snapshots.refused, 0
        busy = bool(snapshots or repairs)
        self._pace = Pace(session.limits, session.clock(), busy=busy, repairs=bool(repairs))
        self._gathered: list[Record] = []  # of transactions that are processed, to be appended before anything else
        self._torn = False  # the log refused a record, so the position must not be committed
        self._signals: int | None = None
        self._asked = self._learned = 0.0
        self._asked_at: Position | None = None  # an end of the log after the foreign keys were read
        self._settling = session.limits.ask
        self._replayed: Position | None = None
        self._begun: Mapping[str, Any] | None = None  # set until a capture that began earlier reaches the log's end

    def follow(self, chunks: SharedChunkReader, checkpoint: Checkpoint) -> Checkpoint | None:
        """Follow the stream until the session is stopped, or the stream must be reopened.

        Returns the checkpoint at which to reopen it; None if the session is stopped.
        """
        try:
            return self._follow(chunks, checkpoint)
        except Fatal:
            if not self._torn:
                self._append_gathered()
                if self._transactions.clean and self._pace.group.size:  # commit the transactions before the error
                    self._commit()
            raise

    def _follow(self, chunks: SharedChunkReader, checkpoint: Checkpoint) -> Checkpoint | None:
        session, clock, pace = self._session, self._session.clock, self._pace
        records_of, snapshots, values = self._transactions.records, self._snapshots, self._transactions.values
        group, repairs, now = pace.group, self._repairs, clock()
        self._signals = checkpoint.state.get("signals")
        self._replayed, self._begun = reached_before(checkpoint), checkpoint.state.get(FROM)
        for event in self._stream:
            kind = type(event)
            if kind is TransactionLogged:
                now = clock()
                group.begin()
                records = records_of(event, int(now * 1000))
                if records:
                    if values.follows:
                        records += values.follow(records)
                    self._gathered += records
                    group.add(len(records), now)
                if group.size and not (group.due(now) or snapshots or repairs or self._replayed):
                    if len(self._gathered) >= _GATHER:
                        self._append_gathered()
                    continue  # the common case of a busy source: nothing is due yet
                stand: Stand = "between"
                self._append_gathered()
            else:
                self._append_gathered()
                if kind is TransactionBegan:
                    now = clock()
                    group.begin()
                records = records_of(event, int(now * 1000))
                if records:
                    records += values.follow(records)
                    self._append(records)
                    group.add(len(records), now)
                stand = _STANDS.get(kind, "inside")
                # never commit between a statement and its transaction's end: the statement would be applied twice
                if stand == "inside" and (not group.huge or kind is StatementLogged):
                    continue
                now = clock()
            if stand != "inside":
                self._take_turn(chunks, now, stand)
            stopped = session.stopped()
            if pace.due(self._moment(stand, now, stopped=stopped)):
                checkpoint = self._commit()
                if pace.must_reopen(self._moment(stand, now, stopped=stopped)):
                    return checkpoint
            elif stand == "idle":
                session.observer.lag(0.0)
                checkpoint = self._tidy(checkpoint)
            if stopped:
                return None
        self._append_gathered()
        return None

    def _append_gathered(self) -> None:
        if self._gathered:
            records, self._gathered = self._gathered, []
            self._append(records)

    def _append(self, records: list[Record]) -> None:
        self._torn = True
        self._session.log.extend(records)
        self._torn = False

    def _moment(self, stand: Stand, now: float, *, stopped: bool) -> Moment:
        repairs, reads = bool(self._repairs), len(self._snapshots.state)
        many = reads > self._session.limits.many and not repairs
        return Moment(stand, now, stopped, self._transactions.moved, bool(reads) or repairs, repairs, many)

    def _tidy(self, checkpoint: Checkpoint) -> Checkpoint:
        tables, session = self._transactions.tables, self._session
        if tables.written <= SLACK:
            return checkpoint
        return self._commits.tidy(checkpoint, session.log.history(), tables, self._repairs)

    def _take_turn(self, chunks: SharedChunkReader, now: float, stand: Stand) -> None:
        """Execute signals, publish snapshot chunks and corrections, and request more. Runs between two transactions."""
        session, snapshots, caught_up = self._session, self._snapshots, stand == "idle"
        if self._replayed is not None and self._stream.reached(self._replayed):
            self._transactions.count_on(self._replayed.sequence)
            self._replayed = None
        if session.signals is not None and self._pace.reads_signals(stand, now):
            self._execute(session.signals)
        if caught_up:
            self._transactions.rest(self._stream)
            self._check_schemas(now)
        self._learn(now, caught_up=caught_up)
        self._settle(now)
        if self._replayed is None and session.recorder.phases.any_complete:
            self._begin_exact_phases()
        if not snapshots and not self._repairs:
            return
        stream, place = self._stream, self._transactions.place
        records = self._repairs.turn(chunks, session.log, lambda: place(stream), stream.reached, int(now * 1000))
        records += self._read_tables(chunks, now, repeat=caught_up and not self._repairs)
        self._repairs.marked(name for name in snapshots.take_ended() if name not in snapshots.state)
        self._leave_unread(chunks.failed(), now)
        if note(snapshots.waits, chunks.waits(), int(now * 1000)):
            session.observer.waits(reasons(snapshots.waits))
            self._pace.progressed()
        if records:
            self._publish(records, now, live=bool(self._repairs))
        if snapshots.take_moved():
            self._pace.progressed()
            session.observer.snapshot(snapshots.take_progress())
        if self._repairs.take_moved():
            self._pace.progressed()

    def _read_tables(self, chunks: SharedChunkReader, now: float, *, repeat: bool) -> list[Record]:
        """Return the records of rows that snapshots have read. With `repeat`, and many tables left, wait for more for a
        short time: most tables of a server with thousands are read within milliseconds."""
        stream, place, snapshots = self._stream, self._transactions.place, self._snapshots
        many, vain = self._session.limits.many, 0
        records = snapshots.turn(chunks, lambda: place(stream), stream.reached, int(now * 1000))
        for _ in range(_LOOKS if repeat and not snapshots.paused else 0):
            if vain == _VAIN or len(snapshots.state) <= many or len(records) > many:
                break
            before = snapshots.state
            self._session.pause(_LOOK)
            records += snapshots.turn(chunks, lambda: place(stream), stream.reached, int(now * 1000))
            vain = vain + 1 if snapshots.state is before else 0
        return records

    def _leave_unread(self, failed: Mapping[TableId, Skippable], now: float) -> None:
        """Leave out tables that could not be read, until they are tried again. But if only the condition of a signal
        asked for the rows, the signal is refused: it must not stop the capture of its table."""
        session, rest = self._session, dict[TableId, Skippable]()
        for table, error in failed.items():
            if self._snapshots.give_up(table):
                session.observer.phase("signal", type="execute-snapshot", tables=[table.name], refused=str(error))
            else:
                rest[table] = error
        if rest:
            self._transactions.tables.cannot_read(rest, now, session.limits.ask)

    def _settle(self, now: float) -> None:
        """Update which tables are left out. Try tables that could not be read again, at growing intervals."""
        session, transactions = self._session, self._transactions
        transactions.tables.try_again(now)
        if transactions.tables.unsettled:
            self._settling = session.limits.ask
        records = update_left_out(
            transactions.tables, self._repairs, session.recorder, session.observer, transactions.number,
            transactions.next_position, int(now * 1000),
            reads=session.dumps and session.rereads,
        )  # fmt: skip
        if records:
            session.log.extend(records)
            self._pace.group.add(len(records), now)

    def _begin_exact_phases(self) -> None:
        """Begin exact phases once the foreign keys are known that applied to all changes from now on: the log is read
        beyond the moment at which the server was asked for them."""
        repairs = self._repairs
        if repairs.unsure:
            if repairs.asks or self._asked_at is None:
                self._asked_at = None if repairs.asks else self._session.source.head()
                return
            if not self._stream.reached(self._asked_at):
                return
        sequence = self._transactions.place(self._stream).sequence
        repairs.begin_exact_phases(sequence, self._transactions.kept)

    def _learn(self, now: float, *, caught_up: bool) -> None:
        """Read the foreign keys from the server, if DDL may have changed them, and once more when all older log is
        read."""
        repairs, source = self._repairs, self._session.source
        if repairs.asks:
            repairs.set_foreign_keys(source.foreign_keys(), exactly=False)
            self._asked_at = None
        elif repairs.unsure and caught_up and now - self._learned >= self._session.limits.ask:
            self._learned = now
            found, head = source.foreign_keys(), source.head()
            repairs.set_foreign_keys(found, exactly=self._stream.reached(head))

    def _execute(self, signals: Signals) -> None:
        found, following = signals.read(self._signals)
        if following != self._signals:
            self._signals, self._transactions.moved = following, True
        for signal in found:
            if signal.type in READS and not self._session.rereads:
                why = ONLY_REPORTED
            elif signal.type == "schema-set":
                why = self._describe(signal.described(self._transactions.tables))
            elif signal.type == "mend-rows":
                why = self._repairs.request_rows(self._transactions.tables.named(signal.tables[0]), signal.keys)
            else:
                why = signal.execute(self._snapshots, self._transactions.tables, self._transactions.number)
            self._session.observer.phase("signal", type=signal.type, tables=list(signal.tables), refused=why)

    def _describe(self, event: TableDescribed) -> str:
        """Apply a schema that an operator or the server supplied, and publish the table's quarantined rows.

        Returns why the schema is refused, or "". The stream is then reopened, because its decoders use the old schema.
        """
        session, transactions, table = self._session, self._transactions, event.table
        name = table.name
        if not transactions.tables.captured(table.database, table.table):
            return f"{name} is not captured"
        records = transactions.report(event)
        self._pace.reopen()
        if name in transactions.kept:
            self._commit()  # rows quarantined in the open commit must be readable
            dead_letters = waiting(session.log.kept(), table, transactions.kept[name]["sequence"])
            try:
                records += transactions.replay(dead_letters, table, int(session.clock() * 1000))
            except Skippable as error:
                self._publish(records, session.clock())
                return str(error)
        self._publish(records, session.clock())
        return ""

    def _publish(self, records: list[Record], now: float, *, live: bool = True) -> None:
        records += self._transactions.values.follow(records)
        self._append(records)
        self._pace.group.add(len(records), now, live=live)

    def _check_schemas(self, now: float) -> None:
        """Read from the server the schemas of tables in quarantine or left out. The stream must be idle.

        An idle stream means that the server's columns are those of the quarantined rows. If only tables are left that
        an operator must repair, the checks become rare.
        """
        kept, transactions = self._transactions.kept, self._transactions
        tables = transactions.tables
        if now - self._asked < self._settling or not (kept or tables.passed or self._begun or tables.asks):
            return
        self._asked = now
        seen, head = self._session.source.seen(), self._session.source.head()
        if not self._stream.reached(head):
            return
        waiting = {*map(tables.named, kept), *tables.asks}
        tables.show(seen.kinds, None if seen.decides else seen.left_out)
        if self._begun is not None:
            self._arrive(self._begun, seen, now)
            return
        news = [self._adopt_shown(table, seen) for table in sorted(waiting, key=str)]
        ask = self._session.limits.ask
        self._settling = ask if kept or any(news) else min(2 * self._settling, 12 * ask)

    def _arrive(self, begun: Mapping[str, Any], seen: ServerTables, now: float) -> None:
        """Use the server's definitions, and start the snapshots, of a capture that began before its first start."""
        session, transactions, tables = self._session, self._transactions, self._transactions.tables
        unknown, kept = [*tables.catalog.unknown], [*map(tables.named, transactions.kept)]
        tables.postponed, self._begun = frozenset(), None
        tables.decide_again(None)
        self._publish([r for one in definitions(tables, seen.catalog) for r in transactions.report(one)], now)
        for table in unread(begun, tables, unknown, kept):
            transactions.kept.pop(name_of(table), None)
            self._repairs.drop(table)
            if session.dumps:
                self._snapshots.start(table, initial=True, where=tables.where(table), marker=transactions.number())
            else:
                self._snapshots.mark_partial(table)
        session.observer.phase("the stream reached the end of the log", snapshots=len(self._snapshots.state))
        transactions.moved = True
        self._pace.reopen()

    def _adopt_shown(self, table: TableId, seen: ServerTables) -> bool:
        """Apply the server's schema to a table whose schema is not known from the log. Returns True if anything
        changed."""
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
            elif why:  # the columns do not fit the quarantined rows
                transactions.kept.pop(name_of(table), None)
                self._repairs.drop(table)
                self._snapshots.start(table, where=tables.where(table), marker=transactions.number())
            return True
        if not differs(tables.catalog.tables.get(name), found, table):
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
        if self._begun is None and FROM in checkpoint.state:
            checkpoint = replace(checkpoint, state={k: v for k, v in checkpoint.state.items() if k != FROM})
        checkpoint = self._commits.commit(checkpoint, self._repairs, self._signals)
        changes = transactions.changes + self._snapshots.rows
        session.observer.captured(changes - self._changes)
        self._changes = changes
        refused, quarantined = transactions.refused + self._snapshots.refused, transactions.quarantined
        session.observer.refused(refused - self._refused, quarantined - self._quarantined)
        self._refused, self._quarantined = refused, quarantined
        session.observer.unrepresentable(transactions.values.take_reported())
        session.observer.left_out(transactions.tables.take_left_out())
        for why, table in self._repairs.take_rereads():
            session.observer.phase("table is read again: the log does not contain its rows", why=why, table=table)
        session.observer.repaired(self._repairs.take_counts(), self._repairs.waiting)
        now = session.clock()
        lag = max(0.0, now - checkpoint.ts_ms / 1000) if self._pace.group.size else 0.0
        session.observer.lag(lag)
        self._pace.committed(now, lag, repairs=bool(self._repairs))
        return checkpoint

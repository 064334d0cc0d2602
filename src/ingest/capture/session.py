"""One session of capture: read back the committed state, then follow the log and run snapshots until stopped.

Delivery is exactly once: records and the position after them are one commit, and a session begins at the committed
position. So after any end of a session (an error, kill -9), the next one neither loses nor repeats records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from cdc.model.errors import Retriable
from cdc.model.event import Position
from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from cdc.persistent import changed_keys
from cdc.topology.topology import PositionLostAction, SnapshotMode
from ingest.capture.beginning import postponed
from ingest.capture.capture_parts import CaptureParts
from ingest.capture.commits import Commits
from ingest.capture.follower import Follower
from ingest.capture.marks import REPLAYED, Marks, check_replay, reached_before, replayed
from ingest.ddl.catalog import with_former
from ingest.events.left_out import left_out_of
from ingest.events.log_scan import LogStart
from ingest.events.prepared import STATE as PREPARED
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import (
    FROM,
    REREAD,
    Checkpoint,
    LogDamaged,
    LogReplaced,
    PositionLost,
    Recovered,
    ServerTables,
)
from ingest.records.rewritten import rekeyed
from ingest.records.snapshots import Snapshots
from ingest.repair.repairing import RepairingTransactions
from ingest.repair.rounds import RepairRunner, SharedChunkReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(CaptureParts):
    """Parts and settings of one session.

    `tables` returns the tables to capture for the server's tables. `position_lost`: if the source's log does not
    contain the position, `fail`, read all tables again (`resnapshot`), or `auto`: read them again unless the log was
    replaced or no table can be read. `parallel`: how many tables are read at the same time. `cascades`: whether to
    repair rows that foreign keys change. `marks` returns the rule for positions noted in the schema history, without
    marks. `start` returns an older position at which the first session begins, given the server's tables and the log's
    end, or None if it was stopped; without `start` it begins at the end.
    """

    tables: Callable[[ServerTables], Tables]
    mode: SnapshotMode
    position_lost: PositionLostAction = "auto"
    parallel: int = 2
    cascades: Literal["follow", "ignore"] = "follow"
    marks: Callable[[], Marks] = Marks
    start: Callable[[ServerTables, Position, Tables], LogStart | None] | None = None

    def run(self) -> None:
        """Capture until stopped. Raises the errors of source and log; records that are not committed are then
        discarded."""
        try:
            self._run(Commits(self, self.marks()))
        finally:
            self.log.abort()

    def _run(self, commits: Commits) -> None:
        recovered = self.log.recover()
        self.observer.waits({})
        checkpoint = recovered.checkpoint
        seen, head = self._look() if checkpoint is None else (self.source.seen(), None)
        tables = self.tables(seen)
        tables.passed = left_out_of(checkpoint.state) if checkpoint else {}
        if checkpoint is not None:
            tables.postponed = postponed(checkpoint.state)
            if self.start is not None:
                self.observer.phase("the capture has begun before: it resumes at its checkpoint, not at --from")
        commits.marks.restore(tables.source, recovered.history)
        own = {table: schema for table, schema in recovered.schemas.items() if table.source == tables.source}
        self.recorder.published.update(own)
        stored = checkpoint.state.get("snapshots", {}) if checkpoint else {}
        partial = checkpoint.state.get("partial", ()) if checkpoint else ()
        reads = self.dumps and seen.reads
        before = reached_before(checkpoint) if checkpoint else None
        state = checkpoint.state if checkpoint else {}
        self.recorder.phases.load(state, before.sequence if before else None, tables.named)
        self.recorder.truncation_points.load(state, checkpoint.position.sequence if checkpoint else 0)
        snapshots = Snapshots(self.recorder, tables, stored, partial=partial, parallel=self.parallel, reads=reads)
        known = checkpoint.state.get("mends", {}) if checkpoint else {}
        repairs = RepairRunner(self.recorder, tables, snapshots, known, follow=self.cascades == "follow")
        if repairs.unsure:
            repairs.set_foreign_keys(self.source.foreign_keys(), exactly=False)
        if checkpoint is None or not recovered.history:
            checkpoint = self._begin(commits, checkpoint, head, recovered, tables, repairs, seen)
            if checkpoint is None:
                return
        else:
            check_replay(checkpoint, self.source.holds)
            tables.restore(recovered.history, checkpoint.position)
            checkpoint = self._adopt(commits, seen, checkpoint, tables, repairs, recovered)
            checkpoint = commits.tidy(checkpoint, recovered.history, tables, repairs)
            checkpoint = self._add_tables(recovered, checkpoint, tables, snapshots)
        self.observer.left_out(tables.take_left_out())
        del recovered, own, seen, stored, partial, known  # with thousands of tables, hundreds of MiB
        with self.source.chunks() as chunks:
            while True:
                began = commits.last
                try:
                    self._stream(commits, checkpoint, tables, repairs, SharedChunkReader(chunks))
                    return
                except PositionLost as lost:
                    if not self._reads_again(lost, repairs.snapshots):
                        raise
                    if commits.last != began:  # a new session reads the last sequence number back
                        raise Retriable(f"{lost.message}; the session restarts to read all tables again") from lost
                    what = "a part of the log cannot be read" if isinstance(lost, LogDamaged) else "position lost"
                    self.observer.phase(f"{what}: all tables are read again", why=str(lost))
                    checkpoint = self._begin_again(commits, checkpoint, tables, repairs, lost.message)

    def _reads_again(self, lost: PositionLost, snapshots: Snapshots) -> bool:
        """Return whether the loss of the position is repaired by reading all tables again."""
        if self.position_lost == "auto" and not isinstance(lost, LogDamaged):
            return self.rereads and snapshots.reads and not isinstance(lost, LogReplaced)
        return isinstance(lost, LogDamaged) or self.position_lost == "resnapshot"

    def _look(self) -> tuple[ServerTables, Position]:
        """Return the server's tables, and a position in its log at which they are valid."""
        for _ in range(20):
            before, head, after = self.source.seen(), self.source.head(), self.source.seen()
            if before.catalog == after.catalog:
                return after, head
        raise Retriable("the tables were altered repeatedly while the capture started")

    def _begin(
        self,
        commits: Commits,
        checkpoint: Checkpoint | None,
        head: Position | None,
        recovered: Recovered,
        tables: Tables,
        repairs: RepairRunner,
        seen: ServerTables,
    ) -> Checkpoint | None:
        """Begin the capture: store the server's tables as the schema history, and start the snapshot of every table.

        Returns None if it was stopped before."""
        if checkpoint is None and self.start is not None:
            assert head is not None, "a first start has the end of the log"
            begun = self.start(seen, head, tables)
            if begun is None:
                return None
            for name, why in begun.later.items():
                self.observer.phase("the log of a table is skipped: a snapshot reads it", table=".".join(name), why=why)
            tables.postponed = frozenset(begun.later)
            reads = self.mode == "initial"
            state = {FROM: {"later": sorted(map(list, begun.later)), "snapshot": reads}}
            checkpoint = Checkpoint(position=begun.position, snapshot="running", ts_ms=0, state=state)
            seen = replace(seen, catalog=begun.catalog)
        change = tables.begin(seen.catalog)
        self.log.extend(self.recorder.history(change.history))
        shown = (*change.schemas, *change.merged)
        self.log.extend(self.recorder.schema(s) for s in shown if recovered.schemas.get(s.table_id) != s)
        if checkpoint is None:
            assert head is not None, "a first start has the end of the log"
            checkpoint = Checkpoint(position=head, snapshot="running" if self.mode == "initial" else "done", ts_ms=0)
        if FROM in checkpoint.state:
            for schema in change.schemas:
                repairs.snapshots.mark_partial(schema.table_id)
        elif checkpoint.snapshot == "running":
            for schema in change.schemas:
                repairs.snapshots.start(schema.table_id, initial=True, where=tables.where(schema.table_id))
        elif self.mode == "never":
            for schema in change.schemas:
                repairs.snapshots.mark_partial(schema.table_id)
        return commits.commit(checkpoint, repairs)

    def _adopt(
        self,
        commits: Commits,
        seen: ServerTables,
        checkpoint: Checkpoint,
        tables: Tables,
        repairs: RepairRunner,
        recovered: Recovered,
    ) -> Checkpoint:
        """Apply the server's tables, for a source whose log contains a new schema only before the table's next rows.

        A table that was dropped and created again is re-read. So is one that was missing for a time, and one whose key
        was replaced. The rows of a dropped table are deleted.
        """
        known, shown = tables.catalog.tables, seen.catalog.tables
        differing = (
            name for name in changed_keys(known, shown)
            if name in shown and known.get(name) != with_former(known.get(name), shown[name])
        )  # fmt: skip
        names = sorted(name for name in differing if tables.captured(*name))
        gone = [
            name for name in sorted(known)
            if seen.complete and tables.captured(*name) and name not in shown and name not in seen.left_out
        ]  # fmt: skip
        if not seen.decides or not (names or gone):
            return checkpoint
        number = checkpoint.position.sequence + 1
        checkpoint = replace(checkpoint, position=replace(checkpoint.position, sequence=number))
        before = {(table.database, table.table) for table in recovered.schemas}
        again = [
            name for name in names
            if (known[name].identity != shown[name].identity if name in known else seen.complete and name in before)
        ]  # fmt: skip
        catalog = tables.catalog
        for name in names:
            catalog = catalog.with_table(name, shown[name])
        for name in gone:
            self._end_rows(tables, repairs, tables.named(".".join(name)), checkpoint.position)
            catalog = catalog.without_table(name)
        published = {schema.table_id: schema for schema in tables.schemas()}
        change = tables.adopt(catalog, checkpoint.position)
        self.log.extend(self.recorder.history(change.history))
        self.log.extend(self.recorder.schema(schema) for schema in (*change.schemas, *change.merged))
        whys = dict.fromkeys(rekeyed(published, change), "the table's key was replaced: it is read again")
        whys |= {tables.id_of(name): "the table was replaced by a new one: it is read again" for name in again}
        for table, why in sorted(whys.items(), key=str):
            self.observer.phase(why, table=str(table))
            repairs.snapshots.start(table, where=tables.where(table), marker=number)
        return commits.commit(checkpoint, repairs, checkpoint.state.get("signals"))

    def _end_rows(self, tables: Tables, repairs: RepairRunner, table: TableId, position: Position) -> None:
        """Publish a truncation of a dropped or renamed table, so that all consumers delete its rows."""
        self.observer.phase("table is gone: its rows are deleted", table=str(table))
        repairs.drop(table)
        repairs.snapshots.gone(table)
        schema = self.recorder.published.get(table)
        if schema is not None:  # else no row of it was published
            marker = self.recorder.writer(schema).marker(position, position.sequence, int(self.clock() * 1000))
            self.log.append(marker)

    def _add_tables(
        self, recovered: Recovered, checkpoint: Checkpoint, tables: Tables, snapshots: Snapshots
    ) -> Checkpoint:
        """Publish the schemas of tables that were added to the topology, and start their snapshots.

        Tables with lost records, or that were not captured for a time, are read again if possible.
        """
        number = checkpoint.position.sequence + (REPLAYED not in checkpoint.state)
        merged = tables.merged.schemas()
        self.log.extend(self.recorder.schema(s) for t, s in merged.items() if recovered.schemas.get(t) != s)
        for schema in tables.schemas():
            table, where = schema.table_id, tables.where(schema.table_id)
            if table.name in tables.passed:
                continue  # `update_left_out` starts its snapshot when it is supported again
            if table not in recovered.schemas:
                self.log.append(self.recorder.schema(schema))
                if self.dumps:
                    snapshots.start(table, where=where)
                else:
                    snapshots.mark_partial(table)
            elif change_topic(self.recorder.topology, table) not in recovered.behind:
                continue
            elif not (self.dumps and self.rereads):
                self.observer.phase("the log lacks captured records of a table that must not be read", table=str(table))
                snapshots.mark_partial(table)
            else:
                self.observer.phase("the log lacks captured records of a table: it is read again", table=str(table))
                snapshots.start(table, initial=True, where=where, marker=number)
                checkpoint = replace(checkpoint, position=replace(checkpoint.position, sequence=number))
        return checkpoint

    def _begin_again(
        self, commits: Commits, checkpoint: Checkpoint, tables: Tables, repairs: RepairRunner, why: str
    ) -> Checkpoint:
        """Resume at the end of the log and re-read all tables. The marker at the end of each removes rows that no
        longer exist. The checkpoint's state contains the reason until all tables are read."""
        seen, head = self._look()
        self.log.extend(self.recorder.history(commits.marks.forget(lambda _: False)))
        repairs.clear()
        number = replayed(checkpoint)["sequence"] + 1
        # a prepared transaction may be committed in the skipped part of the log; the snapshots contain its rows
        gone = (REPLAYED, PREPARED, FROM)
        tables.postponed = frozenset()
        tables.decide_again(None)
        state = {key: value for key, value in checkpoint.state.items() if key not in gone}
        state[REREAD] = {"why": why, "since_ms": int(self.clock() * 1000)}
        checkpoint = replace(checkpoint, state=state)
        place = replace(head, sequence=number)
        change = tables.adopt(seen.catalog, place)
        self.log.extend(self.recorder.history(change.history))
        self.log.extend(self.recorder.schema(schema) for schema in (*change.schemas, *change.merged))
        for schema in tables.schemas():
            repairs.snapshots.start(schema.table_id, initial=repairs.snapshots.reads, marker=number)
        return commits.commit(replace(checkpoint, position=place, open=None), repairs)

    def _stream(
        self,
        commits: Commits,
        checkpoint: Checkpoint,
        tables: Tables,
        repairs: RepairRunner,
        chunks: SharedChunkReader,
    ) -> None:
        """Follow the log until stopped. Reopen the stream when table reads begin or end."""
        going: Checkpoint | None = checkpoint
        snapshots = repairs.snapshots
        while going is not None:
            position = going.position
            self.observer.resumed(position)
            self.observer.phase(
                "stream", gtid_set=position.gtid_set, sequence=position.sequence, snapshots=len(snapshots.state)
            )
            with self.source.stream(going, tables, busy=bool(snapshots or repairs)) as stream:
                transactions = RepairingTransactions(self.recorder, tables, going, snapshots, repairs)
                follower = Follower(self, commits, stream, transactions, repairs)
                going = follower.follow(chunks, going)

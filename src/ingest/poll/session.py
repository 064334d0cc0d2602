"""One session of polling: read back the committed state, read every table once, then poll for changes until stopped.

Delivery to Kafka is exactly once: rows and the progress after them are one commit (`capture_interfaces.ChangeLog`), and
a session begins at the committed progress. So the next session neither loses nor repeats rows. Each event has
`source.last_update_only`, because polling cannot see overwritten versions. Between two polls, signals are executed and
dumps continue (`dumps`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cdc.model.errors import Fatal
from cdc.model.event import ChangeEvent, Position, SourceInfo
from cdc.model.filters import TableRule, shape_of
from cdc.model.polling import BACKLOG_LIMIT, Poll
from cdc.model.schema import TableId, TableSchema
from ingest.capture.observer import Observer
from ingest.capture.signals import Signals
from ingest.events.log_events import Image, RefusedImage
from ingest.poll.dumps import Dumps
from ingest.poll.poll_interfaces import PollReader
from ingest.poll.window import Window
from ingest.records.capture_interfaces import ChangeLog, Checkpoint, Record
from ingest.records.images import represented, tellable
from ingest.records.records import Recorder

FORMAT = 1


class PollObserver(Observer):
    """Receives further reports of a polling session. The base class ignores them."""

    def polled(self, table: TableId, *, backlog: int, lag: int | None, unassigned: int | None = None) -> None:
        """Report the begin of a poll of one table: the number of rows to read (at most BACKLOG_LIMIT) and the lag.

        `lag` is the table's greatest cursor minus the greatest published one: microseconds, or a number for a feed. It
        is None for an empty table. `unassigned` is the number of rows of a feed without a number; None if unknown.
        """

    def cycle(self) -> None:
        """Report that every table was polled once without an error."""


@dataclass(kw_only=True)
class PollSession:
    """Parts and settings of one session. `clock` returns seconds since 1970; `wait` sleeps unless stopped.

    `rows` is the maximum number of records per commit. `idle_commit` is the interval (seconds) of commits without
    changes, `look_again` that of reading the tables' columns. `sharing` returns how many sources poll the same table
    under one policy: the interval between two polls is longer by this factor. The first poll and dumps do not wait.
    """

    reader: PollReader
    log: ChangeLog
    recorder: Recorder
    poll: Poll
    clock: Callable[[], float]
    stopped: Callable[[], bool]
    wait: Callable[[float], object]
    observer: PollObserver
    connector: str = "mysql"
    rules: Mapping[TableId, TableRule] = field(default_factory=dict)
    signals: Signals | None = None
    rows: int = 5000
    idle_commit: float = 60.0
    look_again: float = 10.0
    sharing: Callable[[], int] = lambda: 1
    _schemas: dict[TableId, TableSchema] = field(default_factory=dict, init=False)
    _left_out: dict[TableId, tuple[tuple[str, str], ...]] = field(default_factory=dict, init=False)
    _windows: dict[TableId, Window] = field(default_factory=dict, init=False)
    _dumps: Dumps = field(init=False)
    _sequence: int = field(default=0, init=False)
    _ts_ms: int = field(default=0, init=False)
    _appended: int = field(default=0, init=False)
    _changes: int = field(default=0, init=False)
    _committed: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._dumps = Dumps(self._number)

    def run(self) -> None:
        """Poll until stopped. Raises the errors of reader and log; records that are not committed are then
        discarded."""
        try:
            self._run()
        finally:
            self.log.abort()

    def _run(self) -> None:
        recovered = self.log.recover()
        self._schemas = dict(recovered.schemas)
        looked = self.clock()
        self._look_at_tables()
        self._recover(recovered.checkpoint)
        self.observer.phase("poll", tables=len(self._windows), sequence=self._sequence)
        self.observer.resumed(Position(file="", pos=0, gtid_set="", sequence=self._sequence))
        while not self.stopped():
            began = self.clock()
            if began - looked >= self.look_again:
                looked = began
                self._look_at_tables()
            self._execute_signals()
            for table in self._windows:
                self._cycle(table)
                if self.stopped():
                    break
            else:
                self.observer.cycle()
                self._dump(began + self._interval)
            if self._appended or self._dumps.moved or self.clock() - self._committed >= self.idle_commit:
                self._commit()
            self.wait(max(0.0, self._interval - (self.clock() - began)))

    @property
    def _interval(self) -> float:
        return self.poll.interval * max(1, self.sharing())

    def _look_at_tables(self) -> None:
        found = self.reader.schemas(self._schemas)
        self.observer.left_out(s for t, s in found.items() if s.left_out and self._left_out.get(t) != s.left_out)
        for table, schema in found.items():
            self._left_out[table] = schema.left_out
            if self._schemas.get(table) != schema:
                self._append(self.recorder.schema(schema))
            self._schemas[table] = schema
            self._windows.setdefault(table, self._window())

    def _window(self) -> Window:
        lag = None if self.poll.mode == "feed" else int(self.poll.lag * 1e6)
        return Window(lag=lag, limit=self.poll.limit)

    def _recover(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            return
        stored = checkpoint.state
        self.recorder.refused.load(stored)
        if stored.get("format") != FORMAT:
            raise Fatal(
                "the log has a position of this source that polling did not write",
                "use a new topology name to poll a source that was captured from its log",
            )
        if stored["cursor"] != self.poll.cursor or stored["mode"] != self.poll.mode:
            raise Fatal(
                f"the source was polled by {stored['cursor']} ({stored['mode']}) until now",
                "restore `cursor:` and `mode:`, or start over under a new topology name",
            )
        self._sequence, self._ts_ms = checkpoint.position.sequence, checkpoint.ts_ms
        for table, window in self._windows.items():
            if str(table) in stored["tables"]:
                window.load(stored["tables"][str(table)])
        if gone := self._dumps.load(stored, self._windows):
            self.observer.phase("dumps are dropped: their tables are no longer polled", tables=gone)

    def _execute_signals(self) -> None:
        if self.signals is None:
            return
        found, following = self.signals.read(self._dumps.signals)
        if following != self._dumps.signals:
            self._dumps.signals, self._dumps.moved = following, True
        for signal in found:
            why = self._dumps.execute(signal, self._windows, int(self.clock() * 1000))
            self.observer.phase("signal", type=signal.type, tables=list(signal.tables), refused=why)

    def _dump(self, until: float) -> None:
        """Read a page of each running dump, then further pages until the next poll is due."""
        while self._dumps.tables:
            for table in self._dumps.tables:
                if self.stopped():
                    return
                self._dump_page(self._schemas[table])
            if self.clock() >= until:
                return

    def _dump_page(self, schema: TableSchema) -> None:
        page = self._dumps.page(self.reader, schema, self.poll.limit)
        now_ms = int(self.clock() * 1000)
        for image in page.images:
            self._report(schema, image, ts_ms=now_ms, snapshot=True)
        if page.given_up:
            self.observer.phase("a dump is cancelled", table=str(schema.table_id), why=page.given_up)
        if page.marker is not None:
            place = Position(file="", pos=0, gtid_set="", sequence=self._sequence)
            self._append(self.recorder.writer(schema).marker(place, page.marker, now_ms))
        self.observer.snapshot(self._dumps.progress())
        if self._appended >= self.rows:
            self._commit()

    def _number(self) -> int:
        self._sequence += 1
        return self._sequence

    def _cycle(self, table: TableId) -> None:
        """Read pages of a table until one is not full."""
        window, schema = self._windows[table], self._schemas[table]
        look, first = self.reader.look(schema), not window.complete
        start = None if window.reached is None else window.reached + 1
        waiting = self.reader.backlog(schema, start, BACKLOG_LIMIT)
        lag = look.newest - window.reached if look.newest is not None and window.reached is not None else None
        unassigned = None
        if self.poll.alarms.unassigned is not None:  # one more query, so only if someone wants to know
            unassigned = self.reader.unassigned(schema, BACKLOG_LIMIT)
        self.observer.polled(table, backlog=waiting, lag=lag, unassigned=unassigned)
        steps = window.steps
        window.begin(look, int(self.clock() * 1e6))
        if window.steps > steps:
            self.observer.phase("the source's clock stepped back: rows are read again", table=str(table))
        while not window.finished:
            if self.stopped():
                return
            for row in window.take(self.reader.page(schema, window.ask())):
                ts_ms = row.cursor // 1000 if self.poll.mode == "updated_at" else int(self.clock() * 1000)
                self._report(schema, row.image, ts_ms=ts_ms, snapshot=first)
                self._ts_ms = max(self._ts_ms, ts_ms)
            if self._appended >= self.rows:
                self._commit()

    def _report(self, schema: TableSchema, read: Image, *, ts_ms: int, snapshot: bool) -> None:
        now_ms = int(self.clock() * 1000)
        image = tellable(self._shaped(schema, read))
        if not isinstance(image, RefusedImage):
            self._number()
        info = SourceInfo(
            table_id=schema.table_id,
            ts_ms=ts_ms,
            server_id=0,
            gtid=None,
            file="",
            pos=0,
            row=0,
            sequence=self._sequence,
            snapshot="true" if snapshot else "false",
            connector=self.connector,
            last_update_only=True,
        )
        if isinstance(image, RefusedImage):
            self._append(self.recorder.dead_letter(image, self.recorder.writer(schema), info, now_ms))
            self.observer.refused(1, 0)
            return
        event = ChangeEvent(op="r", before=None, after=image, source=info, ts_ms=now_ms)
        for record in self.recorder.change(event, schema):
            self._append(record)
        self._changes += 1

    def _shaped(self, schema: TableSchema, image: Image) -> Image:
        """Return the image without ignored columns, with masks, and converted as `unrepresentable` requires."""
        table = schema.table_id
        shape = shape_of(self.rules[table]) if table in self.rules else None
        if isinstance(image, RefusedImage):
            values = dict(image.values)
            if shape is not None:
                shape(values)
            return represented(replace(image, values=values), self.recorder.writer(schema, shape))
        if shape is None:
            return image
        row = dict(image)
        shape(row)
        return row

    def _append(self, record: Record) -> None:
        for each in (record, *self.recorder.refused.follow([record])):
            self.log.append(each)
            self._appended += 1

    def _commit(self) -> None:
        complete = all(window.complete for window in self._windows.values())
        tables: Mapping[str, object] = {str(table): window.dump() for table, window in self._windows.items()}
        polled = {"format": FORMAT, "cursor": self.poll.cursor, "mode": self.poll.mode, "tables": tables}
        checkpoint = Checkpoint(
            position=Position(file="", pos=0, gtid_set="", sequence=self._sequence),
            snapshot="done" if complete else "running",
            ts_ms=self._ts_ms,
            state=self.recorder.refused.state({**polled, **self._dumps.state}),
        )
        self.log.commit(checkpoint)
        self.observer.committed(checkpoint)
        self.observer.captured(self._changes)
        self.observer.unrepresentable(self.recorder.refused.take_reported())
        self._appended = self._changes = 0
        self._dumps.moved = False
        self._committed = self.clock()

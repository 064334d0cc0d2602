"""Simulate the whole way from commit to row: live servers, the real capture that reads them, and the join.

A case is a `joincase.Case` whose history lists what is done to the servers. The seed decides when: the next word is
executed at any step of a reader. Captures are killed, overtaken by a second one, and read chunks of one to three rows.
The join reads what is committed in random batches. Statements on a merged table are executed in some of its databases.
In addition to the words of rows (`put t {row}`, `delete t {key}`, `move t {key} {row}`, `all [words]` in one
transaction) there are:

    start                     capture starts; earlier words are existing data. Without it: at the beginning
    never s, later t          source s has no initial snapshot; table t is not captured before `add t`
    join                      the join starts, anywhere in the log; without it: at the beginning
    truncate t                by TRUNCATE
    swap t [rows]             another table with these rows replaces it, by RENAME
    recreate t                DROP and CREATE
    snapshot t                by a signal
    lost s [words]            done while no process reads; then the server purges its log
    forget t                  the table's topic is deleted and recreated empty
    rewind s                  the capture of source s is set back to an earlier position
    cleaner                   from now on time passes, and Kafka's cleaner runs
    untold s share            this share of source s's transactions is logged partially, or as statements
    foreign t column u d u    the column references u, with these ON DELETE and ON UPDATE actions: CASCADE, SET NULL, …
    quiet                     everything is captured and joined, and all must be equal (also at the end)
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cdc.model.errors import Fatal, Retriable
from cdc.model.naming import change_topic, history_topic, schemas_topic
from cdc.model.schema import TableId
from ingest.capture.groups import Limits
from ingest.capture.marks import Marks, marks_of, rewound
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.capture.signals import Signal
from ingest.events.foreign_keys import ForeignKey
from ingest.events.tables import Tables
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.capture_interfaces import EVERY_PARTITION, ServerTables
from ingest.records.exact_phases import ExactPhases
from ingest.records.records import Recorder
from joins.oracle.oracle import Rows
from tests.joins.altering import table_id
from tests.joins.joincase import PARTITIONS, Case, comparable, merged_column, prepared, routing_of
from tests.joins.servers import Dying, Row, Server, numbers
from tests.joins.topics import LAG, Runs, Topics

Word = list[Any]
DATABASES = tuple(f"n{n}" for n in range(1, 7))  # of a merged table: all values of its column


def run_alive(case: Case, seed: int) -> None:
    """Run a case; AssertionError, with all that reproduces it, if the result differs from DuckDB's over the servers."""
    try:
        World(case, seed).run()
    except Exception as error:
        raise AssertionError(f"seed {seed}\n{case.text()}\n{type(error).__name__}: {error}") from error


def set_back(topology: str, source: str, broker: Broker, chance: random.Random) -> None:
    """Set a capture back to some position that it has stored, as `tailorbird rewind` does."""
    log, recorder = MemoryLog(broker, schemas_topic(topology), history_topic(topology)), Recorder(topology)
    recovered = log.recover()
    marks = marks_of(recovered.history, source)
    if recovered.checkpoint is None or not marks:
        return
    back = rewound(recovered.history, source, recovered.checkpoint, chance.choice(marks))
    log.extend(recorder.history(back.history.gone))
    log.restate(recorder.history(back.history.records))
    log.commit(back.checkpoint)


class Captured:
    """The captured state of one source: its log, its signals, and the tables that are captured by now."""

    def __init__(self, topology: str, server: Server, wanted: set[str], never: bool) -> None:
        self.server, self.wanted, self.never = server, wanted, never
        self.broker, self.signals = Broker(), list[Signal]()
        self.schemas_topic, self._known, self._seen = schemas_topic(topology), set[str](), 0
        self.given, self.back = 0, False  # the latter: it is to be set back

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        """Return the signals, as `signals.Signals` does; the first caller gets all."""
        return self.signals[start or 0 :], len(self.signals)

    @property
    def reading(self) -> bool:
        """Whether a snapshot is running."""
        state: Mapping[str, Any] = (
            self.broker.checkpoints[-1].state if self.broker.checkpoints else {"snapshots": "all"}
        )
        return bool(state.get("snapshots") or {"tables", "again"} & state.get("mends", {}).keys())

    def forget(self, topic: str) -> None:
        """Delete the topic; other records stay published."""
        self.broker.lose(topic)
        self.given, self._seen = len(self.broker.records), 0

    @property
    def done(self) -> bool:
        """Return whether everything that happened is committed, and nothing is left to be read."""
        if not self.broker.checkpoints:
            return False
        newest = self.broker.checkpoints[-1]
        for record in self.broker.records[self._seen :]:
            if record.topic == self.schemas_topic:
                self._known.add(record.key.decode().rpartition(".")[2])
        self._seen = len(self.broker.records)
        return (
            newest.snapshot == "done"
            and not self.reading
            and not self.broker.lost
            and numbers(newest) == len(self.server.log)
            and (not self.signals or newest.state.get("signals") == len(self.signals))
            and self.wanted <= self._known
        )


class World:
    """The servers, captures and the join of one case; `run` executes it."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case, self.chance = case, random.Random(seed)
        self.prepared = prepared(case)
        self.plan = self.prepared.plan
        self.words: list[Word] = [list(word) for word in case.history]
        if ["start"] not in self.words:
            self.words.insert(0, ["start"])
        self.crash = self.chance.choice([0.0, 0.01, 0.04])
        self.steps = self.depth = 0
        self.sources = self._sources()
        self.unseen = {table for n, c in self.sources.items() for table in self._tables(n) if c.never}
        self.unseen |= {word[1] for word in self.words if word[0] == "later"}
        self.routing = routing_of(case)
        self.names = {source.name for source in self.plan.sources}
        self.unseen = {one for one in self.unseen if change_topic(case.name, table_id(one)) in self.names}
        self.joining = ["join"] not in self.words
        self.rewinds = any(word[0] == "rewind" for word in self.words)
        self.moved = any(word[0] in ("never", "swap", "lost") for word in self.words)
        self.topics = Topics(self.plan.topics, PARTITIONS, self.chance)
        self.runs: Runs | None = None
        self.broken = set[str]()  # sources whose capture cannot continue with the history that it has
        self.cleaned = False

    def _sources(self) -> dict[str, Captured]:
        made = {}
        for source in sorted({name.partition(".")[0] for name in self.case.tables}):
            keys = {name.partition(".")[2]: tuple(self.case.tables[name]["key"]) for name in self._tables(source)}
            places = {name.partition(".")[2]: merged_column(self.case, name) for name in self._tables(source)}
            merged = {table: column for table, column in places.items() if column}
            server = Server(source, self.chance, self.step, keys, places=merged, databases=DATABASES if merged else ())
            for name in self._tables(source):
                self._create(server, name)
            server.purged = len(server.log)
            reported = [word[1:] for word in self.words if word[0] == "foreign"]
            server.foreign = [self._foreign_key(*one) for one in reported if one[0].partition(".")[0] == source]
            later = {word[1].partition(".")[2] for word in self.words if word[0] == "later"}
            never = ["never", source] in self.words
            made[source] = Captured(self.case.name, server, set(keys) - later, never)
        return made

    def _foreign_key(self, child: str, column: str, parent: str, on_delete: str, on_update: str) -> ForeignKey:
        return ForeignKey(
            child=table_id(child),
            columns=(column,),
            parent=table_id(parent),
            referenced=tuple(self.case.tables[parent]["key"]),
            on_delete=on_delete,
            on_update=on_update,
        )

    def _forget(self, captured: Captured, table: TableId) -> None:
        """Delete the topic that contains a table's records, and with it those of other tables there."""
        self._fetch()
        topic, server = self.routing.topic_of(table), captured.server
        for one in self._tables(server.name):
            for other in (replace(table_id(one), database=database) for database in server.databases):
                if self.routing.topic_of(other) == topic:
                    captured.forget(change_topic(self.case.name, other))
        self.broken.add(server.name)
        if topic in self.plan.topics:
            self.topics.lose(topic)

    def _tables(self, source: str) -> list[str]:
        return [name for name in self.case.tables if name.partition(".")[0] == source]

    def _create(self, server: Server, name: str, databases: Iterable[str] = (), *, called: str = "") -> None:
        own = name.partition(".")[2]
        columns = {n: t for n, t in self.case.tables[name].items() if n not in ("key", server.places.get(own))}
        texts = [f"{n} {t.removesuffix('?')}{'' if t.endswith('?') else ' NOT NULL'}" for n, t in columns.items()]
        table, key = called or own, ", ".join(server.key_of(own))
        server.execute(f"CREATE TABLE {table} ({', '.join(texts)}, PRIMARY KEY ({key}))", databases=databases)
        server.rows.setdefault(own, {})

    # -- progress of the servers

    def step(self, server: Server) -> None:
        """Execute the next word, and perhaps kill the reader."""
        self.steps += 1
        assert self.steps < 50_000, "capture does not come to an end"
        if self.chance.random() < 0.5:
            self.advance()
        if self.chance.random() < 0.03:
            self.deliver()
        if self.cleaned and self.chance.random() < 0.05 and not any(one.reading for one in self.sources.values()):
            self._fetch()  # a snapshot takes less time than the log is kept
            self.topics.now += self.chance.choice([LAG // 9, LAG // 3, LAG])
        if not self.depth and self.chance.random() < 0.02:
            self.depth += 1
            self.capture(self.chance.choice(list(self.sources)))
            self.depth -= 1
        if server.name in self.broken or self.chance.random() < self.crash:
            raise Retriable("killed")

    @property
    def waiting(self) -> bool:
        """Whether the next word waits until all is equal."""
        return not self.words or self.words[0][0] == "quiet"

    def advance(self) -> None:
        """Execute the next word."""
        if not self.waiting:
            self.do(self.words.pop(0))

    def do(self, word: Word) -> None:
        """Execute a word."""
        name, arguments = word[0], word[1:]
        if name in ("start", "never", "later", "foreign"):
            return
        if name == "join":
            self.joining = True
            return
        if name == "cleaner":
            self.cleaned = True
            return
        if name == "untold":
            self.sources[arguments[0]].server.unknown = arguments[1]
            return
        if name == "rewind":  # by another process, while none captures
            self.sources[arguments[0]].back = True
            self.broken.add(arguments[0])
            return
        if name == "all":
            changes = [change for one in arguments[0] for change in self._changes(one)]
            self._of(arguments[0][0][1]).server.change(changes)
            return
        if name == "lost":
            for one in arguments[1]:
                self.do(one)
            self.sources[arguments[0]].server.purged = len(self.sources[arguments[0]].server.log)
            return
        captured, table = self._of(arguments[0]), arguments[0].partition(".")[2]
        server = captured.server
        if name in ("put", "delete", "move"):
            server.change(self._changes(word))
        elif name == "truncate":
            server.empty(table, some := self._some(arguments[0]))
            server.execute(f"TRUNCATE TABLE {table}", databases=some)
        elif name == "swap":
            self._create(server, arguments[0], some := self._some(arguments[0]), called=f"{table}_new")
            server.empty(table, some)
            new = [row for row in arguments[1] if server.place(table, row).database in some]
            server.rows[table] |= {server.key(table, row): dict(row) for row in new}
            swap = f"RENAME TABLE {table} TO {table}_old, {table}_new TO {table}"
            server.execute(swap, f"DROP TABLE {table}_old", databases=some)
        elif name == "recreate":
            server.execute(f"DROP TABLE {table}", databases=(some := self._some(arguments[0])))
            server.empty(table, some)
            self._create(server, arguments[0], some)
        elif name == "snapshot":
            some = server.databases if arguments[0] in self.unseen else self._some(arguments[0])
            tables = tuple(f"{database}.{table}" for database in some)
            captured.signals.append(Signal(type="execute-snapshot", tables=tables))
            if table in captured.wanted:  # otherwise it is refused
                self.unseen.discard(arguments[0])
        elif name == "forget":
            self._forget(captured, replace(table_id(arguments[0]), database=server.databases[0]))
        elif name == "add":
            captured.wanted = captured.wanted | {table}
            if not captured.never:  # otherwise it is read only if the capture has started before
                self.unseen.discard(arguments[0])
        else:
            raise AssertionError(f"no word {name}")

    def _changes(self, word: Word) -> list[tuple[str, Row | None, Row | None]]:
        """Return the row changes of a word; they are looked up one after the other."""
        name, at, first = word[0], word[1], word[2]
        server, table = self._of(at).server, at.partition(".")[2]
        before = server.rows[table].get(server.key(table, first))
        after = dict(first) if name == "put" else dict(word[3]) if name == "move" else None
        if name != "put" and before is None:
            return []
        if name == "move" and after is not None and server.key(table, after) in server.rows[table]:
            return []
        return [(table, before, after)]

    def _some(self, name: str) -> tuple[str, ...]:
        """Return the databases in which a statement on a merged table is executed; of other tables the only one."""
        every = self._of(name).server.databases
        if len(every) == 1 or self.chance.random() < 0.4:
            return every
        return tuple(self.chance.sample(every, self.chance.randint(1, 3)))

    def _of(self, table: str) -> Captured:
        return self.sources[table.partition(".")[0]]

    # -- capture

    def capture(self, name: str) -> None:
        """Run one session of a source until all is captured, or it is stopped, killed or overtaken."""
        captured, server = self.sources[name], self.sources[name].server
        wanted = frozenset(captured.wanted)
        merged = [one for one in self.routing.merged if one.table_id.source == name and one.table_id.table in wanted]
        self.broken.discard(name)
        if captured.back:
            captured.back = False
            set_back(self.case.name, name, captured.broker, self.chance)
        ticks = iter(range(10**9))

        def tables(seen: ServerTables) -> Tables:
            return Tables(
                name, server.databases, lambda database, table: database in server.databases and table in wanted,
                seen.dialect, merged=merged,
            )  # fmt: skip

        def stopped() -> bool:
            return (captured.done and self.waiting) or self.chance.random() < (0.1 if self.depth else 0.003)

        session = Session(
            source=server,
            log=Dying(
                self.case.name, captured.broker, lambda: name in self.broken or self.chance.random() < self.crash
            ),
            recorder=Recorder(self.case.name, phases=ExactPhases(lambda table: "")),
            tables=tables,
            mode="never" if captured.never else "initial",
            clock=lambda: next(ticks) / 100,
            stopped=stopped,
            observer=Observer(),
            limits=Limits(
                rows=self.chance.randint(1, 6),
                linger=0.05,
                idle_commit=0.05,
                largest=self.chance.choice([1, 2, 1000]),
            ),
            position_lost="resnapshot",
            signals=captured,
            parallel=self.chance.randint(1, 3),
            marks=(lambda: Marks(changes=1)) if self.rewinds else Marks,
        )
        try:
            session.run()
        except Retriable:
            pass
        except Fatal as error:
            if "has taken over" not in str(error):
                raise

    # -- the join

    def deliver(self, *, everything: bool = False) -> None:
        """Let the join read some of what is committed, or all."""
        if self.joining:
            self._fetch()
            if self.runs is None:
                self.runs = Runs(self.plan, self.topics, self.chance)
            self.runs.deliver(everything=everything)

    def _fetch(self) -> None:
        """Read what was committed since, as records of the topics; a marker goes to every partition."""
        for captured in self.sources.values():
            for record in captured.broker.records[captured.given :]:
                topic, key = self.routing.topic(record.topic), self.routing.stored_key(record.topic, record.key)
                if topic in self.plan.topics:
                    everywhere = record.partition == EVERY_PARTITION
                    partitions = range(PARTITIONS) if everywhere else [sum(key) % PARTITIONS]
                    self.topics.publish(topic, key, record.value, partitions)
            captured.given = len(captured.broker.records)

    # -- the whole run

    def run(self) -> None:
        """Run it to the end."""
        while (word := self.words.pop(0)) != ["start"]:
            self.do(word)
        for captured in self.sources.values():
            captured.server.purged = len(captured.server.log)
        attempt = 0
        while True:
            attempt += 1
            if attempt == 150:
                self.crash = 0.0
            assert attempt < 400, "capture does not come to an end"
            undone = [name for name, captured in self.sources.items() if not captured.done]
            if undone or not self.waiting:
                self.capture(self.chance.choice(undone or list(self.sources)))
                continue
            if not self.unseen:
                self.compare()
            if not self.words:
                assert not self.unseen, f"no process has read {self.unseen}"
                return
            self.words.pop(0)
            attempt = 0

    def compare(self) -> None:
        """Check that the stored table is the SELECT over the servers' tables."""
        self.joining = True
        self.deliver(everything=True)
        assert self.runs is not None
        simulation = self.runs.simulation
        tables: dict[TableId, Rows] = {}
        for name in self.case.tables:
            source, _, table = name.partition(".")
            tables[table_id(name)] = dict(self.sources[source].server.rows[table])
        found, expected = comparable(simulation.live(), self.prepared.answer(tables))
        # A row that moved without a record and was then deleted may return from its old key, in part, until the marker:
        # the dead letter is of that time.
        dead_letters = [
            dead_letter for dead_letter in simulation.refused if not (self.moved and "never told" in dead_letter.reason)
        ]
        assert dead_letters == [], f"dead letters: {dead_letters}"
        assert found == expected, f"the table is not the SELECT: {found} instead of {expected}"

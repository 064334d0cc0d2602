"""From commit to row in one simulation: servers that are alive, the real capture beside them, the join behind it.

A case is a `joincase.Case` whose history is what is done to the servers, in order; when, the seed decides: the next
word happens at any seam of whoever reads. Captures are killed, overtaken by a second one, read chunks of one to three
rows; the join reads what is committed in random batches meanwhile. Words, beside those of rows (`put t {row}`,
`delete t {key}`, `move t {key} {row}`, `all [words]` in one transaction):

    start                     capture begins; what stands before it was there already. Without it: at the beginning
    never s, later t          of source s no first snapshot is taken; table t is not captured before `add t`
    join                      the join starts, wherever in the log; without it: at the beginning
    truncate t                by TRUNCATE
    swap t [rows]             another table with these rows takes its place, by RENAME
    recreate t                DROP and CREATE
    snapshot t                by a signal
    lost s [words]            done while nobody reads; then the server purges its log
    quiet                     everything is captured and joined: all must be equal (so it is at the end)
"""

from __future__ import annotations

import itertools
import random
from typing import Any

from cdc.errors import Fatal, Retriable
from cdc.naming import schemas_topic
from cdc.schema import TableId
from ingest.agent.capture import Session
from ingest.agent.groups import Limits
from ingest.agent.memory_log import Broker
from ingest.agent.observer import Observer
from ingest.agent.records import Recorder
from ingest.agent.relations import Relation
from ingest.agent.seams import EVERY_PARTITION, Seen
from ingest.agent.signals import Signal
from ingest.agent.tables import Tables
from joins.oracle import Rows
from joins.records import Message
from joins.simulation import Logged, Simulation
from tests.joins.joincase import PARTITIONS, Case, comparable, prepared, table_id
from tests.joins.quick import evaluator
from tests.joins.servers import Dying, Row, Server, numbers

Word = list[Any]


def run_alive(case: Case, seed: int) -> None:
    """AssertionError, with all that is needed to see it again, where the result is not DuckDB's over the servers."""
    try:
        World(case, seed).run()
    except Exception as error:
        raise AssertionError(f"seed {seed}\n{case.text()}\n{type(error).__name__}: {error}") from error


class Captured:
    """What is captured of one source: its log, its signals, and which tables are wanted by now."""

    def __init__(self, topology: str, server: Server, wanted: set[str], never: bool) -> None:
        self.server, self.wanted, self.never = server, wanted, never
        self.broker, self.signals = Broker(), list[Signal]()
        self.schemas_topic, self._known, self._seen = schemas_topic(topology), set[str](), 0
        self.given = 0

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        """See `signals.Signals`; the first to ask gets all."""
        return self.signals[start or 0 :], len(self.signals)

    @property
    def done(self) -> bool:
        """Whether all that has happened is committed, and nothing is left to be read."""
        if not self.broker.checkpoints:
            return False
        newest = self.broker.checkpoints[-1]
        for record in self.broker.records[self._seen :]:
            if record.topic == self.schemas_topic:
                self._known.add(record.key.decode().rpartition(".")[2])
        self._seen = len(self.broker.records)
        return (
            newest.snapshot == "done"
            and not newest.state.get("snapshots")
            and not {"tables", "again"} & newest.state.get("mends", {}).keys()
            and numbers(newest) == len(self.server.log)
            and (not self.signals or newest.state.get("signals") == len(self.signals))
            and self.wanted <= self._known
        )


class World:
    """Servers, captures and the join of one case; `run` plays it."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case, self.chance = case, random.Random(seed)
        self.prepared = prepared(case)
        self.plan = self.prepared.plan
        self.words: list[Word] = [list(word) for word in case.history]
        if ["start"] not in self.words:
            self.words.insert(0, ["start"])
        self.crash = self.chance.choice([0.0, 0.01, 0.04])
        self.steps = self.depth = 0
        self.now = 1_000_000
        self.sources = self._sources()
        self.unseen = {table for n, c in self.sources.items() for table in self._tables(n) if c.never}
        self.unseen |= {word[1] for word in self.words if word[0] == "later"}
        self.joining = ["join"] not in self.words
        self.moved = any(word[0] in ("never", "swap", "lost") for word in self.words)
        self.simulation: Simulation | None = None
        self.queues: dict[tuple[str, int], list[Logged]] = {}
        self.ends = {(topic, p): 0 for topic in self.plan.topics for p in range(PARTITIONS)}

    def _sources(self) -> dict[str, Captured]:
        made = {}
        for source in sorted({name.partition(".")[0] for name in self.case.tables}):
            keys = {name.partition(".")[2]: tuple(self.case.tables[name]["key"]) for name in self._tables(source)}
            server = Server(source, self.chance, self.step, keys)
            for name in self._tables(source):
                self._create(server, name)
            server.purged = len(server.log)
            later = {word[1].partition(".")[2] for word in self.words if word[0] == "later"}
            never = ["never", source] in self.words
            server.untold = self.chance.choice([0.0, 0.0, 0.1, 0.4])
            server.foreign = self._foreign(source) if self.chance.random() < 0.5 else []
            made[source] = Captured(self.case.name, server, set(keys) - later, never)
        return made

    def _foreign(self, source: str) -> list[Relation]:
        """Foreign keys that change their tables' rows in silence: some of the columns that tables are joined by."""
        found = []
        later = {word[1] for word in self.words if word[0] == "later"}  # nobody sees what is done to them meanwhile
        for child, parent in itertools.permutations(self._tables(source), 2):
            if parent in later:
                continue
            key = self.case.tables[parent]["key"]
            for column, type_ in self.case.tables[child].items():
                referred = column.partition("_")[2]
                if [referred] != key or column in self.case.tables[child]["key"] or self.chance.random() < 0.5:
                    continue
                if type_.removesuffix("?") != self.case.tables[parent][referred].removesuffix("?"):
                    continue
                rules = ["CASCADE", "NO ACTION", *(["SET NULL"] if type_.endswith("?") else [])]
                found.append(
                    Relation(
                        child=self._id(child),
                        columns=(column,),
                        parent=self._id(parent),
                        referenced=(referred,),
                        on_delete=self.chance.choice(rules),
                        on_update=self.chance.choice(rules),
                    )
                )
        return [one for one in found if one.silent]

    @staticmethod
    def _id(name: str) -> TableId:
        source, _, table = name.partition(".")
        return TableId(source=source, database=source, table=table)

    def _tables(self, source: str) -> list[str]:
        return [name for name in self.case.tables if name.partition(".")[0] == source]

    def _create(self, server: Server, name: str, *, called: str = "") -> None:
        columns = {n: t for n, t in self.case.tables[name].items() if n != "key"}
        texts = [f"{n} {t.removesuffix('?')}{'' if t.endswith('?') else ' NOT NULL'}" for n, t in columns.items()]
        table = called or name.partition(".")[2]
        key = ", ".join(self.case.tables[name]["key"])
        server.execute(f"CREATE TABLE {table} ({', '.join(texts)}, PRIMARY KEY ({key}))")
        server.rows.setdefault(table, {})

    # -- the servers go on

    def step(self, server: Server) -> None:
        """Something else happens, and the reader may die."""
        self.steps += 1
        assert self.steps < 50_000, "capture does not come to an end"
        if self.chance.random() < 0.5:
            self.advance()
        if self.chance.random() < 0.03:
            self.deliver()
        if not self.depth and self.chance.random() < 0.02:
            self.depth += 1
            self.capture(self.chance.choice(list(self.sources)))
            self.depth -= 1
        if self.chance.random() < self.crash:
            raise Retriable("killed")

    @property
    def waiting(self) -> bool:
        """Whether nothing happens until all is equal."""
        return not self.words or self.words[0][0] == "quiet"

    def advance(self) -> None:
        """The next word."""
        if not self.waiting:
            self.do(self.words.pop(0))

    def do(self, word: Word) -> None:
        """What a word says."""
        name, arguments = word[0], word[1:]
        if name in ("start", "never", "later"):
            return
        if name == "join":
            self.joining = True
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
            server.rows[table] = {}
            server.execute(f"TRUNCATE TABLE {table}")
        elif name == "swap":
            self._create(server, arguments[0], called=f"{table}_new")
            server.rows[table] = {server.key(table, row): dict(row) for row in arguments[1]}
            del server.rows[f"{table}_new"]
            server.execute(f"RENAME TABLE {table} TO {table}_old, {table}_new TO {table}")
            server.execute(f"DROP TABLE {table}_old")
        elif name == "recreate":
            server.execute(f"DROP TABLE {table}")
            server.rows[table] = {}
            self._create(server, arguments[0])
        elif name == "snapshot":
            captured.signals.append(Signal(type="execute-snapshot", tables=(f"{server.name}.{table}",)))
            if table in captured.wanted:  # else it is refused
                self.unseen.discard(arguments[0])
        elif name == "add":
            captured.wanted = captured.wanted | {table}
            self.unseen.discard(arguments[0])
        else:
            raise AssertionError(f"no word {name}")

    def _changes(self, word: Word) -> list[tuple[str, Row | None, Row | None]]:
        """The row changes of a word; they are looked up one after the other."""
        name, at, first = word[0], word[1], word[2]
        server, table = self._of(at).server, at.partition(".")[2]
        before = server.rows[table].get(server.key(table, first))
        after = dict(first) if name == "put" else dict(word[3]) if name == "move" else None
        if name != "put" and before is None:
            return []
        if name == "move" and after is not None and server.key(table, after) in server.rows[table]:
            return []
        return [(table, before, after)]

    def _of(self, table: str) -> Captured:
        return self.sources[table.partition(".")[0]]

    # -- capture

    def capture(self, name: str) -> None:
        """One session of a source, until all is captured, it is stopped, killed or overtaken."""
        captured, server = self.sources[name], self.sources[name].server
        wanted = frozenset(captured.wanted)
        ticks = iter(range(10**9))

        def tables(seen: Seen) -> Tables:
            return Tables(name, [name], lambda database, table: database == name and table in wanted, seen.dialect)

        def stopped() -> bool:
            return (captured.done and self.waiting) or self.chance.random() < (0.1 if self.depth else 0.003)

        session = Session(
            source=server,
            log=Dying(self.case.name, captured.broker, lambda: self.chance.random() < self.crash),
            recorder=Recorder(self.case.name),
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
        """Batches of what is committed: each partition in its order, the partitions progressing unevenly."""
        if not self.joining:
            return
        self._fetch()
        if self.simulation is None:
            self.simulation = self._joined()
        while any(self.queues.values()):
            taken: list[list[Logged]] = []
            for at, queue in self.queues.items():
                count = self.chance.randint(0, len(queue))
                taken.append(queue[:count])
                self.queues[at] = queue[count:]
            for last in (*[False] * self.chance.choice([0, 0, 0, 1]), True):
                self.now += self.chance.randint(-5, 5)
                self.simulation.run_batch(self._interleaved(taken), now_ms=self.now, commit=last)
            if not everything:
                return

    def _fetch(self) -> None:
        """What was committed since, as records of the topics; a marker goes to every partition."""
        for captured in self.sources.values():
            for record in captured.broker.records[captured.given :]:
                if record.topic not in self.plan.topics:
                    continue
                everywhere = record.partition == EVERY_PARTITION
                for partition in range(PARTITIONS) if everywhere else [sum(record.key) % PARTITIONS]:
                    at = (record.topic, partition)
                    one = Logged(
                        topic=at[0], partition=partition, offset=self.ends[at], key=record.key, value=record.value
                    )
                    self.ends[at] += 1
                    self.queues.setdefault(at, []).append(one)
            captured.given = len(captured.broker.records)

    def _joined(self) -> Simulation:
        """The query starts: some of the log may be so old that compaction has been there."""
        settled: dict[str, dict[int, int]] = {}
        old = self.chance.random() < 0.3
        for (topic, partition), end in self.ends.items():
            settled.setdefault(topic, {})[partition] = self.chance.randint(0, end) if old else 0
            queue = self.queues.get((topic, partition), [])
            clean = self.chance.randint(0, settled[topic][partition])
            newest = {record.key: record.offset for record in queue if record.offset < clean}
            self.queues[topic, partition] = [
                record for record in queue if record.offset >= clean or newest[record.key] == record.offset
            ]
        return Simulation(self.plan, settled, evaluator(), shuffle=self._shuffled)

    def _shuffled(self, messages: list[Message]) -> list[Message]:
        return self.chance.sample(messages, len(messages))

    def _interleaved(self, queues: list[list[Logged]]) -> list[Logged]:
        waiting = [list(queue) for queue in queues if queue]
        result = []
        while waiting:
            result.append(self.chance.choice(waiting).pop(0))
            waiting = [queue for queue in waiting if queue]
        return result

    # -- all of it

    def run(self) -> None:
        """Play it to the end."""
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
                return
            self.words.pop(0)
            attempt = 0

    def compare(self) -> None:
        """The stored table is the SELECT over what the servers hold."""
        self.joining = True
        self.deliver(everything=True)
        simulation = self.simulation
        assert simulation is not None
        tables: dict[TableId, Rows] = {}
        for name in self.case.tables:
            source, _, table = name.partition(".")
            tables[table_id(name)] = dict(self.sources[source].server.rows[table])
        expected, found = comparable(self.prepared.answer(tables)), comparable(simulation.live())
        # A row that moved unseen and was then deleted may come back from its old place, in part, until the marker: the
        # letter is of that moment.
        letters = [letter for letter in simulation.refused if not (self.moved and "never told" in letter.reason)]
        assert letters == [], f"dead letters: {letters}"
        assert found == expected, f"the table is not the SELECT: {found} instead of {expected}"

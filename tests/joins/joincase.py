"""Run a join with a history of its sources and a delivery of the log through the simulation, and compare with DuckDB.

A case is data. Random ones come from `joinrandom`; those that failed once are kept in tests/cases/joins/*.case (YAML).
Words of a history: `put t {row}`, `delete t {key}`, `truncate t`, `snapshot t` with keys of rows that vanished without
a record, and perhaps with rows that changed without one, and `quiet`, where everything must be equal; `altering` has
the words of schemas. `time n`: as `quiet`, and then n seconds pass.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast

import yaml

from cdc.formats.debezium import to_envelope
from cdc.model.event import ChangeEvent, Op, SourceInfo
from cdc.model.naming import Routing, TopicRouting, change_topic
from cdc.model.patterns import MergedTable
from cdc.model.schema import TableId, TableSchema
from cdc.model.types import Canonical
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from joins.evaluate.casting import single
from joins.oracle.oracle import Rows, tables_after
from joins.oracle.sql_oracle import Answer, Oracle
from joins.query.plan import Plan
from joins.runtime.records import Message
from joins.select.compiler import compile_plan
from joins.steps.route import PhaseEndedError
from tests.joins.altering import MERGED, WORDS, altered_columns, altered_row, flat, shown, table_id, versions
from tests.joins.quick import QuickOracle, database, evaluator, functions
from tests.joins.simulation import Logged, Simulation

PARTITIONS = 2
CLOCK_MS = 1_767_484_800_000  # 2026-01-04, one of the times of random rows
Row = dict[str, Canonical]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A test case. `tables`: source.table → column → type (a trailing `?`: nullable), the key columns under `key`.

    `views`: tables of the topology that the query reads, by name with query and row_key. `dead_letters`: the reasons of
    the expected dead letters. `watermarks`: the lateness of its append-only tables. `topics`: `log.topics`.
    """

    tables: dict[str, dict[str, Any]]
    query: str
    row_key: list[str]
    history: list[list[Any]]
    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    delivery: str = "exactly_once"
    dead_letters: list[str] = field(default_factory=list)
    watermarks: dict[str, str] = field(default_factory=dict)
    why: str = ""
    topics: str = ""
    name: str = "law"

    def text(self) -> str:
        """Return its file under tests/cases/joins."""
        value = {k: v for k, v in vars(self).items() if v and k != "name"}
        return yaml.safe_dump(value, sort_keys=False, width=200, default_flow_style=None)

    def topology(self) -> Topology:
        """Return the topology that declares it."""
        sources: dict[str, Any] = {}
        for name in self.tables:
            source, table = name.split(".")
            made = sources.setdefault(source, {
                "type": "mysql", "hostname": "h", "username": "u", "password": "p", "database": source, "tables": {},
                "server_id": len(sources) + 1, "delivery": self.delivery,
            })  # fmt: skip
            late = self.watermarks.get(name)
            made["tables"][table] = {} if late is None else {"append_only": "true", "watermark": late}
            if source == MERGED:
                made["database"] = "*"
                made["tables"][table]["database_column"] = merged_column(self, name)
        wanted = {"query": self.query, "row_key": self.row_key}
        log = {"topics": self.topics or "per_table"}
        value = {"name": self.name, "log": log, "sources": sources, "tables": {"wide": wanted, **self.views}}
        return read_topology(yaml.safe_dump(value, sort_keys=False), file="case.yml", environ={})

    def schemas(self) -> dict[TableId, TableSchema]:
        """Return the schemas of its tables."""
        return versions(self)

    @property
    def altered(self) -> list[list[Any]]:
        """Its words about schemas."""
        return [word for word in self.history if word[0] in (*WORDS, "start")]

    def plan(self) -> Plan:
        """Return its plan."""
        topology = self.topology()
        return compile_plan(topology, topology.tables["wide"], self.schemas())


def read_case(path: Path) -> Case:
    """Read a case from its file."""
    return Case(**yaml.safe_load(path.read_text()))


def merged_column(case: Case, name: str) -> str:
    """Return the key column of a merged table that is the database of each row, or "" for other tables."""
    source, _ = name.split(".")
    key: list[str] = case.tables[name]["key"]
    return key[-1] if source == MERGED else ""


def routing_of(case: Case) -> Routing:
    """Return the topics of a case's tables, as its topology has them."""
    columns = {name: merged_column(case, name) for name in case.tables}
    merged = tuple(MergedTable(table_id=table_id(name), column=column) for name, column in columns.items() if column)
    return Routing(topology=case.name, topics=cast(TopicRouting, case.topics or "per_table"), merged=merged)


def merged_back(tables: Mapping[TableId, Rows], keys: Mapping[TableId, tuple[str, ...]]) -> dict[TableId, Rows]:
    """Return the rows of each table of a case, those of all databases of a merged table together."""
    found: dict[TableId, Rows] = {table: {} for table in keys}
    for table, rows in tables.items():
        found[merged_id(table)] |= rows
    return found


def merged_id(table: TableId) -> TableId:
    """Return the merged table of a table; any other table unchanged."""
    return replace(table, database="*") if table.source == MERGED else table


class _Phases:
    """The exact phases of the tables of a case (`ingest.records.exact_phases`). They begin at random, and end at random
    and wherever capture ends them; with `lasting` only those begin that never end."""

    def __init__(self, case: Case, *, lasting: bool) -> None:
        self.chance, self.lasting = random.Random(case.text()), lasting
        self.none = case.delivery == "at_least_once" or self.chance.random() < 0.2
        self.breaks = [word[1] for word in case.history if word[0] in ("truncate", "snapshot", *WORDS)]
        self.numbers: dict[str, int] = {}  # of the last phase; negative if it has ended

    def before(self, word: str, name: str, sequence: int) -> None:
        """Begin or end a phase of a table, before a word of the history about it. `sequence` is the last number."""
        if word in ("truncate", "snapshot", *WORDS):
            self.breaks.remove(name)
            self.numbers[name] = -abs(self.numbers.get(name, 0))
            return
        last, dice = self.numbers.get(name, 0), self.chance.random()
        if last > 0 and not self.lasting and dice < 0.02:
            self.numbers[name] = -last
        elif last <= 0 and not self.none and sequence > -last and dice < 0.3 and not self._would_end(name):
            self.numbers[name] = sequence

    def _would_end(self, name: str) -> bool:
        return self.lasting and name in self.breaks

    def mark(self, name: str, source: SourceInfo) -> SourceInfo:
        """Return the source of a table's next record."""
        number = self.numbers.get(name, 0)
        return replace(source, exact=max(0, number), inexact_after=max(0, -number))


def events_of(case: Case, *, lasting: bool = True) -> Iterator[list[ChangeEvent]]:
    """Yield the changes that the sources log, up to each `quiet` and to the end; sequences count per source.

    As in capture, a change of a primary key is a delete and an insert, and a change without effect is not logged. With
    `lasting`, exact phases do not end.
    """
    phases = _Phases(case, lasting=lasting)
    rows: dict[str, dict[tuple[Canonical, ...], Row]] = {name: {} for name in case.tables}
    merged = {name: merged_column(case, name) for name in case.tables}
    columns = dict(case.tables)
    sequences = dict.fromkeys((name.split(".")[0] for name in case.tables), 0)
    events: list[ChangeEvent] = []
    logged: list[str] = []

    def log(name: str, op: Op, before: Row | None, after: Row | None, database: str = "") -> None:
        source = name.split(".")[0]
        image = before if after is None else after
        if merged[name]:
            database = str(image[merged[name]]) if image is not None else database
        table = replace(table_id(name), database=database) if merged[name] else table_id(name)
        sequences[source] += 1
        number = len(logged) + 1
        logged.append(name)
        where = SourceInfo(
            table_id=table, ts_ms=1000 + number, server_id=1, gtid=None, file="f", pos=number, row=0,
            sequence=sequences[source],
        )  # fmt: skip
        where = phases.mark(name, where)
        events.append(ChangeEvent(op=op, before=before, after=after, source=where, ts_ms=1000 + number))

    for word, *arguments in case.history:
        if word in ("quiet", "start", "time"):
            yield events
            events = []
            continue
        name = arguments[0]
        phases.before(word, name, sequences[name.split(".")[0]])
        if word in WORDS:
            rows[name] = {at: altered_row(row, columns[name], [word, *arguments]) for at, row in rows[name].items()}
            columns[name] = altered_columns(columns[name], [word, *arguments])
            continue
        known, key = rows[name], case.tables[name]["key"]
        databases = sorted({str(row[merged[name]]) for row in known.values()} if merged[name] else {""})
        if word == "truncate":
            for database in databases[len(databases) // 2 :]:  # of a merged table not all
                log(name, "t", None, None, database)
                for at in [at for at, row in known.items() if not merged[name] or row[merged[name]] == database]:
                    del known[at]
            continue
        if word == "snapshot":
            for lost in arguments[1]:
                known.pop(tuple(lost[column] for column in key), None)
            for row in arguments[2] if len(arguments) > 2 else ():
                known[tuple(row[column] for column in key)] = row
            source = name.split(".")[0]
            for row in known.values():
                log(name, "r", None, row)
                sequences[source] -= 1  # its rows, and its marker, have the sequence of its beginning
            for database in databases:
                log(name, "t", None, None, database)
                sequences[source] -= database != databases[-1]
            continue
        at = tuple(arguments[1][column] for column in key)
        before = known.get(at)
        if word == "delete":
            if before is not None:
                log(name, "d", before, None)
                del known[at]
        elif before != arguments[1]:
            log(name, "c" if before is None else "u", before, arguments[1])
            known[at] = arguments[1]
    yield events


def log_of(case: Case, events: list[ChangeEvent], ends: dict[tuple[str, int], int]) -> list[Logged]:
    """Return records of the topics; a tombstone follows each delete, a TRUNCATE goes to every partition."""
    records, routing = [], routing_of(case)

    def append(name: str, partition: int, key: bytes, value: bytes | None) -> None:
        topic, key = routing.topic(name), routing.stored_key(name, key)
        offset = ends.get((topic, partition), 0)
        ends[topic, partition] = offset + 1
        records.append(Logged(topic=topic, partition=partition, offset=offset, key=key, value=value))

    for event in events:
        name = f"{event.source.table_id.source}.{event.source.table_id.table}"
        topic, hidden = change_topic(case.name, event.source.table_id), merged_column(case, name)
        if hidden:
            before, after = (
                None if image is None else {n: value for n, value in image.items() if n != hidden}
                for image in (event.before, event.after)
            )
            event = replace(event, before=before, after=after)
        value = json.dumps(to_envelope(event, case.name)).encode()
        if event.op == "t":
            for partition in range(PARTITIONS):
                append(topic, partition, b'"truncate"', value)
            continue
        row = event.after if event.after is not None else event.before
        assert row is not None
        key = json.dumps({column: row[column] for column in case.tables[name]["key"] if column != hidden}).encode()
        partition = sum(key) % PARTITIONS
        append(topic, partition, key, value)
        if event.op == "d":
            append(topic, partition, key, None)
    return records


def started(ends: Mapping[tuple[str, int], int]) -> dict[str, dict[int, int]]:
    """Return the end of the log when the query was compiled."""
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), end in ends.items():
        found.setdefault(topic, {})[partition] = end
    return found


def run_case(case: Case, seed: int) -> None:
    """Run a case; AssertionError, with all that reproduces it, if the result differs from DuckDB's.

    `seed` decides how the log is cut into batches, in which order messages meet, which batches run more than once
    because
    the driver died, and what a log without exactly-once delivery repeats, reorders and omits.
    """
    try:
        Run(case, prepared(case), random.Random(seed)).run()
    except (AssertionError, RuntimeError) as error:
        raise AssertionError(f"seed {seed}\n{case.text()}\n{error}") from error


@dataclass(frozen=True, slots=True)
class Prepared:
    """The parts that all histories of one query share."""

    topology: Topology
    plan: Plan
    oracle: Oracle

    def answer(self, tables: Mapping[TableId, Rows], clock_ms: int = 0) -> Answer:
        """Return DuckDB's answer over whole tables, at a time."""
        return self.oracle.answer(self.topology.tables["wide"], self.plan.sink.row_key, tables, clock_ms)


def prepared(case: Case) -> Prepared:
    """Return the topology, plan and oracle of a case; those of the last case if only the history differs."""
    wanted = json.dumps([case.tables, case.query, case.row_key, case.views, case.delivery, case.altered, case.topics])
    if wanted not in _PREPARED:
        _PREPARED.clear()  # one oracle at a time: they share a database
        topology = case.topology()
        plan = compile_plan(topology, topology.tables["wide"], case.schemas())
        schemas = {table: flat(schema) for table, schema in case.schemas().items()}
        _PREPARED[wanted] = Prepared(topology, plan, QuickOracle(topology, schemas, database(), functions()))
    return _PREPARED[wanted]


_PREPARED: dict[str, Prepared] = {}


class Answers(Protocol):
    """A plan, and the answer of its SELECT."""

    @property
    def plan(self) -> Plan: ...

    def answer(self, tables: Mapping[TableId, Rows], clock_ms: int = 0) -> Answer: ...


class Run:
    """Runs a case through the simulation and compares at each `quiet` and at the end."""

    def __init__(self, case: Case, prepared: Answers, chance: random.Random) -> None:
        self.case, self.prepared, self.plan, self.chance = case, prepared, prepared.plan, chance
        self.evaluator = evaluator()
        self.now, self.clock = 1_000_000, CLOCK_MS
        words = [word for word in case.history if word[0] in ("quiet", "start", "time")]
        self.passing = iter([*(1000 * word[1] if word[0] == "time" else 0 for word in words), 0])

    def _shuffled(self, messages: list[Message]) -> list[Message]:
        return self.chance.sample(messages, len(messages))

    def run(self) -> None:
        everything: list[ChangeEvent] = []
        ends: dict[tuple[str, int], int] = {}
        sent: list[Logged] = []
        self.settled: dict[str, dict[int, int]] = {}
        self.delivered: list[Logged] = []
        self.exact_from: dict[str, int] = {}
        reasons = set[str]()
        keys = {table: schema.primary_key for table, schema in self.case.schemas().items()}
        altered = shown(self.case) if self.case.altered else None
        for events in events_of(self.case, lasting=False):
            everything += events
            records = log_of(self.case, events, ends)
            if self.case.delivery == "at_least_once":
                records = self._disturbed(records, sent, ends)
            records = [record for record in records if record.topic in self.plan.topics]
            if not hasattr(self, "simulation"):
                records, self.settled = self._compacted(records)
                self.started = started(ends)
                self._begin()
            self.delivered += records
            while True:
                try:
                    self._deliver(records)
                    break
                except PhaseEndedError as ended:  # the run begins again
                    self._begin_after(ended)
                    records = self.delivered
            in_order = sorted(everything, key=lambda e: (e.source.table_id.source, e.source.sequence))
            every = keys | {e.source.table_id: keys[merged_id(e.source.table_id)] for e in in_order}
            tables = merged_back(tables_after(in_order, every), keys) if altered is None else next(altered)
            expected = self.prepared.answer(tables, self.simulation.clock if self.plan.by_clock else 0)
            found = self.simulation.live()
            reasons = {dead_letter.reason for dead_letter in self.simulation.refused}
            assert reasons <= set(self.case.dead_letters), f"dead letters: {self.simulation.refused}"
            found, expected = comparable(found, expected)
            assert found == expected, "the table (left) is not the SELECT (right)"
            self.clock += round(next(self.passing))
        assert reasons == set(self.case.dead_letters), "not all dead letters that there should be"

    def _begin_after(self, ended: PhaseEndedError) -> None:
        assert self.exact_from.get(ended.name, 0) <= ended.number, "it begins again and again"
        self.exact_from[ended.name] = ended.number + 1
        self._begin()

    def _begin(self) -> None:
        self.simulation = Simulation(
            self.plan, self.settled, self.evaluator,
            ends=self.started, exact_from=self.exact_from, shuffle=self._shuffled, most=2,
        )  # fmt: skip

    def _deliver(self, records: list[Logged]) -> None:
        """Deliver records in batches: each partition in its order, with uneven progress of the partitions."""
        queues: dict[tuple[str, int], list[Logged]] = {}
        if not records:  # a group of everything exists before any record
            self._batch([])
        for record in records:
            queues.setdefault((record.topic, record.partition), []).append(record)
        while queues:
            taken = []
            for at in list(queues):
                count = self.chance.randint(0, len(queues[at]))
                taken.append(queues[at][:count])
                queues[at] = queues[at][count:]
                if not queues[at]:
                    del queues[at]
            for last in (*[False] * self.chance.choice([0, 0, 1, 2]), True):
                self._batch(self._interleaved(taken), commit=last)

    def _batch(self, records: list[Logged], *, commit: bool = True) -> None:
        """Run a batch, at a time of the machine that may be before that of the last one."""
        self.now += self.chance.randint(-5, 5)
        jitter = random.Random(self.now).choice([0, 0, 0, 0, 0, -1, 1, -700, 700]) if self.plan.by_clock else 0
        self.simulation.run_batch(records, now_ms=self.now, commit=commit, clock_ms=self.clock + jitter)

    def _interleaved(self, queues: list[list[Logged]]) -> list[Logged]:
        waiting = [list(queue) for queue in queues if queue]
        result = []
        while waiting:
            queue = self.chance.choice(waiting)
            result.append(queue.pop(0))
            waiting = [queue for queue in waiting if queue]
        return result

    def _compacted(self, records: list[Logged]) -> tuple[list[Logged], dict[str, dict[int, int]]]:
        """Return what the cleaner leaves before the query starts, and the ends of the log at that time.

        It runs from a partition's beginning up to some offset and keeps the newest record of each key there. That may
        be
        an update that changes no used column.
        """
        ends: dict[tuple[str, int], int] = {(t, p): 0 for t in self.plan.topics for p in range(PARTITIONS)}
        for record in records:
            ends[record.topic, record.partition] = record.offset + 1
        if self.case.delivery == "at_least_once":
            return records, {}  # of an event and its late repetition, the cleaner may keep the wrong one
        settled: dict[str, dict[int, int]] = {}
        for (topic, partition), end in ends.items():
            settled.setdefault(topic, {})[partition] = self.chance.choice([0, self.chance.randint(0, end)])
        cleaned = {at: self.chance.randint(0, settled[at[0]][at[1]]) for at in ends}
        newest = {(r.topic, r.partition, r.key): r.offset for r in records if r.offset < cleaned[r.topic, r.partition]}
        kept = [
            record
            for record in records
            if record.offset >= cleaned[record.topic, record.partition]
            or newest[record.topic, record.partition, record.key] == record.offset
        ]
        return kept, settled

    def _disturbed(self, records: list[Logged], sent: list[Logged], ends: dict[tuple[str, int], int]) -> list[Logged]:
        """Return the same changes as in a log without order: repeated, reordered, without before images."""
        sent += records
        again = self.chance.sample(sent, min(len(sent), self.chance.randint(0, 6)))
        mixed = self.chance.sample(records, len(records)) + again
        offsets: dict[tuple[str, int], int] = {}
        result = []
        for record in mixed:
            at = (record.topic, record.partition)
            base = ends[at] if record in sent else 0
            offsets[at] = offsets.get(at, base) + 1
            value = record.value
            if value is not None and self.chance.random() < 0.5:
                value = json.dumps({**json.loads(value), "before": None}).encode()
            result.append(Logged(
                topic=record.topic, partition=record.partition, offset=offsets[at], key=record.key, value=value
            ))  # fmt: skip
        for at, end in offsets.items():
            ends[at] = end + 1
        return result


def comparable(found: Answer, expected: Answer) -> tuple[Answer, Answer]:
    """Return both answers in one order; the first one's doubles are replaced by the second's if they are near
    enough."""
    wanted = {key: expected.get(key, {}) for key in found}
    near = {
        key: {name: _near(value, wanted[key].get(name)) for name, value in row.items()} for key, row in found.items()
    }
    return dict(sorted(near.items(), key=str)), dict(sorted(expected.items(), key=str))


def _near(value: Canonical, wanted: Canonical) -> Canonical:
    if isinstance(value, list) and isinstance(wanted, list) and len(value) == len(wanted):
        pairs = zip(value, wanted, strict=True)
        return [other if _alike(one, other) else one for one, other in pairs]
    return wanted if _alike(value, wanted) else value


def _alike(value: Canonical, wanted: Canonical) -> bool:
    if not isinstance(value, float) or not isinstance(wanted, float):
        return False
    # a FLOAT is published with the few digits that identify it, and DuckDB widens it to a double
    return math.isclose(value, wanted, rel_tol=1e-9) or (math.isfinite(value) and single(value) == wanted)

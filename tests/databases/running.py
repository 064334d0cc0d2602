"""Run random cases on a real server under a capture that starts in the middle of their traffic, and compare the
rows."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from cdc.topology.topology import Topology
from ingest.records.capture_interfaces import Checkpoint
from tests.databases.capturing import ThreadedCapture
from tests.databases.cases import Case, Line
from tests.databases.consumer import consumed
from tests.databases.kinds import Unit
from tests.databases.shown import Cell, ShownColumn, ShownTable, differences

WORKERS = 6
_COMPARED = ("InnoDB", "logged", "")  # "": a table of PostgreSQL that may be left out


class Traffic(Protocol):
    """The generator of one case."""

    def setup(self) -> Unit: ...

    def unit(self) -> Unit: ...

    def ending(self) -> Unit: ...


class Database(Protocol):
    """A database of one kind of server."""

    name: str
    refuses: bool

    def traffic(self, random: Random, prefix: str) -> Traffic: ...

    def topology(self, log: str = "") -> Topology: ...

    def topology_text(self, log: str = "", name: str = "") -> str: ...

    def run(self, case: str, line: Line) -> str: ...

    def end_case(self, case: str) -> None: ...

    def close(self) -> None: ...

    def settle(self) -> None: ...

    def shown(self) -> dict[str, ShownTable]: ...

    def drop(self) -> None: ...

    def end_of_log(self) -> Any: ...

    def reached(self, end: Any, checkpoint: Checkpoint) -> bool: ...

    def canonical(self, column: ShownColumn, value: Any) -> Cell: ...


class DatabaseServer(Protocol):
    """A server that creates databases."""

    name: str

    def database(self) -> Database: ...

    def stop(self) -> None: ...


@dataclass
class Outcome:
    """The findings of a run. `wrong` is by case; "" has those that no single case explains."""

    cases: int = 0
    tables: int = 0
    left_out: int = 0
    rows: int = 0
    accepted: int = 0
    refused: int = 0
    records: int = 0
    deaths: int = 0
    seconds: float = 0
    wrong: dict[str, list[str]] = field(default_factory=dict)
    scripts: dict[str, Case] = field(default_factory=dict)

    def add(self, case: str, what: Sequence[str]) -> None:
        """Add findings."""
        if what:
            self.wrong.setdefault(case, []).extend(what)

    def plus(self, other: Outcome) -> Outcome:
        """Return both outcomes together."""
        names = ("cases", "tables", "left_out", "rows", "accepted", "refused", "records", "deaths", "seconds")
        counts = {name: getattr(self, name) + getattr(other, name) for name in names}
        wrong = {f"{len(self.wrong) + n} {case}": what for n, (case, what) in enumerate(other.wrong.items())}
        return Outcome(**counts, wrong={**self.wrong, **wrong})

    def summary(self) -> str:
        """Summarize it in one line."""
        return (
            f"{self.cases} cases, {self.tables} tables ({self.left_out} left out), {self.accepted} statements "
            f"({self.refused} refused by the server), {self.rows} rows compared, {self.records} records, {self.deaths} "
            f"kills, {len(self.wrong)} failures, {self.seconds:.0f} s"
        )


@dataclass
class _CaseRun:
    """A case during a run; `lines` are those that ran, with their marks."""

    name: str
    traffic: Traffic
    random: Random
    lines: list[Line] = field(default_factory=list)
    accepted: int = 0
    refused: int = 0

    def play(self, database: Database, unit: Unit) -> None:
        ok: bool | None = None
        while True:
            try:
                line = next(unit) if ok is None else unit.send(ok)
            except StopIteration:
                return
            self.lines.append(line)
            ok = database.run(self.name, line) == ""
            self.accepted += ok
            self.refused += not ok


def in_memory(database: Database, random: Random, kills: int) -> ThreadedCapture:
    """Create a capture into a log in memory."""
    return ThreadedCapture(database.topology(), random, kills)


def play(
    server: DatabaseServer, seed: int, cases: Sequence[int], *, units: int = 12, kills: int = 3,
    capture: Callable[[Database, Random, int], ThreadedCapture] = in_memory,
    then: Callable[[ThreadedCapture], None] | None = None,
) -> Outcome:  # fmt: skip
    """Play cases of a seed together: some units each, then the capture starts while they continue.

    `capture` creates the capture; `then` is called while the capture is at the end of the log.
    """
    began, database = time.monotonic(), server.database()
    played = []
    for number in cases:
        random = Random(f"{server.name} {seed} {number}")
        name = f"k{number}_"
        played.append(_CaseRun(name, database.traffic(random, name), random))
    capturing = capture(database, Random(seed), kills)
    outcome = Outcome(cases=len(played))
    try:
        _all(played, lambda one: one.play(database, one.traffic.setup()))
        with ThreadPoolExecutor(WORKERS) as pool:
            first = [pool.submit(_units, one, database, units // 3) for one in played]
            capturing.start()
            for future in first:
                future.result()
            for one in played:
                one.lines.append(Line(0, "", "capture"))
            list(pool.map(lambda one: _units(one, database, units - units // 3), played))
        for one in played:
            one.play(database, one.traffic.ending())
            database.end_case(one.name)
        database.settle()
        compare(database, capturing, outcome, lambda table: table.partition("_")[0] + "_")
        if then is not None and capturing.failed is None:
            then(capturing)
    finally:
        capturing.stop()
        database.close()
    for one in played:
        outcome.accepted += one.accepted
        outcome.refused += one.refused
        outcome.scripts[one.name] = Case(server=server.name, lines=tuple(one.lines))
    outcome.seconds = time.monotonic() - began
    database.drop()
    return outcome


def _units(one: _CaseRun, database: Database, number: int) -> None:
    for _ in range(number):
        one.play(database, one.traffic.unit())


def _all(played: list[_CaseRun], do: Callable[[_CaseRun], None]) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(do, played))


def replay(server: DatabaseServer, case: Case, *, patient: bool = False, seconds: float = 20) -> Outcome:
    """Play the lines of a case again; with `patient` the capture reads everything before a mark, before the lines after
    it run."""
    began, database = time.monotonic(), server.database()
    capturing, outcome = ThreadedCapture(database.topology(), Random(0)), Outcome(cases=1)
    started = False
    try:
        for line in case.lines:
            if line.mark == "capture" and not started:
                capturing.start()
                started = True
            elif line.mark == "kill":
                capturing.kill()
            if line.mark == "caught up" or (line.mark == "capture" and patient):
                end = database.end_of_log()
                capturing.wait(lambda found, end=end: database.reached(end, found), seconds)  # type: ignore[misc]
            elif line.mark is None:
                ok = database.run("case", line) == ""
                outcome.accepted += ok
                outcome.refused += not ok
        if not started:
            capturing.start()
        database.end_case("case")
        database.settle()
        compare(database, capturing, outcome, lambda _: "case", seconds)
    finally:
        capturing.stop()
        database.close()
    outcome.seconds = time.monotonic() - began
    database.drop()
    return outcome


def compare(
    database: Database, capturing: ThreadedCapture, outcome: Outcome, case_of: Callable[[str], str], seconds: float = 45
) -> None:
    """Wait until the capture has caught up, then compare every table with its topic."""
    end = database.end_of_log()
    reached = capturing.wait(lambda found: database.reached(end, found), seconds)
    outcome.deaths = capturing.deaths
    if capturing.failed is not None:
        outcome.add("", ["the source ended: " + "".join(traceback.format_exception(capturing.failed))[-1500:]])
        return
    if not reached:
        last = capturing.broker.checkpoints[-1] if capturing.broker.checkpoints else None
        outcome.add(
            "",
            [f"the capture does not catch up to {end}: {capturing.retried[-2:]}; {capturing.said.lines[-5:]}; {last}"],
        )
        return
    tables, published, passed = database.shown(), capturing.published(), capturing.passed()
    records = capturing.records()
    held = consumed(capturing.topology, records)
    outcome.records = sum(map(len, records.values()))
    for name, table in tables.items():
        outcome.tables += 1
        transactional = table.engine in ("InnoDB", "logged")
        if name not in published or name not in held or name in passed or table.engine not in _COMPARED:
            outcome.left_out += 1
            if table.key and transactional:
                why = passed.get(name, "without closing")
                outcome.add(case_of(name), [f"{name}: left out, although it has the key {table.key}: {why}"])
            continue
        if not table.key:
            continue
        outcome.rows += len(table.rows)
        found = held[name]
        outcome.add(case_of(name), [f"{name}: {one}" for one in found.wrong])
        columns = {column.name for column in found.schema.columns}
        left = {column for column, _ in found.schema.left_out}
        left |= {column.name for column in table.columns if column.column_type == "v"}  # no log has virtual columns
        wrong = differences(table, found.rows, columns, left, database.canonical, refused=database.refuses)
        outcome.add(case_of(name), wrong)
    for name in set(held) - set(tables):
        if held[name].rows:
            what = f"{name} is no more, its topic holds {len(held[name].rows)} rows: {str(held[name].rows[0])[:200]}"
            outcome.add(case_of(name), [what])

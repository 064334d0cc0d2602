"""Random joins by time: append-only tables whose rows arrive out of order, late, repeated, changed; silent sides.

A history is a list of batches, which determine the rows that are late, since the SELECT alone does not define the
table.
`judged` computes the expected rows in the simplest way.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from dataclasses import dataclass
from typing import Any

from cdc.formats.debezium import to_envelope
from cdc.model.event import ChangeEvent, SourceInfo
from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from tests.joins.altering import table_id
from tests.joins.joincase import Case
from tests.joins.simulation import Logged

TABLES: dict[str, dict[str, Any]] = {
    "shop.views": {
        "key": ["id"], "id": "int", "user": "int?", "page": "varchar(9)?", "at": "datetime(6)?", "n": "int?",
    },
    "web.clicks": {"key": ["id", "nr"], "id": "int", "nr": "int", "user": "int?", "at": "timestamp(3)?", "n": "int"},
    "crm.customers": {
        "key": ["id"], "id": "int", "name": "varchar(9)", "country": "varchar(9)?", "nation_id": "int?",
    },
}  # fmt: skip
TIMED = ("shop.views", "web.clicks")
PARTITIONS = 2
FLUSHED = 77  # the n of rows that only move the watermark
START = dt.datetime(2026, 1, 1)
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TimedCase:
    """A query, whose `case` has no history, and its history; `lateness` in seconds by table.

    A word: (table, op, row, former row). The last batch flushes: it has a row of each table, far later than all others,
    so that the join waits for no row any more.
    """

    case: Case
    lateness: dict[str, int]
    batches: list[list[tuple[str, str, Row | None, Row | None]]]


SHAPES = ("plain", "plain", "joined", "grouped", "filtered")


def random_timed(seed: int, shape: str | None = None) -> TimedCase:
    """Return the case of a seed, the same in every run."""
    chance = random.Random(seed)
    shape = shape or chance.choice(SHAPES)
    left, right = chance.choice([TIMED, TIMED[::-1], (TIMED[1], TIMED[1])])
    lateness = {name: chance.choice([0, 30, 600]) for name in TIMED}
    early, late = sorted(chance.choice([-3600, -600, -60, -1, 0, 1, 60, 600, 3600]) for _ in range(2))
    kind = chance.choice(["JOIN", "LEFT JOIN"])
    query, key = _query(chance, shape, kind, left, right, early, late)
    read = {left, right, *(["crm.customers"] if shape == "joined" else [])}
    tables = {name: TABLES[name] for name in sorted(read)}
    case = Case(
        tables=tables,
        query=query,
        row_key=key,
        history=[],
        watermarks={name: f"{seconds}s" for name, seconds in lateness.items() if name in tables},
    )
    return TimedCase(
        case=case,
        lateness=lateness,
        batches=_batches(chance, sorted(tables)),
    )


def timed_of(case: Case, chance: random.Random) -> TimedCase:
    """Return a given query with a random history."""
    lateness = {name: 60 * int(text.removesuffix("m")) for name, text in case.watermarks.items()}
    return TimedCase(case=case, lateness=lateness, batches=_batches(chance, sorted(case.tables)))


def _query(
    chance: random.Random, shape: str, kind: str, left: str, right: str, early: int, late: int
) -> tuple[str, list[str]]:
    between = f"b.at BETWEEN a.at {_added(early)} AND a.at {_added(late)}"
    pairs = f"b.at >= a.at {_added(early)} AND a.at {_added(late)} >= b.at"
    turned = f"a.at BETWEEN b.at {_added(-late)} AND b.at {_added(-early)}"
    on = f"b.user = a.user AND {chance.choice([between, pairs, turned])}"
    keys = [f"{alias}.{column}" for alias, table in (("a", left), ("b", right)) for column in TABLES[table]["key"]]
    items = [*(f"{key} AS k{i}" for i, key in enumerate(keys)), "a.at AS a_at", "b.at AS b_at", "a.n + b.n AS both"]
    row_key = [f"k{i}" for i in range(len(keys))]
    text, where = f"FROM {left} a {kind} {right} b ON {on}", ""
    if shape == "joined":
        text += " LEFT JOIN crm.customers u ON u.id = a.user"
        items.append("u.name AS name")
    if shape == "filtered":
        text += " AND b.n > 1"
        where = " WHERE a.n < 4"
    if shape == "grouped":
        grouped = "SELECT a.n AS n, count(*) AS rows, count(b.id) AS met, max(b.at) AS last"
        return f"{grouped} {text} GROUP BY a.n", ["n"]
    return f"SELECT {', '.join(items)} {text}{where}", row_key


def _added(seconds: int) -> str:
    unit, length = ("MINUTE", 60) if seconds % 60 == 0 and seconds else ("SECOND", 1)
    sign = "+" if seconds >= 0 else "-"
    return f"{sign} INTERVAL {abs(seconds) // length} {unit}"


def _batches(chance: random.Random, tables: list[str]) -> list[list[tuple[str, str, Row | None, Row | None]]]:
    known: dict[str, dict[tuple[Any, ...], Row]] = {name: {} for name in tables}
    batches: list[list[tuple[str, str, Row | None, Row | None]]] = []
    clock = 0.0
    silent = chance.choice([None, None, *tables])
    for _ in range(chance.randint(2, 8)):
        batch: list[tuple[str, str, Row | None, Row | None]] = []
        for _ in range(chance.randint(0, 12)):
            name = chance.choice(tables)
            if name == silent and chance.random() < 0.8:
                continue
            clock += chance.choice([0, 0.000001, 0.5, 20, 100, 300, 1000])
            batch.append(_word(chance, name, known[name], clock))
        batches.append(batch)
    flush = [_flushed(name, 10**6 + i) for i, name in enumerate(tables)]
    return [*batches, [(name, "c", row, None) for name, row in flush], []]


def _word(
    chance: random.Random, name: str, known: dict[tuple[Any, ...], Row], clock: float
) -> tuple[str, str, Row | None, Row | None]:
    dice = chance.random()
    again = chance.choice([*known.values()]) if known else None
    if again is not None and dice < 0.1:
        return (name, chance.choice("cr"), again, None)  # repeated
    if again is not None and dice < 0.15 and name in TIMED:
        return (name, "u", {**again, "n": 99}, again)
    if again is not None and dice < 0.2 and name in TIMED:
        return (name, "d", None, again)
    if dice < 0.22 and name in TIMED:
        return (name, "t", None, None)
    row: Row = {"id": len(known) + 1 if name != "crm.customers" else chance.randint(1, 4)}
    if name == "crm.customers":
        row |= {"name": chance.choice(["x", "y", "z"]), "country": None, "nation_id": None}
        former = known.get((row["id"],))
        known[row["id"],] = row
        return (name, "c" if former is None else "u", row, former)
    if name == "web.clicks":
        row["nr"] = chance.randint(1, 3)
    row["user"] = chance.choice([None, 1, 1, 1, 2, 2])
    if name == "shop.views":
        row["page"] = chance.choice([None, "p", "q"])
    back = chance.choice([0, 0, 0, 1, 25, 40, 500, 900, 5000])
    row["at"] = None if chance.random() < 0.05 else moment(clock - back, 3 if name == "web.clicks" else 6)
    row["n"] = chance.randint(0, 5)
    known[tuple(row[column] for column in TABLES[name]["key"])] = row
    return (name, "c", row, None)


def _flushed(name: str, number: int) -> tuple[str, Row]:
    """Return a row so late that the join waits for no other; it matches nothing."""
    row: Row = {column: None for column in TABLES[name] if column != "key"}
    row["id"] = number
    if name == "crm.customers":
        return name, {**row, "name": "flush"}
    row |= {"user": number, "n": FLUSHED, "at": moment(10.0**7 + number, 0)}
    if "nr" in row:
        row["nr"] = 1
    return name, row


def moment(seconds: float, digits: int) -> str:
    """Return a canonical datetime this many seconds after the start."""
    at = START + dt.timedelta(microseconds=round(seconds * 10**digits) * 10 ** (6 - digits))
    text = at.isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def logged(timed: TimedCase) -> list[list[Logged]]:
    """Return the records of each batch."""
    ends: dict[tuple[str, int], int] = {}
    batches: list[list[Logged]] = []
    count = 0
    for batch in timed.batches:
        records: list[Logged] = []
        for name, op, after, before in batch:
            count += 1
            table = table_id(name)
            row = after if after is not None else before
            partitions, key = range(PARTITIONS), b'"truncate"'
            if row is not None:
                key = json.dumps({column: row[column] for column in TABLES[name]["key"]}).encode()
                partitions = range(sum(key) % PARTITIONS, sum(key) % PARTITIONS + 1)
            for partition in partitions:
                topic = change_topic(timed.case.name, table)
                offset = ends.get((topic, partition), 0)
                ends[topic, partition] = offset + 1
                value = json.dumps(to_envelope(_event(table, op, after, before, count), timed.case.name)).encode()
                records.append(
                    Logged(
                        topic=topic,
                        partition=partition,
                        offset=offset,
                        key=key,
                        value=value,
                    )
                )
        batches.append(records)
    return batches


def _event(table: TableId, op: str, after: Row | None, before: Row | None, number: int) -> ChangeEvent:
    source = SourceInfo(
        table_id=table, ts_ms=number, server_id=1, gtid=None, file="f", pos=number, row=0, sequence=number
    )
    return ChangeEvent(op=op, before=before, after=after, source=source, ts_ms=number)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Judged:
    """The expected outcome of a history: the remaining rows by table, for DuckDB; and the number of dead letters."""

    tables: dict[TableId, dict[tuple[Any, ...], Row]]
    late: int
    faults: int


def judged(timed: TimedCase, names: frozenset[str], watermarks: list[int] | None = None) -> Judged:
    """Return the final tables without late rows; `names`: the join's tables. `watermarks` (ms): those of the
    batches."""
    tables: dict[TableId, dict[tuple[Any, ...], Row]] = {table_id(name): {} for name in timed.case.tables}
    youngest: dict[str, dt.datetime] = {}
    watermark = dt.datetime(1970, 1, 1)
    late = faults = 0
    for number, batch in enumerate(timed.batches):
        if watermarks is not None and batch:
            watermark = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=watermarks[number])
        elif names <= youngest.keys():
            reached = min(_cut(youngest[name]) - dt.timedelta(seconds=timed.lateness[name]) for name in names)
            watermark = max(watermark, reached)
        seen: list[tuple[str, dt.datetime]] = []
        for name, op, after, _ in batch:
            table = tables[table_id(name)]
            if name not in names:
                assert after is not None
                table[tuple(after[column] for column in TABLES[name]["key"])] = after
                continue
            if op not in ("c", "r"):
                faults += 1
                continue
            assert after is not None
            at = None if after["at"] is None else dt.datetime.fromisoformat(after["at"].removesuffix("Z"))
            if at is not None and at > watermark:
                seen.append((name, at))
            elif at is not None and after["user"] is not None:
                late += 1
                continue
            table[tuple(after[column] for column in TABLES[name]["key"])] = after
        for name, at in seen:
            youngest[name] = max(at, youngest.get(name, at))
    return Judged(tables, late, faults)


def _cut(at: dt.datetime) -> dt.datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)

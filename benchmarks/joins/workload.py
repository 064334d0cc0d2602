"""Write change logs in Debezium's JSON for the shapes of the joins benchmark, the same for both engines.

Every table's changes are in files of one partition each, `part-<batch>-<partition>.json`. A key is always in the same
partition, as in a topic of two partitions. The same arguments produce the same bytes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

PARTITIONS: Final = 2
TIME: Final = "at"  # the column with a row's time
PER_SECOND: Final = 20_000  # changes in a second of the rows' time


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: `rows` at the log's end, foreign keys (column → table) and its share of the changes.

    A table that is not `logged` only defines how many ids others can reference.
    """

    name: str
    rows: int
    references: Mapping[str, str]
    share: float
    columns: Mapping[str, str]  # other columns than `id` and the references: name → SQL type
    logged: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A join of the benchmark: its tables (the fact first), the query, the number of changes.

    `filled`: number of facts that exist before the changes proper begin, which then only update and delete. `flink`:
    the query that Flink runs instead, if it cannot run this one.
    """

    name: str
    tables: tuple[Table, ...]
    query: str
    changes: int
    skew: float = 0.0  # share of facts that reference the same dimension row
    filled: int = 0
    row_key: tuple[str, ...] = ("id",)
    flink: str = ""

    @property
    def timed(self) -> bool:
        """Whether the rows have times near the present, so that each run needs a log of its own."""
        return any(TIME in table.columns for table in self.tables)

    @property
    def logged(self) -> tuple[Table, ...]:
        """The tables with a log, which are those that the query reads."""
        return tuple(table for table in self.tables if table.logged)

    def filling(self) -> int:
        """Return the number of changes before the changes proper: 98% of the dimension rows, and `filled` facts."""
        return self.filled + sum(int(table.rows * 0.98) for table in self.logged[1:])


_NAMES = {"name": "string", "city": "string", "pad": "string"}
_FACT = {"amount": "bigint", "status": "string", "pad": "string"}


def shapes(scale: float) -> dict[str, Shape]:
    """Return the shapes by name.

    There are four with two million changes each at `scale` 1.0; a star whose facts all exist before its changes begin,
    so that a change causes equally many rows at any time; and two that differ in tables ten times larger.
    """
    changes = int(2_000_000 * scale)

    def size(rows: int) -> int:
        return max(50, int(rows * scale))

    def dimension(name: str, rows: int, share: float, **references: str) -> Table:
        return Table(name=name, rows=rows, references=references, share=share, columns=_NAMES)

    def fact(**references: str) -> Table:
        return Table(name="orders", rows=0, references=references, share=0.0, columns=_FACT)

    customers = dimension("customers", size(200_000), 0.1)
    left = "LEFT JOIN bench.{0} {1} ON {1}.id = {2}".format
    own = "o.id, o.customers_id, o.amount, o.status, o.pad"
    n1 = f"SELECT {own}, c.name AS c_name, c.city AS c_city, c.pad AS c_pad FROM bench.orders o " + left(
        "customers", "c", "o.customers_id"
    )
    star = (
        f"SELECT {own}, c.name AS c_name, c.pad AS c_pad, p.name AS p_name, s.name AS s_name FROM bench.orders o "
        + " ".join(
            [
                left("customers", "c", "o.customers_id"),
                left("products", "p", "o.products_id"),
                left("shops", "s", "o.shops_id"),
            ]
        )
    )
    snowflake = (
        f"SELECT {own}, c.name AS c_name, c.pad AS c_pad, n.name AS n_name, r.name AS r_name FROM bench.orders o "
        + " ".join(
            [
                left("customers", "c", "o.customers_id"),
                left("nations", "n", "c.nations_id"),
                left("regions", "r", "n.regions_id"),
            ]
        )
    )
    star_tables = (
        fact(customers_id="customers", products_id="products", shops_id="shops"),
        customers,
        dimension("products", size(100_000), 0.05),
        dimension("shops", size(20_000), 0.01),
    )
    rows = size(200_000)
    large = dimension("customers", 10 * rows, 0.5)
    return {
        "growth1": Shape(
            name="growth1",
            tables=(fact(customers_id="customers"), dimension("customers", rows, 0.5)),
            query=n1,
            changes=changes // 2 + 2 * rows,
            filled=rows,
        ),
        "growth10": Shape(
            name="growth10",
            tables=(fact(customers_id="customers"), large),
            query=n1,
            changes=changes // 2 + 20 * rows,
            filled=10 * rows,
        ),
        "n1": Shape(name="n1", tables=(fact(customers_id="customers"), customers), query=n1, changes=changes),
        "star": Shape(
            name="star",
            tables=star_tables,
            query=star,
            changes=changes,
        ),
        "steady": Shape(
            name="steady",
            tables=star_tables,
            query=star,
            changes=changes // 2 + size(920_000),
            filled=size(600_000),
        ),
        "snowflake": Shape(
            name="snowflake",
            tables=(
                fact(customers_id="customers"),
                dimension("customers", size(200_000), 0.1, nations_id="nations"),
                dimension("nations", size(20_000), 0.001, regions_id="regions"),
                dimension("regions", size(2_000), 0.0001),
            ),
            query=snowflake,
            changes=changes,
        ),
        "hot": Shape(
            name="hot", tables=(fact(customers_id="customers"), customers), query=n1, changes=changes, skew=0.1
        ),
    }


def write_log(shape: Shape, folder: Path, per_batch: Callable[[int], int], start_ms: int = 0) -> int:
    """Write a shape's log; return the number of changes.

    Batch n, counted from 0, has `per_batch(n)` changes of all tables together, and is one file per table and
    partition. `start_ms` is the time of the first row.
    """
    log = _Log(shape, random.Random(7), start_ms)
    count, batch = 0, 0
    changes = log.changes()
    while True:
        files: dict[tuple[str, int], list[str]] = {}
        for table, key, line in islice(changes, per_batch(batch)):
            files.setdefault((table, key % PARTITIONS), []).append(line)
            count += 1
        if not files:
            return count
        for each in shape.logged:
            for partition in range(PARTITIONS):
                path = folder / each.name / f"part-{batch:05d}-{partition}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(files.get((each.name, partition), ())))
                os.utime(path, (1_700_000_000 + batch, 1_700_000_000 + batch))
        batch += 1


class _Log:
    def __init__(self, shape: Shape, rng: random.Random, start_ms: int = 0) -> None:
        self.shape, self.rng, self.sequence, self.start_ms = shape, rng, 0, start_ms
        self.rows: dict[str, dict[int, dict[str, int]]] = {table.name: {} for table in shape.tables}
        self.live: list[int] = []

    def changes(self) -> Iterator[tuple[str, int, str]]:
        """Yield (table, id, envelope): first 98% of the dimension rows, then changes of facts and dimensions."""
        shape, rng = self.shape, self.rng
        fact, *dimensions = shape.logged
        for table in reversed(dimensions):
            for key in range(int(table.rows * 0.98)):
                yield self.put(table, key)
        orders = 0
        for _ in range(shape.filled):
            self.live.append(orders)
            yield self.put(fact, orders)
            orders += 1
        for _ in range(shape.changes - shape.filling()):
            draw = rng.random()
            for table in dimensions:
                draw -= table.share
                if draw < 0:
                    key = 0 if shape.skew and rng.random() < 0.001 else rng.randrange(table.rows)
                    gone = key in self.rows[table.name] and rng.random() < 0.02
                    yield self.delete(table, key) if gone else self.put(table, key)
                    break
            else:
                pick = rng.random()
                if (pick < 0.65 and not shape.filled) or not self.live:
                    self.live.append(orders)
                    yield self.put(fact, orders)
                    orders += 1
                    continue
                at = rng.randrange(len(self.live))
                key = self.live[at]
                if 0.65 < pick < 0.67:
                    self.live[at] = self.live[-1]
                    self.live.pop()
                    yield self.delete(fact, key)
                else:
                    yield self.put(fact, key)

    def put(self, table: Table, key: int) -> tuple[str, int, str]:
        before = self.rows[table.name].get(key)
        self.sequence += 1
        after = {"version": self.sequence}
        for column, referenced in table.references.items():
            if before is not None and self.rng.random() > 0.15:
                after[column] = before[column]
            elif self.rng.random() < self.shape.skew:
                after[column] = 0
            else:
                rows = next(t.rows for t in self.shape.tables if t.name == referenced)
                after[column] = self.rng.randrange(rows)
        self.rows[table.name][key] = after
        return self.envelope(table, key, "c" if before is None else "u", before, after)

    def delete(self, table: Table, key: int) -> tuple[str, int, str]:
        self.sequence += 1
        return self.envelope(table, key, "d", self.rows[table.name].pop(key), None)

    def envelope(
        self, table: Table, key: int, op: str, before: dict[str, int] | None, after: dict[str, int] | None
    ) -> tuple[str, int, str]:
        sides = [_image(table, key, side, self.start_ms) for side in (before, after)]
        # `exact`: as capture marks the changes after a snapshot, because each `before` is the row's previous image
        line = (
            f'{{"before":{sides[0]},"after":{sides[1]},"source":{{"version":"bench","connector":"mysql","name":"bench",'
            f'"ts_ms":{1_700_000_000_000 + self.sequence},"snapshot":"false","db":"bench","table":"{table.name}",'
            f'"server_id":1,'
            f'"gtid":null,"file":"binlog.000001","pos":{self.sequence},"exact":1,"row":0,"sequence":"{self.sequence}"}},'
            f'"op":"{op}","ts_ms":{1_700_000_000_001 + self.sequence},"transaction":null}}\n'
        )
        return table.name, key, line


_PAD: Final = "x" * 60
# column → its JSON in a version of a row
_VALUES: Final[Mapping[str, Callable[[Table, int, int], str]]] = {
    "amount": lambda table, key, version: str(version),
    "status": lambda table, key, version: f'"st{version % 7}"',
    "name": lambda table, key, version: f'"{table.name}-{key}-{version}"',
    "city": lambda table, key, version: f'"city-{version % 997}"',
    "pad": lambda table, key, version: f'"{_PAD}"',
    "price": lambda table, key, version: str(version % 10_007),
    "moment": lambda table, key, version: str(version),
    "category": lambda table, key, version: f'"category-{key % 20}"',
    "opened": lambda table, key, version: str(key * 5),
    "expires": lambda table, key, version: str(key * 5 + 1_000_000 + version % 1000),
}


def _image(table: Table, key: int, row: dict[str, int] | None, start_ms: int) -> str:
    if row is None:
        return "null"
    version = row["version"]
    references = "".join(f'"{column}":{row[column]},' for column in table.references)
    values = {
        column: _time(version, start_ms) if column == TIME else _VALUES[column](table, key, version)
        for column in table.columns
    }
    columns = ",".join(f'"{column}":{value}' for column, value in values.items())
    return f'{{"id":{key},{references}{columns}}}'


def _time(version: int, start_ms: int) -> str:
    at = datetime.fromtimestamp((start_ms + 1000 * version // PER_SECOND) / 1000, UTC)
    return f'"{at.replace(tzinfo=None).isoformat(timespec="milliseconds")}Z"'

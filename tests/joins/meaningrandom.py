"""Random queries over extreme values, the tables that the join makes of them, and the source rows that `verify`
reads."""

from __future__ import annotations

import base64
import datetime as dt
import random
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from cdc.model.errors import TopologyError
from cdc.model.schema import TableId
from cdc.model.types import Canonical, LogicalType
from joins.evaluate.evaluating import prepared
from joins.evaluate.stored import to_canonical, to_native
from joins.evaluate.unknown import UnknownValue
from joins.query.nodes import Expression, Node
from joins.query.plan import Finish, Plan
from joins.query.value_types import duration_of, family
from joins.runtime.records import Values
from tailorbird.verify.mysql_tables import SourceTable
from tests.joins import meanings
from tests.joins.altering import table_id
from tests.joins.joincase import Case, events_of, log_of
from tests.joins.simulation import Simulation

_AGGREGATES = ["count({})", "count(DISTINCT {})", "sum({})", "avg({})", "min({})", "max({})", "sum(DISTINCT {})",
               "collect_list({})", "collect_set({})",
               "max_by(id, {})", "min_by(id, {})", "count_if({} IS NULL)", "mode({})",
               "median({})", "stddev({})", "stddev_pop({})", "variance({})", "var_pop({})",
               "percentile({}, 0.4)", "percentile_approx({}, 0.4)", "string_agg({}, ',')"]  # fmt: skip
_TRIES = 60


class Evaluator:
    """Evaluates a plan's expressions by `joins.evaluate`; unknown values are NULL, and are not compared."""

    def holds(self, condition: Expression, node: Node, rows: Sequence[Values]) -> list[bool]:
        """Return which rows of a node satisfy its filter."""
        return [self._value(condition.sql, node.types, row) is True for row in rows]

    def finish(self, finish: Finish, rows: Sequence[Values]) -> list[tuple[Values, bool]]:
        """Return, per whole row, its values followed by the computed ones, and whether it satisfies WHERE."""
        found = []
        for row in rows:
            computed = [
                None if (value := self._value(e.sql, finish.types, row)) is None else _canonical(e.type, value)
                for e in finish.computed
            ]
            where = finish.where is None or self._value(finish.where.sql, finish.types, row) is True
            found.append(([*row, *computed], where))
        return found

    def _value(self, sql: str, types: Sequence[LogicalType], row: Values) -> Any:
        try:
            return prepared(sql, tuple(types)).of([to_native(t, v) for t, v in zip(types, row, strict=False)])
        except UnknownValue:
            return None


def _canonical(type_: LogicalType, value: Any) -> Canonical:
    try:
        return to_canonical(type_, value)
    except UnknownValue:
        return None


@cache
def _expressions() -> tuple[list[str], list[str]]:
    """Return texts of expressions, and those that are conditions."""
    found = meanings.calls(5)
    found = {text: typed for text, typed in found.items() if not re.search(r"\bpt\b", text)}
    return list(found), [text for text, typed in found.items() if typed.type.kind == "bool"]


def random_query(seed: int) -> tuple[Case, Plan]:
    """Return a query of a seed that compiles, and its plan."""
    chance = random.Random(seed)
    texts, conditions = _expressions()
    for _ in range(_TRIES):
        case = _case(chance, texts, conditions)
        try:
            return case, case.plan()
        except TopologyError:
            continue
    raise AssertionError(f"seed {seed} makes no query")


def _case(chance: random.Random, texts: list[str], conditions: list[str]) -> Case:
    one, two, three = chance.choices(texts, k=3)
    where = f" WHERE {chance.choice(conditions)}" if chance.random() < 0.5 else ""
    key = ["id"]
    match chance.randrange(5):
        case 0 | 1:
            query = f"SELECT id, {one} AS e0, {two} AS e1, {three} AS e2 FROM shop.t{where}"
        case 2:
            calls = [chance.choice(_AGGREGATES).format(text) for text in (two, three)]
            having = " HAVING count(*) > 1" if chance.random() < 0.3 else ""
            query = (
                f"SELECT {one} AS k, count(*) AS c, {calls[0]} AS a0, {calls[1]} AS a1 FROM shop.t{where} "
                f"GROUP BY {one}{having}"
            )
            key = ["k"]
        case 3:
            query = (
                f"SELECT t.id, {one} AS e0, u.word, {two} AS e1 FROM shop.t t "
                f"LEFT JOIN shop.u u ON u.uid = t.n AND u.amount < t.d{where}"
            )
        case _:
            query = (
                f"SELECT x.id, x.e0, x.e1 FROM (SELECT id, {one} AS e0, {two} AS e1 FROM shop.t{where}) x "
                f"WHERE x.e0 IS NOT NULL"
            )
    # geometries have another form in the log, and tests of their own
    columns = {name: f"{type_}?" for name, type_ in meanings.TYPES.items() if name != "pt"}
    other = {"key": ["uid"], "uid": "int", "word": "varchar(9)?", "amount": "decimal(6,2)?"}
    rows = [dict(zip(("id", *columns), (n, *row), strict=True)) for n, row in enumerate(_rows(chance))]
    history = [["put", "shop.t", row] for row in rows]
    history += [
        [
            "put",
            "shop.u",
            {"uid": uid, "word": chance.choice(["ß", "x", None]), "amount": chance.choice(["0.50", "2.50", None])},
        ]
        for uid in (0, 1, 2, 3, -1)
    ]
    tables: dict[str, dict[str, Any]] = {"shop.t": {"key": ["id"], "id": "int", **columns}, "shop.u": other}
    return Case(tables=tables, query=query, row_key=key, history=history)


def _rows(chance: random.Random) -> list[list[Canonical]]:
    known = _every_row()
    return chance.sample(known, 12)


@cache
def _every_row() -> list[list[Canonical]]:
    place = list(meanings.TYPES).index("pt")
    return [row[:place] + row[place + 1 :] for row in meanings.rows(200, 7)]


def joined(case: Case, plan: Plan) -> Simulation:
    """Return the join's result for a case's history."""
    ends: dict[tuple[str, int], int] = {}
    records = [one for events in events_of(case) for one in log_of(case, events, ends) if one.topic in plan.topics]
    simulation = Simulation(plan, {}, Evaluator(), ends={})
    simulation.run_batch(records, now_ms=1_000_000)
    return simulation


def read(case: Case) -> dict[TableId, SourceTable]:
    """Return the tables of a case as MySQL's driver returns them."""
    found: dict[TableId, SourceTable] = {}
    for table, schema in case.schemas().items():
        rows = [row for word, name, row in case.history if word == "put" and table_id(name) == table]
        columns = tuple((column.name, column.type) for column in schema.columns)
        values = [tuple(_driven(type_, row[name]) for name, type_ in columns) for row in rows]
        found[table] = SourceTable(columns=columns, rows=values, schema=schema)
    return found


def _driven(type_: LogicalType, value: Canonical) -> Any:
    if value is None:
        return None
    text = str(value)
    if type_.kind == "decimal":
        return Decimal(text)
    if type_.kind == "time":
        return dt.timedelta(microseconds=duration_of(text) or 0)
    match family(type_):
        case "date":
            return dt.date.fromisoformat(text.removesuffix("Z"))
        case "moment":
            return dt.datetime.fromisoformat(text.removesuffix("Z"))
        case "bytes":
            return base64.b64decode(text)
        case "bool":
            return int(bool(value))
    return value

"""Random queries with conditions on the time, and histories in which time passes, also without a change."""

from __future__ import annotations

import random
from typing import Any

from tests.joins.joincase import Case, Row
from tests.joins.joinrandom import value_of

TABLES: dict[str, dict[str, Any]] = {
    "shop.orders": {
        "key": ["id"], "id": "int", "customer_id": "int?", "status": "varchar(9)", "amount": "decimal(6,2)?",
        "created_at": "datetime(3)?", "day": "date?",
    },
    "shop.lines": {"key": ["order_id", "nr"], "order_id": "int", "nr": "int", "qty": "int", "at": "datetime(3)?"},
    "crm.customers": {"key": ["id"], "id": "int", "name": "varchar(9)", "since": "datetime(3)?",
                      "until": "datetime(3)?"},
}  # fmt: skip
_UNITS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_LENGTHS = ("1 DAY", "36 HOUR", "5 MINUTES", "'2' DAY", "1800 SECOND", "1 WEEK", "250 MILLISECOND")
_STEPS = (0.3, 1, 60, 1800, 5400, 43_200, 86_400, 3 * 86_400, 40 * 86_400)


class TemporalGenerator:
    """Makes a query of a random shape, and its history."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def case(self) -> Case:
        query, key = self.query()
        tables = {name: columns for name, columns in TABLES.items() if name in query}
        return Case(tables=tables, query=query, row_key=key, history=self.history(tables))

    # -- conditions

    def moment(self) -> str:
        """Return a moment that follows the time."""
        pick = self.chance.choice
        now = pick(["now()", "current_timestamp", "current_timestamp()", "NOW()"])
        match pick(["plain", "shifted", "shifted", "shifted", "cut", "day", "days", "both", "months"]):
            case "plain":
                return now
            case "shifted":
                return pick([f"{now} {pick('+-')} INTERVAL {pick(_LENGTHS)}", f"INTERVAL {pick(_LENGTHS)} + {now}"])
            case "cut":
                return f"date_trunc('{pick(_UNITS)}', {now})"
            case "day":
                return pick(["current_date", "CAST(now() AS DATE)", "to_date(now())", "current_date()"])
            case "days":
                days = self.chance.randint(0, 2)
                return pick([
                    f"current_date {pick('+-')} {days}", f"date_sub(current_date, {days})",
                    f"current_date - INTERVAL {days} DAY", f"date_add(current_date, {days})",
                ])  # fmt: skip
            case "both":
                shifted = f"date_trunc('{pick(_UNITS)}', {now} - INTERVAL {pick(_LENGTHS)})"
                return pick([shifted, f"{shifted} + INTERVAL {pick(_LENGTHS)}", f"trunc({now}, 'MM')"])
        cut = f"date_trunc('{pick(['MONTH', 'QUARTER', 'YEAR'])}', {now})"
        return f"{cut} {pick('+-')} INTERVAL {self.chance.randint(1, 14)} MONTH"

    def on_time(self, *values: str) -> str:
        """Return a condition that compares one of these values with the time."""
        pick, value = self.chance.choice, self.chance.choice(values)
        if self.chance.random() < 0.25:
            value = pick([
                f"{value} + INTERVAL {pick(_LENGTHS)}", f"date_trunc('{pick(_UNITS)}', {value})",
                f"CAST({value} AS DATE)", f"coalesce({value}, TIMESTAMP'2026-01-03 12:00:00')",
                f"{value} + INTERVAL 1 MONTH",
            ])  # fmt: skip
        moment, operator = self.moment(), pick(["<", "<=", ">", ">=", ">=", "=", "BETWEEN", "days"])
        if operator == "BETWEEN":
            return pick([
                f"{value} BETWEEN {moment} AND {self.moment()}", f"now() BETWEEN {value} AND {pick(values)}",
                f"{value} BETWEEN TIMESTAMP'2026-01-02 00:00:00' AND {moment}",
            ])  # fmt: skip
        if operator == "days":
            apart = pick([f"datediff(now(), {value})", f"datediff({value}, current_date)"])
            return f"{apart} {pick(['<', '<=', '>', '>=', '='])} {self.chance.randint(-2, 2)}"
        if operator == "=":
            unit = pick(["DAY", "MONTH", "HOUR"])
            value, moment = f"date_trunc('{unit}', {value})", f"date_trunc('{unit}', now())"
        sides = pick([(value, operator, moment), (moment, operator, value)])
        return " ".join(sides)

    def where(self, *values: str, plain: str = "o.status <> 'n2'") -> str:
        """Return one or two conditions on the time, sometimes with another one."""
        found = [self.on_time(*values) for _ in range(self.chance.choice([1, 1, 1, 2]))]
        if plain and self.chance.random() < 0.4:
            found.insert(self.chance.randint(0, len(found)), plain)
        return " AND ".join(self.chance.choice([one, f"({one})"]) for one in found)

    # -- queries

    def query(self) -> tuple[str, list[str]]:
        """Return a query and its row key."""
        shapes = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("_of_")]
        made: tuple[str, list[str]] = self.chance.choice(shapes)()
        return made

    def _of_one(self) -> tuple[str, list[str]]:
        items = self.chance.choice(["o.*", "o.id, o.amount * 2 AS twice", "o.id", "o.id, o.created_at AS at"])
        return f"SELECT {items} FROM shop.orders o WHERE {self.where('o.created_at', 'o.day')}", ["id"]

    def _of_groups(self) -> tuple[str, list[str]]:
        where = self.where("o.created_at", "o.day")
        query = f"SELECT o.status, count(*) AS n, sum(o.amount) AS s FROM shop.orders o WHERE {where} GROUP BY o.status"
        having = self.chance.choice(["", "", " HAVING count(*) > 1", f" HAVING {self.on_time('max(o.created_at)')}"])
        return query + having, ["status"]

    def _of_having(self) -> tuple[str, list[str]]:
        condition = self.where("max(o.created_at)", "min(o.day)", plain="count(*) > 1")
        return (
            f"SELECT o.customer_id, max(o.created_at) AS last FROM shop.orders o GROUP BY o.customer_id"
            f" HAVING {condition}"
        ), ["customer_id"]

    def _of_all(self) -> tuple[str, list[str]]:
        where = self.where("o.created_at", "o.day")
        return f"SELECT 'all' AS k, count(*) AS n, max(o.amount) AS m FROM shop.orders o WHERE {where}", ["k"]

    def _of_joins(self) -> tuple[str, list[str]]:
        kind = self.chance.choice(["JOIN", "LEFT JOIN"])
        on = f" AND {self.on_time('c.since', 'c.until')}" if self.chance.random() < 0.5 else ""
        values = self.chance.choice([("o.created_at",), ("c.since",), ("o.created_at", "o.day", "c.since", "c.until")])
        values = values if not on or self.chance.random() < 0.5 else ()
        if self.chance.random() < 0.2:
            values = (*values, "greatest(o.created_at, c.since)")
        where = f" WHERE {self.where(*values)}" if values else ""
        return (
            f"SELECT o.id, o.status, c.name FROM shop.orders o {kind} crm.customers c ON c.id = o.customer_id{on}"
            f"{where}"
        ), ["id"]

    def _of_pairs(self) -> tuple[str, list[str]]:
        kind = self.chance.choice(["JOIN", "LEFT JOIN", "FULL JOIN"])
        on = f" AND {self.on_time('l.at')}" if kind != "FULL JOIN" and self.chance.random() < 0.5 else ""
        values = self.chance.choice([("o.created_at",), ("l.at",), ("o.created_at", "l.at")])
        where = f" WHERE {self.where(*values)}" if not on or self.chance.random() < 0.5 else ""
        return (
            f"SELECT o.id, l.order_id, l.nr, l.qty FROM shop.orders o {kind} shop.lines l ON l.qty = o.customer_id"
            f"{on}{where}"
        ), ["id", "order_id", "nr"]

    def _of_lists(self) -> tuple[str, list[str]]:
        word = self.chance.choice(["EXISTS", "NOT EXISTS"])
        live = f"SELECT 1 FROM shop.lines l WHERE l.order_id = o.id AND {self.on_time('l.at')}"
        return f"SELECT o.id, o.status FROM shop.orders o WHERE {word} ({live})", ["id"]

    def _of_values(self) -> tuple[str, list[str]]:
        count = f"SELECT count(*) FROM shop.lines l WHERE l.order_id = o.id AND {self.on_time('l.at')}"
        return f"SELECT o.id, ({count}) AS n FROM shop.orders o", ["id"]

    def _of_subqueries(self) -> tuple[str, list[str]]:
        inner = f"SELECT o.id, o.customer_id, o.created_at FROM shop.orders o WHERE {self.where('o.created_at')}"
        where = f" WHERE {self.on_time('q.created_at')}" if self.chance.random() < 0.5 else ""
        return (f"SELECT q.id, c.name FROM ({inner}) q LEFT JOIN crm.customers c ON c.id = q.customer_id{where}"), [
            "id"
        ]

    def _of_windows(self) -> tuple[str, list[str]]:
        where = self.where("o.created_at")
        over = "OVER (PARTITION BY o.customer_id ORDER BY o.created_at)"
        call = self.chance.choice(["rank()", "lag(o.amount)", "row_number()", "sum(o.amount)"])
        return f"SELECT o.id, {call} {over} AS r FROM shop.orders o WHERE {where}", ["id"]

    def _of_first_rows(self) -> tuple[str, list[str]]:
        where = self.where("o.created_at")
        number = "ROW_NUMBER() OVER (PARTITION BY o.customer_id ORDER BY o.amount DESC) AS n"
        return f"SELECT o.customer_id, {number}, o.id FROM shop.orders o WHERE {where} QUALIFY n <= 2", [
            "customer_id", "n",
        ]  # fmt: skip

    def _of_unions(self) -> tuple[str, list[str]]:
        one, other = self.where("o.created_at"), self.where("c.since", "c.until", plain="c.name <> 'n1'")
        return (
            f"SELECT 'o' AS k, o.id FROM shop.orders o WHERE {one}"
            f" UNION ALL SELECT 'c', c.id FROM crm.customers c WHERE {other}"
        ), ["k", "id"]

    def _of_distinct_rows(self) -> tuple[str, list[str]]:
        return f"SELECT DISTINCT o.status FROM shop.orders o WHERE {self.where('o.created_at')}", ["status"]

    # -- histories

    def history(self, tables: dict[str, dict[str, Any]]) -> list[list[Any]]:
        history: list[list[Any]] = []
        for _ in range(self.chance.randint(8, 30)):
            name, dice = self.chance.choice(list(tables)), self.chance.random()
            columns = {column: type_ for column, type_ in tables[name].items() if column != "key"}
            row: Row = {column: value_of(type_, self.chance) for column, type_ in columns.items()}
            if dice < 0.12:
                history.append(["delete", name, {column: row[column] for column in tables[name]["key"]}])
            elif dice < 0.15:
                history.append(self.chance.choice([["truncate", name], ["snapshot", name, []]]))
            elif dice < 0.28:
                history.append(["time", self.chance.choice(_STEPS)])
            else:
                history.append(["put", name, row])
        return [*history, ["time", self.chance.choice(_STEPS)]]

"""Random joins: schemas, a supported SELECT over them, and a history of the tables that it reads."""

from __future__ import annotations

import base64
import json
import random
import re
from dataclasses import dataclass, field, replace
from typing import Any

from cdc.model.types import Canonical
from tests.joins.altering import MERGED
from tests.joins.joincase import Case

_KEYS = [{"id": "int"}, {"id": "int"}, {"id": "bigint"}, {"code": "varchar(9)"}, {"a": "int", "b": "int"},
         {"id": "int", "region": "varchar(9)"}]  # fmt: skip
_VALUES = ["int?", "bigint?", "decimal(6,2)?", "varchar(9)?", "date?", "datetime(3)?", "double?", "tinyint?", "float?",
           "varbinary(9)?", "decimal(45,20)?"]  # fmt: skip


@dataclass
class Table:
    name: str
    key: list[str]
    columns: dict[str, str]
    references: list[tuple[dict[str, str], str]] = field(default_factory=list)  # (its column → this table's, its name)
    computed: frozenset[str] = frozenset()  # columns by which no table can be joined


@dataclass
class Alias:
    name: str
    table: Table
    inner: bool


Join = tuple[Alias, str, list[str]]  # the joined table, the kind, and the conditions


def random_case(seed: int, query: int | None = None, *, merged: bool = True) -> Case:
    """Return the case of a seed, the same in every run. `query`: the seed of its schemas and SELECT, which many
    share. Half of the queries read topics of several tables; with `merged`, many read merged tables."""
    case = Generator(random.Random(seed if query is None else query), random.Random(seed)).case()
    case = replace(case, topics=("", "per_database", "", "per_source")[(seed if query is None else query) % 4])

    return _merged(case) if merged and (seed if query is None else query) % 3 else case


def _merged(case: Case) -> Case:
    """Return the case with merged tables in place of those with a column `region` in the key."""
    renamed = {name: f"{MERGED}.{name.split('.')[1]}" for name, one in case.tables.items() if "region" in one["key"]}
    text = json.dumps([case.tables, case.query, case.views, case.history])
    for name, other in renamed.items():
        text = re.sub(rf"\b{re.escape(name)}\b", other, text)
    tables, query, views, history = json.loads(text)
    return replace(case, tables=tables, query=query, views=views, history=history)


class Generator:
    """Makes the case of one seed; `happens` decides its history, if many share a query."""

    def __init__(self, chance: random.Random, happens: random.Random | None = None) -> None:
        self.chance, self.happens = chance, happens or chance

    def case(self) -> Case:
        tables = self._tables()
        query, row_key, views, used = self._query(tables)
        delivery = self.chance.choice(["exactly_once"] * 3 + ["at_least_once"])
        self.chance = self.happens
        return Case(
            tables={t.name: {"key": t.key, **t.columns} for t in tables},
            query=query,
            row_key=row_key,
            views=views,
            delivery=delivery,
            history=self._history([t for t in tables if t.name in used]),
        )

    # -- schemas

    def _tables(self) -> list[Table]:
        tables = []
        for n in range(self.chance.randint(1, 5)):
            key = self.chance.choice(_KEYS)
            table = Table(name=f"{self.chance.choice(['shop', 'crm'])}.t{n}", key=list(key), columns=dict(key))
            for i in range(self.chance.randint(1, 4)):
                table.columns[f"v{i}"] = self.chance.choice(_VALUES)
            table.columns["unused"] = "int"
            tables.append(table)
        for table in tables:
            for n in range(self.chance.randint(0, 3)):
                other = self.chance.choice(tables)
                columns = {}
                for column in other.key:
                    ours = f"f{n}_{column}"
                    type_ = other.columns[column]
                    if type_ == "int" and self.chance.random() < 0.3:
                        type_ = "bigint"  # integers of any width compare exactly
                    table.columns[ours] = type_ + self.chance.choice(["?", "?", ""])
                    columns[column] = ours
                table.references.append((columns, other.name))
        return tables

    # -- queries

    def _joins(self, tables: list[Table]) -> tuple[list[Alias], list[Join]]:
        """Return tables joined along their references; the first one has a row per row of the result."""
        by_name = {table.name: table for table in tables}
        root = max(self.chance.sample(tables, min(2, len(tables))), key=lambda t: len(t.references))
        aliases = [Alias("r", root, True)]
        joins: list[Join] = []
        for _ in range(self._count()):
            parents = [alias for alias in aliases if alias.table.references]
            if not parents:
                break
            parent = self.chance.choice(parents)
            columns, name = self.chance.choice(parent.table.references)
            inner = self.chance.random() < 0.5
            alias = Alias(f"j{len(joins)}", by_name[name], inner and parent.inner)
            conditions = []
            plain = [c for c in columns if alias.table.columns[c].startswith(("int", "bigint", "tinyint", "varchar"))]
            fixed = self.chance.choice(plain) if plain and len(columns) > 1 and self.chance.random() < 0.4 else None
            for theirs, ours in columns.items():
                # a constant may replace a part of the key
                constant = _literal(alias.table.columns[theirs], self.chance) if theirs == fixed else ""
                sides = [f"{alias.name}.{theirs}", constant or f"{parent.name}.{ours}"]
                self.chance.shuffle(sides)
                conditions.append(" = ".join(sides))
            if self.chance.random() < 0.2:
                conditions.append(self._condition(self.chance.choice([[alias], [*aliases, alias]])))
            aliases.append(alias)
            joins.append((alias, "JOIN" if inner else "LEFT JOIN", conditions))
            if inner:
                parent.inner = True
        return aliases, joins

    def _count(self) -> int:
        # five or more joins, so that branches differ in height by two and rows pass levels of other branches
        return self.chance.randint(0, 4) if self.chance.random() < 0.9 else self.chance.randint(5, 7)

    def _query(self, tables: list[Table]) -> tuple[str, list[str], dict[str, Any], set[str]]:
        aliases, joins = self._joins(tables)
        root = aliases[0].table
        items, where = self._items(aliases), self._where(aliases)
        keys = [f"r.{column} AS k{i}" for i, column in enumerate(root.key)]
        text = f"SELECT {', '.join([*keys, *items])}\n{self._from(aliases[0], joins, where)}"
        row_key = [f"k{i}" for i in range(len(root.key))]
        self.chance.shuffle(row_key)
        used = {alias.table.name for alias in aliases}
        if self.chance.random() < 0.2:
            views = {"lower": {"query": text, "row_key": row_key}}
            names = [*row_key, *(f"x{i}" for i in range(len(items)))]
            upper = ", ".join(f"l.{name}" for name in names)
            return f"SELECT {upper} FROM lower l", row_key, views, used
        return text, row_key, {}, used

    def _from(self, root: Alias, joins: list[Join], where: list[str]) -> str:
        """Return FROM, the joins and WHERE; inner joins are sometimes in another order, or with commas."""
        where = list(where)
        if joins and all(kind == "JOIN" for _, kind, _ in joins) and self.chance.random() < 0.4:
            named = [root, *(alias for alias, _, _ in joins)]
            self.chance.shuffle(named)
            where += [condition for _, _, conditions in joins for condition in conditions]
            text = "FROM " + ", ".join(f"{alias.table.name} {alias.name}" for alias in named)
        else:
            lines = [f"{kind} {a.table.name} {a.name} ON {' AND '.join(on)}" for a, kind, on in joins]
            text = "\n".join([f"FROM {root.table.name} {root.name}", *lines])
        return text + (f"\nWHERE {' AND '.join(where)}" if where else "")

    def _columns(self, aliases: list[Alias], *types: str) -> list[str]:
        return [
            f"{alias.name}.{name}"
            for alias in aliases
            for name, type_ in alias.table.columns.items()
            if name != "unused" and not is_wide(type_) and (not types or type_.removesuffix("?").startswith(types))
        ]

    def _wide_columns(self, aliases: list[Alias]) -> list[str]:
        """Return the decimals with more digits than expressions have. A further ON condition of a LEFT JOIN makes an
        expression of its table's columns, and of those joined through it."""
        inner = [alias for alias in aliases if alias.inner]
        return [f"{a.name}.{name}" for a in inner for name, type_ in a.table.columns.items() if is_wide(type_)]

    def _items(self, aliases: list[Alias]) -> list[str]:
        plain = self._columns(aliases) + self._wide_columns(aliases)
        chosen = [self.chance.choice(plain) for _ in range(self.chance.randint(1, 6))]
        chosen += [self._expression(aliases) for _ in range(self.chance.choice([0, 0, 1, 2]))]
        return [f"{text} AS x{i}" for i, text in enumerate(chosen)]

    def _expression(self, aliases: list[Alias]) -> str:
        numbers, texts = self._columns(aliases, "int", "bigint"), self._columns(aliases, "varchar")
        exact, dates = self._columns(aliases, "decimal"), self._columns(aliases, "date")
        pick = self.chance.choice
        made = [f"CASE WHEN {self._condition(aliases)} THEN 1 WHEN {self._condition(aliases)} THEN 2 END"]
        if numbers:
            one, two = pick(numbers), pick(numbers)
            made += [f"{one} + {two}", f"{one} * 2 - {two}", f"coalesce({one}, {two}, -1)", f"{one} / {two}"]
            made += [
                f"if({one} > {two}, {one}, NULL)",
                f"nullif({one}, {two})",
                f"{one} % {two}",
                f"-{one}",
                f"{one} DIV {two}",
            ]
        if texts:
            one = pick(texts)
            made += [f"upper({one})", f"{one} || '-' || {pick(texts)}", f"length({one})", f"substring({one}, 1, 1)"]
            made += [f"coalesce({one}, 'none')", f"{one} LIKE 'n%'", f"{one} = 'n1'"]
            made += [f"split_part({one}, 'n', 2)", f"translate({one}, 'n1', 'm')", f"repeat(initcap({one}), 2)"]
        if exact:
            one, two = pick(exact), pick(exact)
            made += [f"{one} + {two}", f"{one} * 2", f"{one} * {two}", f"{one} > {two}"]
        if dates:
            one = pick(dates)
            made += [f"year({one})", f"{one} < '2026-01-03'", f"CAST({one} AS DATE)", f"EXTRACT(DAY FROM {one})"]
            made += [f"{one} + INTERVAL {pick(['2 DAY', '1 MONTH', '90 MINUTE'])}", f"{one} - INTERVAL '1' WEEK"]
        return pick(made)

    def _condition(self, aliases: list[Alias]) -> str:
        pick = self.chance.choice
        column = pick(self._columns(aliases))
        made = [f"{column} IS NULL", f"{column} IS NOT NULL"]
        if numbers := self._columns(aliases, "int", "bigint", "decimal", "tinyint"):
            one, two = pick(numbers), pick(numbers)
            made += [f"{one} > 1", f"{one} <= {two}", f"{one} IN (1, 2, NULL)", f"{one} BETWEEN 1 AND 3"]
            made += [f"NOT {one} = {two}", f"{one} <=> {two}", f"({one} = 1 OR {two} = 2)", f"{one} <> 2"]
        if texts := self._columns(aliases, "varchar"):
            made += [f"{pick(texts)} <> 'n2'", f"{pick(texts)} LIKE 'n%'", f"{pick(texts)} = {pick(texts)}"]
            made += [f"{pick(texts)} ILIKE 'N%'"]
        if dates := self._columns(aliases, "date"):
            made += [f"{pick(dates)} > DATE'2026-01-04' - INTERVAL 2 DAY"]
        return pick(made)

    def _where(self, aliases: list[Alias]) -> list[str]:
        return [self._condition(aliases) for _ in range(self.chance.choice([0, 0, 1, 1, 2]))]

    # -- histories

    def _history(self, tables: list[Table]) -> list[list[Any]]:
        history: list[list[Any]] = []
        for _ in range(self.chance.randint(5, 60)):
            table = self.chance.choice(tables)
            dice = self.chance.random()
            if dice < 0.03:
                history.append(["truncate", table.name])
            elif dice < 0.06:
                history.append(["quiet"])
            elif dice < 0.08:
                lost = [{c: self._value(table.columns[c]) for c in table.key} for _ in range(self.chance.randint(0, 4))]
                history.append(["snapshot", table.name, lost])
            elif dice < 0.28:
                history.append(["delete", table.name, {c: self._value(table.columns[c]) for c in table.key}])
            else:
                row = {name: self._value(type_) for name, type_ in table.columns.items()}
                history.append(["put", table.name, row])
                if self.chance.random() < 0.15:
                    history.append(["put", table.name, {**row, "unused": self.chance.randint(5, 9)}])
        return history

    def _value(self, type_: str) -> Canonical:
        return value_of(type_, self.chance)


def _literal(type_: str, chance: random.Random) -> str:
    value = value_of(type_.removesuffix("?"), chance)
    return f"'{value}'" if isinstance(value, str) else str(value)


def value_of(type_: str, chance: random.Random) -> Canonical:
    """Return a value of a column; there are few, so that rows meet."""
    n = chance.randint(1, 4)
    if type_.endswith("?") and chance.random() < 0.2:
        return None
    match type_.removesuffix("?").partition("(")[0]:
        case "int" | "bigint" | "tinyint":
            return n
        case "decimal":
            scale = int(type_.removesuffix("?").rstrip(")").rpartition(",")[2])
            return f"{n}.{chance.choice(['0', '5'])}".ljust(scale + 2, "0")
        case "varchar":
            return f"n{n}"
        case "date":
            return f"2026-01-0{n}Z"
        case "datetime":
            return f"2026-01-0{n}T00:00:00{chance.choice(['', '.5'])}Z"
        case "double":
            return n / 2
        case "float":
            return n + chance.choice([0.5, 0.1])  # 1.1 is another number in four bytes
        case "varbinary":
            return base64.b64encode(bytes([n, 255 - n])).decode()
    raise AssertionError(type_)


def is_wide(type_: str) -> bool:
    """Return whether a type is a decimal with more digits than expressions have."""
    return type_.startswith("decimal(") and int(type_.removeprefix("decimal(").partition(",")[0]) > 38


def random_view_case(seed: int) -> Case:
    """Return a case of a seed with LEFT JOINs to tables of the topology that compute their columns."""
    return _OverViews(random.Random(seed)).case()


class _OverViews(Generator):
    def _tables(self) -> list[Table]:
        tables = super()._tables()
        while not any(table.references for table in tables):
            tables = super()._tables()
        return tables

    def _query(self, tables: list[Table]) -> tuple[str, list[str], dict[str, Any], set[str]]:
        by_name, views = {table.name: table for table in tables}, dict[str, Any]()
        root = self.chance.choice([table for table in tables if table.references])
        used = {root.name}
        joins, items = self._views(root, "r", by_name, views, used)
        row_key = [f"k{i}" for i in range(len(root.key))]
        own = [f"r.{column} AS k{i}" for i, column in enumerate(root.key)]
        where = [f"{self.chance.choice(items)} IS {self.chance.choice(['', 'NOT '])}NULL" for _ in range(2)]
        text = ", ".join([*own, *(f"{item} AS x{i}" for i, item in enumerate(items))])
        query = f"SELECT {text}\nFROM {root.name} r\n{' '.join(joins)}"
        condition = self.chance.choice(["", f"\nWHERE {where[0]}", f"\nWHERE {where[0]} OR {where[1]}"])
        return query + condition, row_key, views, used

    def _views(
        self, table: Table, alias: str, by_name: dict[str, Table], views: dict[str, Any], used: set[str]
    ) -> tuple[list[str], list[str]]:
        """Return LEFT JOINs from a table to views, which are added with the tables that they use, and their columns."""
        joins, items = list[str](), list[str]()
        for columns, name in self.chance.sample(table.references, self.chance.randint(1, len(table.references))):
            view = f"v{len(views)}"
            views[view] = {}
            found = self._view(by_name[name], by_name, views, used)
            views[view] = {"query": found[0], "row_key": by_name[name].key}
            on = " AND ".join(f"{view}.{theirs} = {alias}.{ours}" for theirs, ours in columns.items())
            joins.append(f"LEFT JOIN {view} ON {on}")
            items += [f"{view}.{item}" for item in found[1]]
        return joins, items

    def _view(
        self, table: Table, by_name: dict[str, Table], views: dict[str, Any], used: set[str]
    ) -> tuple[str, list[str]]:
        """Return a view of one table, perhaps over further views, and the names of its columns."""
        used.add(table.name)
        joins, items = list[str](), list[str]()
        if table.references and len(views) < 4 and self.chance.random() < 0.5:
            joins, items = self._views(table, "t", by_name, views, used)
        own = [Alias("t", table, True)]
        items += ["'there'", f"{self.chance.choice(self._columns(own))} IS NULL", self._expression(own)]
        named = [f"{item} AS c{i}" for i, item in enumerate(items)]
        keys = [f"t.{column} AS {column}" for column in table.key]
        query = f"SELECT {', '.join([*keys, *named])}\nFROM {table.name} t\n{' '.join(joins)}"
        return query, [f"c{i}" for i in range(len(items))]

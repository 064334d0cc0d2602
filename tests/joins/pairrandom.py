"""Random many-to-many joins: tables that meet at columns which are not a key, and their history.

There are lookups before and after such a join, self-joins, groups as a side, and grouped pairs.
"""

from __future__ import annotations

import random
import re
from typing import Any

from tests.joins.joincase import Case
from tests.joins.joinrandom import Alias, Generator, Join, Table, is_wide

_MEETING = {"m0": "int?", "m1": "varchar(9)?", "m2": "int"}
_EXACT = ("int", "varchar", "date", "decimal", "bigint", "tinyint")


def random_pair_case(seed: int, query: int | None = None) -> Case:
    """Return the case of a seed, the same in every run. `query`: the seed of its schemas and SELECT, which many
    share."""
    if query is None:
        return _Pairing(random.Random(seed)).case()
    return _Pairing(random.Random(query), random.Random(seed)).case()


class _Pairing(Generator):
    def _tables(self) -> list[Table]:
        tables = super()._tables()
        for table in tables:
            table.columns |= _MEETING
        return tables

    def _query(self, tables: list[Table]) -> tuple[str, list[str], dict[str, Any], set[str]]:
        self.used: set[str] = set()
        root = Alias("r", self._taken(tables), True)
        if self.chance.random() < 0.1:
            root.table = self._groups(root.table, True)
        many, aliases, joins = [root], [root], list[Join]()
        right = self.chance.random() < 0.15  # such a join must be the first one
        kinds = ["lookup"] * self.chance.choice([0, 0, 1, 2]) + ["many"] + ["lookup"] * self.chance.choice([0, 0, 1])
        kinds += ["many"] * (self.chance.random() < 0.2)
        for kind in ["many", *kinds[: kinds.index("many")], *kinds[kinds.index("many") + 1 :]] if right else kinds:
            if kind == "lookup":
                self._look_up(tables, aliases, joins)
                continue
            inner = self.chance.random() < 0.4
            kind = "JOIN" if inner else self.chance.choice(["LEFT JOIN", "LEFT JOIN", "FULL JOIN"])
            if right:
                kind, inner, right = "RIGHT JOIN", False, False
            self._meet(tables, aliases, joins, many, kind, inner)
        if self.chance.random() < 0.25:
            return self._grouped(aliases, joins)
        keys = [f"{alias.name}.{column}" for alias in many for column in alias.table.key]
        source = self._from(root, joins, self._where(aliases))
        items = self._items(aliases)
        for shared in re.findall(r"USING \((\w+)\)", source):
            items = [re.sub(rf"^\w+\.{shared} AS", f"{shared} AS", item) for item in items]
        text = ", ".join([*(f"{key} AS k{i}" for i, key in enumerate(keys)), *items])
        row_key = [f"k{i}" for i in range(len(keys))]
        self.chance.shuffle(row_key)
        return f"SELECT {text}\n{source}", row_key, {}, self.used

    def _taken(self, tables: list[Table]) -> Table:
        table = self.chance.choice(tables)
        self.used.add(table.name)
        return table

    def _look_up(self, tables: list[Table], aliases: list[Alias], joins: list[Join]) -> None:
        """Add a lookup from any table so far, if one has a reference."""
        parents = [alias for alias in aliases if alias.table.references]
        if not parents:
            return
        parent = self.chance.choice(parents)
        columns, name = self.chance.choice(parent.table.references)
        inner = self.chance.random() < 0.4
        alias = Alias(f"j{len(joins)}", next(table for table in tables if table.name == name), inner)
        self.used.add(name)
        on = [f"{alias.name}.{theirs} = {parent.name}.{ours}" for theirs, ours in columns.items()]
        aliases.append(alias)
        joins.append((alias, "JOIN" if inner else "LEFT JOIN", on))

    def _meet(
        self, tables: list[Table], aliases: list[Alias], joins: list[Join], many: list[Alias], kind: str, inner: bool
    ) -> None:
        """Add a many-to-many join with the tables so far."""
        alias = Alias(f"j{len(joins)}", self._taken(tables), inner)
        if self.chance.random() < 0.15:
            alias.table = self._groups(alias.table, kind == "FULL JOIN" or self.chance.random() < 0.2)
        if kind == "JOIN" and self.chance.random() < 0.2:
            compared = [self._compared(alias, aliases)] if self.chance.random() < 0.7 else []
            aliases.append(alias)
            many.append(alias)
            joins.append((alias, "INNER JOIN" if compared else "CROSS JOIN", compared))
            return
        pairs = self._pairs(alias, aliases)
        on = [" = ".join(self.chance.sample(pair, 2)) for pair in pairs]
        if inner and self.chance.random() < 0.3:
            on.append(self._condition([*aliases, alias]))
        elif kind == "LEFT JOIN" and self.chance.random() < 0.3:
            on.append(self._condition([alias]))
        aliases.append(alias)
        many.append(alias)
        joins.append((alias, kind, on))

    def _groups(self, table: Table, named: bool) -> Table:
        """Return groups of a table's rows, which meet others by their key or a computed value. `named`: without the
        group of NULL, since only one side of a FULL JOIN may have rows whose id is NULL."""
        key = self.chance.choice(["m0", "m1", "m2"])
        where = f" WHERE {key} IS NOT NULL" if named else ""
        query = f"(SELECT {key} AS g, count(*) AS n, max(m2) AS most FROM {table.name}{where} GROUP BY {key})"
        return Table(name=query, key=["g"], columns={"g": table.columns[key], "n": "bigint", "most": "int?"})

    def _compared(self, alias: Alias, aliases: list[Alias]) -> str:
        """Return a condition between a table and those so far that is no equality."""
        some = [self._columns(others, "int", "bigint", "tinyint") for others in ([alias], aliases)]
        if not all(some):
            return " <> ".join(
                f"coalesce(CAST({self.chance.choice(self._columns(o))} AS STRING), '-')" for o in ([alias], aliases)
            )
        one, two = map(self.chance.choice, some)
        return self.chance.choice([f"{one} < {two}", f"{two} BETWEEN {one} AND {one} + 1", f"{one} <> {two}"])

    def _pairs(self, alias: Alias, aliases: list[Alias]) -> list[tuple[str, str]]:
        """Return equalities of one or two columns of exact types, which are not the whole key of the joined table."""
        while True:
            pairs: dict[str, tuple[str, str]] = {}
            other = self.chance.choice(aliases)
            for _ in range(self.chance.choice([1, 1, 2])):
                found = [
                    (own, theirs)
                    for own, type_ in alias.table.columns.items()
                    for theirs, same in other.table.columns.items()
                    if "unused" not in (own, theirs) and type_.strip("?") == same.strip("?")
                    if type_.startswith(_EXACT) and not is_wide(type_)
                ]
                if found:
                    own, theirs = self.chance.choice(found)
                    pairs.setdefault(own, (f"{alias.name}.{own}", f"{other.name}.{theirs}"))
            there = {theirs.partition(".")[2] for _, theirs in pairs.values()}
            if pairs and not {*alias.table.key} <= {*pairs} and not {*other.table.key} <= there:
                return list(pairs.values())

    def _grouped(self, aliases: list[Alias], joins: list[Join]) -> tuple[str, list[str], dict[str, Any], set[str]]:
        keys = self._columns(aliases, *_EXACT)
        keys = self.chance.sample(keys, min(len(keys), self.chance.choice([1, 1, 2])))
        numbers = self._columns(aliases, "int", "bigint", "decimal") or ["1"]
        asked = [f"{self.chance.choice(['sum', 'min', 'max', 'count'])}({self.chance.choice(numbers)})"]
        asked += ["count(*)", f"count(DISTINCT {self.chance.choice(self._columns(aliases, *_EXACT))})"]
        items = [*(f"{key} AS k{i}" for i, key in enumerate(keys)), *(f"{one} AS x{i}" for i, one in enumerate(asked))]
        text = f"SELECT {', '.join(items)}\n{self._from(aliases[0], joins, self._where(aliases))}"
        return f"{text}\nGROUP BY {', '.join(keys)}", [f"k{i}" for i in range(len(keys))], {}, self.used

    def _from(self, root: Alias, joins: list[Join], where: list[str]) -> str:
        """Return FROM with joins in the order of their creation, as the row key depends on it; with commas, those after
        the first in any order."""
        lines = [f"FROM {root.table.name} {root.name}"]
        if joins and all(kind == "JOIN" for _, kind, _ in joins) and self.chance.random() < 0.4:
            tables = [f"{alias.table.name} {alias.name}" for alias, _, _ in self.chance.sample(joins, len(joins))]
            lines, where = [", ".join([*lines, *tables])], [*(one for _, _, on in joins for one in on), *where]
        else:
            aliases = [root, *(alias for alias, _, _ in joins)]
            lines += [f"{kind} {a.table.name} {a.name}{self._on(on, aliases)}" for a, kind, on in joins]
        return "\n".join([*lines, *([f"WHERE {' AND '.join(where)}"] if where else [])])

    def _on(self, conditions: list[str], aliases: list[Alias]) -> str:
        """Return ON, or USING if the only condition compares columns of one name that no third table has."""
        text = " AND ".join(conditions)
        found = re.fullmatch(r"(\w+)\.(\w+) = (\w+)\.(\w+)", text)
        if found is None or found[2] != found[4] or self.chance.random() < 0.3:
            return f" ON {text}" if text else ""
        owners = [one.name for one in aliases if found[2] in one.table.columns]
        return f" USING ({found[2]})" if sorted(owners) == sorted([found[1], found[3]]) else f" ON {text}"

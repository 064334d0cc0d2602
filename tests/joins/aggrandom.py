"""Random queries that group or keep the first rows of each group, with histories: over joins, over one another, joined
back, united, used in EXISTS.

A query can replace a table anywhere: as a table of the topology, in FROM or in WITH. So it is generated and joined like
a
table (`joinrandom.Table`). `constructs` limits what may occur in addition to plain joins.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

from tests.joins.aggforms import FormGenerator
from tests.joins.agggroups import EXACT, names_of, select_of
from tests.joins.agghistory import history_of
from tests.joins.joincase import Case
from tests.joins.joinrandom import Alias, Join, Table, is_wide

GROUPS = frozenset({"groups", "determined", "global", "expressions", "null_keys", "having", "over", "filter"})
FUNCTIONS = frozenset({"distinct_of", "extremes", "by", "lists", "conditions", "statistics"})
QUERIES = frozenset({"sets", "distinct", "union_all", "union", "top", "ordered", "view", "subquery", "with"})
JOINS = frozenset({"exists", "scalar", "windows", "right", "on"})
FORMS = frozenset({"several_sets", "hops", "cases", "distinct_on", "offset"})
MANY = frozenset({"many", "full"})
MOST = 8  # tables in a query that others read; a plan has at most 127 joins and groups
CONSTRUCTS = GROUPS | FUNCTIONS | QUERIES | JOINS | FORMS


def random_aggregate(seed: int, query: int | None = None, constructs: frozenset[str] = CONSTRUCTS) -> Case:
    """Return the case of a seed, the same in every run. `query`: the seed of its schemas and SELECT, which many
    share."""
    happens = random.Random(seed)
    return Aggregated(random.Random(seed if query is None else query), happens, constructs).case()


class Aggregated(FormGenerator):
    """Makes queries of all `constructs`."""

    def __init__(self, chance: random.Random, happens: random.Random, constructs: frozenset[str]) -> None:
        super().__init__(chance, happens, constructs)
        self.views: dict[str, dict[str, Any]] = {}
        self.named: dict[str, str] = {}  # by WITH
        self.sizes: dict[str, int] = {}
        self.plain = set[str]()  # those without groups, which are merged

    def case(self) -> Case:
        captured = self._tables()
        tables, wanted = list(captured), self._kinds()
        self.sizes = {table.name: 1 for table in captured}
        for _ in range(self.chance.choice([0, 0, 1, 1, 2]) if {"view", "subquery", "with"} & self.constructs else 0):
            made = self._made(tables, wanted)
            if (size := self._size(made.name)) <= MOST:
                tables.append(self._placed(made, size))
                self._refer(tables[-1], tables)
        made = self._made([*tables[len(captured) :], *self.chance.sample(captured, len(captured))], wanted, last=True)
        query, row_key = self._with(made.name), list(made.key)
        query = self._in_another_case(query) if self._maybe("cases", 0.15) else query
        self.chance.shuffle(row_key)
        said = query + "".join(str(view["query"]) for view in self.views.values())
        read = [table for table in captured if f"{table.name} " in said]
        return Case(
            tables={table.name: {"key": table.key, **table.columns} for table in captured},
            query=query,
            row_key=row_key,
            views=self.views,
            delivery=self.chance.choice(["exactly_once"] * 3 + ["at_least_once"]),
            history=history_of(read, self.happens),
        )

    # -- queries as tables: their text is their name

    def _kinds(self) -> list[str]:
        weights = {"groups": 5, "distinct": 1, "union_all": 1, "union": 1, "top": 3, "ordered": 3}
        return [kind for kind, weight in weights.items() if kind in self.constructs for _ in range(weight)] + ["rows"]

    def _made(self, tables: list[Table], kinds: list[str], *, last: bool = False) -> Table:
        kind = self.chance.choice(kinds)
        if kind == "union_all":
            return self._united_by_tags(tables)
        if kind == "union":
            return self._united(tables)
        # an ON condition in a merged query may hide what others are joined by
        aliases, text = self._read(tables, on=last or kind != "rows")
        if kind == "groups" and self._maybe("several_sets", 0.15):
            return self._grouped_in_sets(aliases, text)
        if kind == "groups":
            return self._grouped(aliases, text, last=last)
        if kind == "top":
            return self._topped(aliases, text)
        if kind == "ordered":
            return self._ordered(aliases, text)
        if kind == "distinct":
            items = list(dict.fromkeys(self._item(aliases, *EXACT) for _ in range(self.chance.randint(1, 3))))
            columns = {f"k{i}": type_ for i, (_, type_) in enumerate(items)}
            return Table(select_of(items, columns, text, "DISTINCT "), list(columns), columns)
        items = [(f"{a.name}.{c}", a.table.columns[c]) for a in aliases if a.name in ("r", "m") for c in a.table.key]
        keys = [f"k{i}" for i in range(len(items))]
        more = [self._item(aliases) for _ in range(self.chance.randint(1, 4))]
        plain = len(keys) + len(more)
        more += [self._scalar(aliases, tables)] if self._maybe("scalar", 0.3) else []
        more += [self._over_partition(aliases)] if self._maybe("windows", 0.2) else []
        columns = {name: type_ for name, (_, type_) in zip(names_of(len(keys), len(more)), items + more, strict=True)}
        made = select_of(items + more, columns, text)
        self.plain |= {made, f"({made})"}
        return Table(made, keys, columns, computed=frozenset([*columns][plain:]))

    def _size(self, text: str) -> int:
        """Count the tables that a query reads, directly and indirectly."""
        return sum(size * len(re.findall(rf"{re.escape(name)}\b", text)) for name, size in self.sizes.items())

    def _placed(self, made: Table, size: int) -> Table:
        """Return a query in a form that another one can read."""
        where = self.chance.choice([one for one in ("view", "subquery", "with") if one in self.constructs])
        if where == "subquery":
            return replace(made, name=f"({made.name})")
        name = f"view{len(self.views)}" if where == "view" else f"named{len(self.named)}"
        self.sizes[name] = size
        if made.name in self.plain:
            self.plain.add(name)
        if where == "view":
            self.views[name] = {"query": self._with(made.name), "row_key": made.key}
        else:
            self.named[name] = made.name
        return replace(made, name=name)

    def _with(self, text: str) -> str:
        """Return a query with the WITH definitions that it needs."""
        needed: list[str] = []
        for name in reversed(self.named):
            if any(re.search(rf"\b{name}\b", one) for one in (text, *(self.named[other] for other in needed))):
                needed.insert(0, name)
        return ("WITH " + ", ".join(f"{n} AS ({self.named[n]})" for n in needed) + "\n" if needed else "") + text

    def _refer(self, made: Table, tables: list[Table]) -> None:
        """Add the columns by which other tables look up a query's rows, and by which its rows look up others."""
        for table in tables[:-1]:
            for one, other in ((table, made), (made, table)):
                found = {key: _like(one, other.columns[key]) for key in other.key}
                if all(found.values()) and (
                    one is not made or len(found) == 1
                ):  # otherwise the columns come from several tables
                    reference = {key: self.chance.choice(names) for key, names in found.items()}
                    one.references += [(reference, other.name)] * (2 if other is made else 1)

    def _united_by_tags(self, tables: list[Table]) -> Table:
        """Return rows of several tables with one kind of key, or of one table under several conditions."""
        by_key: dict[str, list[Table]] = {}
        for table in tables:
            by_key.setdefault(str([_family(table.columns[column]) for column in table.key]), []).append(table)
        group = self.chance.choice(list(by_key.values()))
        texts, columns = list[str](), dict[str, str]()
        for i in range(self.chance.randint(2, 3)):
            own = Alias("r", self.chance.choice(group), True)
            keys = [(f"r.{column}", own.table.columns[column]) for column in own.table.key]
            items = [(f"'b{i}'", "varchar(9)"), *keys, self._item([own], "int", "bigint", otherwise=f"{i}")]
            columns = {name: _wide(t) for name, (_, t) in zip(names_of(len(keys) + 1, 1), items, strict=True)}
            texts.append(select_of(items, columns, self._from(own, [], self._where([own]))))
        return Table("\nUNION ALL\n".join(texts), list(columns)[:-1], columns)

    def _united(self, tables: list[Table]) -> Table:
        """Return the numbers, and perhaps texts, of several joins, each once."""
        texts, columns = list[str](), dict[str, str]()
        wanted: list[tuple[str, ...]] = [("int", "bigint", "tinyint"), ("varchar",)][: self.chance.randint(1, 2)]
        word = self.chance.choice(["UNION", "UNION", "EXCEPT", "INTERSECT"]) if "sets" in self.constructs else "UNION"
        for i in range(self.chance.randint(2, 3)):
            aliases, text = self._read(tables)
            otherwise = {"int": f"{i}", "varchar": f"'b{i}'"}
            items = [self._item(aliases, *types, otherwise=otherwise[types[0]]) for types in wanted]
            columns = {f"k{n}": _wide(type_) for n, (_, type_) in enumerate(items)}
            texts.append(select_of(items, columns, text))
        return Table(f"\n{word}\n".join(texts), list(columns), columns)

    # -- joins

    def _count(self) -> int:
        return self.chance.choice([0, 0, 0, 1, 1, 2, 3])

    def _where(self, aliases: list[Alias]) -> list[str]:
        return (
            [self._condition(aliases)] if self.chance.random() < 0.25 else []
        )  # otherwise few rows are left for the groups

    def _read(self, tables: list[Table], *, on: bool = True) -> tuple[list[Alias], str]:
        """Return the tables that a query reads, and its text from FROM to WHERE."""
        aliases, joins = self._joins(tables)
        if self._maybe("many", 0.3):
            self._meet(aliases, joins, tables)
        where = self._where(aliases)
        while self._maybe("exists", 0.12):
            where += self._exists(aliases, tables, len(where))
        if self._maybe("scalar", 0.15):
            asked, _ = self._scalar(aliases, tables)
            other, _ = self._item(aliases, "int", "bigint", "tinyint", otherwise="2")
            where.append(f"{other} {self.chance.choice(['<', '<=', '<>', '>='])} {asked}")
        if on:
            joins = [(one, kind, self._more_on(one, kind, text, aliases, joins, where)) for one, kind, text in joins]
        if joins and joins[0][1] == "LEFT JOIN" and self._maybe("right", 0.5):
            first, others = aliases[0], joins[1:]
            turned: list[Join] = [(first, "RIGHT JOIN", joins[0][2]), *others]
            found = self._from_right(first, joins, where) if self.chance.random() < 0.5 else None
            return aliases, found or self._from(joins[0][0], turned, where)
        return aliases, self._from(aliases[0], joins, where)

    def _more_on(
        self, alias: Alias, kind: str, on: list[str], aliases: list[Alias], joins: list[Join], where: list[str]
    ) -> list[str]:
        """Return conditions in addition to the equalities. If tables are joined through this one, they use only it."""
        if kind != "LEFT JOIN" or not self._maybe("on", 0.4):
            return on
        others = [text for other, _, texts in joins if other is not alias for text in texts]
        found = any(f"{alias.name}." in text for text in [*others, *where])
        if alias.table.name in self.plain or (found and not re.fullmatch(r"\w+\.\w+", alias.table.name)):
            return on  # not supported: a table is joined through a row that the condition may hide
        parents = [one for one in aliases if any(f"{one.name}." in text for text in on)]
        return [*on, self._condition([alias] if found or alias.name == "m" else parents)]

    def _meet(self, aliases: list[Alias], joins: list[Join], tables: list[Table]) -> None:
        """Join a table many to many, not by its key."""
        other = Alias("m", self.chance.choice(tables), True)
        columns = [pair for pair in self._compared(aliases, other) if [pair[1].partition(".")[2]] != other.table.key]
        if columns:
            kinds = ["INNER JOIN", "LEFT JOIN"] + ["FULL JOIN"] * (not joins and "full" in self.constructs)
            outside, inside = self.chance.choice(columns)
            joins.append((other, self.chance.choice(kinds), [f"{inside} = {outside}"]))
            aliases.append(other)

    def _compared(self, aliases: list[Alias], other: Alias) -> list[tuple[str, str]]:
        """Return columns that may be equal to one of another table."""
        return [
            (f"{alias.name}.{column}", f"{other.name}.{self.chance.choice(names)}")
            for alias in aliases
            for column, type_ in alias.table.columns.items()
            if column not in ("unused", *alias.table.computed) and (names := _like(other.table, type_))
        ]

    def _exists(self, aliases: list[Alias], tables: list[Table], number: int) -> list[str]:
        inner = Alias(f"e{number}", self.chance.choice(tables), True)
        columns = self._compared(aliases, inner)
        if not columns:
            return []
        outside, inside = self.chance.choice(columns)
        asked = f"FROM {inner.table.name} {inner.name}"
        own = [self._bare(self._condition([inner]), aliases, inner)] if self.chance.random() < 0.5 else []
        if self.chance.random() < 0.3:
            word = self.chance.choice(["IN", "IN", "NOT IN"])
            return [f"{outside} {word} (SELECT {inside} {asked}{' WHERE ' + own[0] if own else ''})"]
        word = self.chance.choice(["EXISTS", "NOT EXISTS"])
        if self.chance.random() < 0.3:
            one, other = self.chance.choice(columns)
            own.append(self._bare(f"{other} {self.chance.choice(['<>', '<', '>='])} {one}", aliases, inner))
        equal = self._bare(f"{inside} = {outside}", aliases, inner)
        return [f"{word} (SELECT 1 {asked} WHERE {' AND '.join([equal, *own])})"]

    def _bare(self, condition: str, aliases: list[Alias], inner: Alias) -> str:
        """Return a condition within a subquery over `inner`, perhaps with columns without their tables."""
        return condition

    def _scalar(self, aliases: list[Alias], tables: list[Table]) -> tuple[str, str]:
        """Return a subquery that is a number, of all rows of a table or of those with an equal column."""
        inner = Alias("s", self.chance.choice(tables), True)
        number, _ = self._item([inner], "int", "bigint", "tinyint", otherwise="3")
        value, type_ = self.chance.choice([
            ("count(*)", "bigint"), (f"count({number}) + 1", "bigint"), (f"max({number})", "bigint?"),
            (f"coalesce(sum({number}), 0) - 1", "bigint"), (f"sum({number}) / count(*)", "double?"),
        ])  # fmt: skip
        conditions = [self._condition([inner])] if self.chance.random() < 0.4 else []
        if (columns := self._compared(aliases, inner)) and self.chance.random() < 0.75:
            outside, inside = self.chance.choice(columns)
            conditions.insert(0, self._bare(f"{inside} = {outside}", aliases, inner))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"(SELECT {value} FROM {inner.table.name} s{where})", type_


def _family(type_: str) -> str:
    """Return the family of types that compare exactly; empty for floats and lists."""
    base = type_.removesuffix("?")
    return "int" if base in ("int", "bigint", "tinyint") else base


def _wide(type_: str) -> str:
    return "bigint?" if _family(type_) == "int" else type_


def _like(table: Table, type_: str) -> list[str]:
    """Return the columns of a table that compare with a type."""
    if _family(type_).startswith(("double", "float", "list", "bool")) or is_wide(type_):
        return []
    some = {name: own for name, own in table.columns.items() if name not in ("unused", *table.computed)}
    return [name for name, own in some.items() if _family(own) == _family(type_)]

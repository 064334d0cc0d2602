"""Random groups: their keys, all kinds of aggregate functions, HAVING, and expressions over aggregates."""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod

from tests.joins.joinrandom import Alias, Generator, Table

EXACT = ("int", "bigint", "tinyint", "decimal", "varchar", "date")  # dates and datetimes, too


class GroupGenerator(Generator, ABC):
    """Makes queries that group; `constructs` (see `aggrandom`) limits what may occur."""

    def __init__(self, chance: random.Random, happens: random.Random, constructs: frozenset[str]) -> None:
        super().__init__(chance, happens)
        self.constructs = constructs

    def _maybe(self, construct: str, share: float) -> bool:
        """Return whether a construct occurs here."""
        return construct in self.constructs and self.chance.random() < share

    def _grouped(self, aliases: list[Alias], text: str, *, last: bool = False) -> Table:
        whole = self._maybe("global", 0.15)
        identity = self._identity(aliases) if last and not whole and self._maybe("determined", 0.2) else []
        keys = (
            [self.chance.choice([("'all'", "varchar(9)"), ("2", "int")])] if whole else identity or self._keys(aliases)
        )
        functions = [self._function(aliases) for _ in range(self.chance.randint(1, 4))]
        overlapping = any("'2 days'" in key for key, _ in keys)
        if not whole and not identity and not overlapping and self._maybe("windows", 0.15):
            functions.append(self._over_groups(keys))
        items = [*keys, *functions]
        if self._maybe("over", 0.3):
            items.append(self._over(aliases))
        names = names_of(len(keys), len(items) - len(keys))
        having = self._having(aliases) if self._maybe("having", 0.3) else ""
        free = [name for name in aliases[0].table.columns if name not in (*names, "n")]  # n is the number of a row
        if having and len(aliases) == 1 and free and not whole:  # a column of the result hides one of the table
            names[-1] = self.chance.choice(free)
            having = having.replace(f"{aliases[0].name}.", "")
        columns = {n: t for n, (_, t) in zip(names, items, strict=True)}
        text = select_of(items, columns, text)
        if not whole:
            text += "\nGROUP BY " + ", ".join(f"{key}" for key, _ in keys)
        if having:
            text += f"\nHAVING {having}"
        if identity:
            return Table(text, list(columns)[: len(self._key_of(identity, aliases))], columns)
        if not whole and self._maybe("top", 0.15):
            return self._topped_groups(text, columns, keys)
        return Table(text, list(columns)[: len(keys)], columns)

    def _identity(self, aliases: list[Alias]) -> list[tuple[str, str]]:
        """Return a table's key, which identifies the groups, and columns that it determines. None for pairs of rows."""
        if any(alias.name == "m" for alias in aliases):
            return []
        alias = self.chance.choice([one for one in aliases if re.fullmatch(r"\w+\.\w+", one.table.name)] or aliases[:1])
        keys = [(f"{alias.name}.{column}", alias.table.columns[column]) for column in alias.table.key]
        return list(dict.fromkeys([*keys, *(self._item([alias], *EXACT) for _ in range(self.chance.randint(1, 3)))]))

    def _key_of(self, identity: list[tuple[str, str]], aliases: list[Alias]) -> list[str]:
        name = identity[0][0].partition(".")[0]
        return next(alias.table.key for alias in aliases if alias.name == name)

    @abstractmethod
    def _topped_groups(self, text: str, columns: dict[str, str], keys: list[tuple[str, str]]) -> Table:
        """Return the first groups of a grouped query (`aggtop`)."""

    def _keys(self, aliases: list[Alias]) -> list[tuple[str, str]]:
        keys = []
        for _ in range(self.chance.choice([1, 1, 1, 2, 3])):
            text, type_ = self._item(aliases, *EXACT)
            if self._maybe("expressions", 0.3):
                number, more = self._item(aliases, "int", "bigint", "tinyint", otherwise="1")
                moment, _ = self._item(aliases, "datetime", otherwise="DATE'2026-01-01'")
                hops = "hops" in self.constructs and "." in moment
                text, type_ = self.chance.choice([
                    (f"{number} % 2", more), (f"coalesce({number}, 0) + 1", "bigint"),
                    (f"date_trunc('DAY', {moment})", "datetime(3)?"), (f"{text} IS NULL", "bool"),
                    *([(f"window({moment}, '2 days', '1 day')", "datetime(3)?")] * hops),
                    (f"CASE WHEN {self._condition(aliases)} THEN 'x' ELSE 'y' END", "varchar(9)"),
                ])  # fmt: skip
            if "null_keys" not in self.constructs:
                text, type_ = f"coalesce(CAST({text} AS STRING), '-')", "varchar(9)"
            keys.append((text, type_))
        return list(dict.fromkeys(keys))

    def _function(self, aliases: list[Alias]) -> tuple[str, str]:
        pick = self.chance.choice
        any_, type_ = self._item(aliases, "", otherwise="1")
        exact, exact_type = self._item(aliases, *EXACT)
        made = [("count(*)", "bigint"), (f"count({any_})", "bigint")]
        if columns := self._columns(aliases, "int", "bigint", "tinyint"):
            one, two = pick(columns), pick(columns)
            made += [(f"sum({one})", "bigint?"), (f"avg({one})", "double?"), (f"sum({one} * 2 - {two})", "bigint?")]
            if "distinct_of" in self.constructs:
                made.append((f"sum(DISTINCT {one})", "bigint?"))
        if columns := self._columns(aliases, "decimal(6,2)"):
            one = pick(columns)
            made += [(f"sum({one})", "decimal(16,2)?"), (f"avg({one})", "decimal(10,6)?")]
        if columns := self._columns(aliases, "double", "float"):
            made += [(f"{pick(['sum', 'avg'])}({pick(columns)})", "double?")] * 2
        if (columns := self._wide_columns(aliases)) and self.chance.random() < 0.3:
            one = pick(columns)
            return pick(
                [(f"sum({one})", "decimal(55,20)?"), (f"avg({one})", "decimal(49,24)?"), (f"count({one})", "bigint")]
            )
        if "distinct_of" in self.constructs:
            made += [(f"count(DISTINCT {exact})", "bigint")]
            made += [(f"count(DISTINCT {exact}, {self._item(aliases, *EXACT)[0]})", "bigint")]
        if "extremes" in self.constructs:
            made += [(f"{pick(['min', 'max'])}({any_})", type_)] * 3
        if "by" in self.constructs:
            # verify cannot compute it of inexact numbers and of bytes
            value, of = self._item(aliases, *EXACT, otherwise="1")
            made += [(f"{pick(['min_by', 'max_by'])}({value}, {exact})", of)] * 2
        if "lists" in self.constructs:
            made += [(f"collect_list({any_})", "list"), (f"collect_set({exact})", "list")]
        if "conditions" in self.constructs:
            condition = self._condition(aliases)
            made += [(f"sum({condition})", "bigint?")]
            made += [(f"count_if({condition})", "bigint"), (f"{pick(['bool_and', 'bool_or'])}({condition})", "bool?")]
        text, found = pick(made)
        if "statistics" in self.constructs:
            text, found = self._statistic(aliases, (exact, exact_type), (text, found))
        if self._maybe("filter", 0.2) and not text.startswith("array_join"):  # that is no aggregate itself
            text += f" FILTER (WHERE {self._condition(aliases)})"
        return text, found

    def _statistic(self, aliases: list[Alias], exact: tuple[str, str], otherwise: tuple[str, str]) -> tuple[str, str]:
        """Return a statistic instead of some functions. Its own dice leave the rest of a seed's query as it was."""
        dice = random.Random(" ".join(otherwise))
        numbers = self._columns(aliases, "int", "bigint", "tinyint", "decimal(6,2)", "double", "float")
        if dice.random() < 0.8:
            return otherwise
        if not numbers or dice.random() < 0.3:
            return f"mode({exact[0]})", exact[1]
        if dice.random() < 0.5:
            return self._with_literal(aliases, exact, numbers, dice)
        functions = ["median", "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"]
        return f"{dice.choice(functions)}({dice.choice(numbers)})", "double?"

    def _with_literal(
        self, aliases: list[Alias], exact: tuple[str, str], numbers: list[str], dice: random.Random
    ) -> tuple[str, str]:
        """Return a percentile, or the texts of a group in one."""
        number, share = dice.choice(numbers), dice.choice(["0", "0.25", "0.5", "0.9", "1"])
        other = dice.choice(self._columns(aliases, *EXACT) or ["1"])
        order = f"{other}{dice.choice(['', ' DESC', ' NULLS LAST'])}, {exact[0]}"
        return dice.choice([
            (f"percentile({number}, {share})", "double?"), (f"percentile_approx({exact[0]}, {share})", exact[1]),
            (f"percentile_cont({share}) WITHIN GROUP (ORDER BY {number}{dice.choice(['', ' DESC'])})", "double?"),
            (f"percentile_disc({share}) WITHIN GROUP (ORDER BY {number})", "double?"),
            (f"string_agg({exact[0]}, '-') WITHIN GROUP (ORDER BY {order})", "varchar(99)?"),
            (f"string_agg({exact[0]}, ', ')", "varchar(99)?"), (f"listagg(DISTINCT {exact[0]})", "varchar(99)?"),
            (f"array_join(collect_list({exact[0]}), '+')", "varchar(99)"),
        ])  # fmt: skip

    def _over_groups(self, keys: list[tuple[str, str]]) -> tuple[str, str]:
        """Return an aggregate over the groups of a partition."""
        columns = [key for key, _ in keys if re.fullmatch(r"\w+\.\w+", key)]
        partition = f"PARTITION BY {self.chance.choice(columns)}" if columns and self.chance.random() < 0.6 else ""
        return f"{self.chance.choice(['sum(count(*))', 'max(count(*))', 'count(*)'])} OVER ({partition})", "bigint?"

    def _over_partition(self, aliases: list[Alias]) -> tuple[str, str]:
        """Return an aggregate over the rows of a partition."""
        number, _ = self._item(aliases, "int", "bigint", "tinyint", otherwise="3")
        columns = [self._item(aliases, *EXACT, otherwise="")[0] for _ in range(self.chance.choice([0, 1, 1, 1, 2]))]
        partition = f"PARTITION BY {', '.join(columns)}" if columns and all(columns) else ""
        call, type_ = self.chance.choice([
            ("count(*)", "bigint"), (f"count({number})", "bigint"), (f"sum({number})", "bigint?"),
            (f"sum({number}) FILTER (WHERE {self._condition(aliases)})", "bigint?"), (f"avg({number})", "double?"),
        ])  # fmt: skip
        return f"{call} OVER ({partition})", type_

    def _over(self, aliases: list[Alias]) -> tuple[str, str]:
        number, _ = self._item(aliases, "int", "bigint", "tinyint", otherwise="2")
        any_, type_ = self._item(aliases, "varchar", otherwise="'none'")
        made = [(f"coalesce(sum({number}), 0) + count(*)", "bigint"), (f"sum({number}) / count(*)", "double?")]
        made += [(f"CASE WHEN count(*) > 1 THEN max({any_}) ELSE 'few' END", type_)] * ("extremes" in self.constructs)
        made += [(f"max({number}) - min({number})", "bigint?")] * ("extremes" in self.constructs)
        return self.chance.choice(made)

    def _having(self, aliases: list[Alias]) -> str:
        number, _ = self._item(aliases, "int", "bigint", "tinyint", otherwise="2")
        any_, _ = self._item(aliases, *EXACT)
        made = ["count(*) > 1", f"sum({number}) > 3", f"count({any_}) = 1 OR sum({number}) IS NULL"]
        made += [f"max({any_}) IS NOT NULL AND count(*) < 4"] * ("extremes" in self.constructs)
        return self.chance.choice(made)

    # -- columns

    def _columns(self, aliases: list[Alias], *types: str) -> list[str]:
        found = super()._columns(aliases, *types)
        listed = [f"{a.name}.{name}" for a in aliases for name, type_ in a.table.columns.items() if type_ == "list"]
        return [column for column in found if column not in listed]

    def _item(self, aliases: list[Alias], *types: str, otherwise: str = "1") -> tuple[str, str]:
        """Return a column of one of some types, and its type; a literal if there is none."""
        by_name = {f"{a.name}.{name}": type_ for a in aliases for name, type_ in a.table.columns.items()}
        found = self._columns(aliases, *types)
        if not found:
            return otherwise, "varchar(9)" if otherwise.startswith("'") else "date" if "DATE" in otherwise else "int"
        chosen = self.chance.choice(found)
        return chosen, by_name[chosen]


def names_of(keys: int, others: int) -> list[str]:
    return [*(f"k{i}" for i in range(keys)), *(f"x{i}" for i in range(others))]


def select_of(items: list[tuple[str, str]], columns: dict[str, str], text: str, word: str = "") -> str:
    said = ", ".join(f"{item} AS {name}" for (item, _), name in zip(items, columns, strict=True))
    return f"SELECT {word}{said}\n{text}"

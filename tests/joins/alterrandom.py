"""Random joins over tables that are altered: columns are added, dropped, widened and renamed, before the query is
compiled and while it runs."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from cdc.model.types import Canonical
from tests.joins.altering import altered_columns
from tests.joins.joincase import Case
from tests.joins.joinrandom import random_case, value_of

_WIDER = {
    "tinyint": "int",
    "int": "bigint",
    "decimal(6,2)": "decimal(9,3)",
    "varchar(9)": "varchar(30)",
    "datetime(3)": "datetime(6)",
}


def random_altered_case(seed: int, query: int | None = None) -> Case:
    """Return the case of a seed; `query`: the seed of its SELECT."""
    case = replace(random_case(seed if query is None else query, merged=False), delivery="exactly_once")
    return _Altered(random.Random(seed), case).case()


class _Altered:
    def __init__(self, chance: random.Random, case: Case) -> None:
        self.chance, self.made = chance, case
        read = case.query + "".join(view["query"] for view in case.views.values())
        self.conditions = read[read.find("WHERE") :] if "WHERE" in read else ""
        self.names = [name for name in case.tables if name in read]
        self.columns: dict[str, dict[str, Any]] = {}
        self.awaited: list[tuple[str, str]] = []  # columns of the query that do not exist yet
        self.unavailable: list[tuple[str, str]] = []  # those that have another name for a time
        self.history: list[list[Any]] = []

    def case(self) -> Case:
        chance = self.chance
        for name, declared in self.made.tables.items():
            self.columns[name] = dict(declared)
            for column in self._free(name):
                if chance.random() < 0.25 and name in self.names:
                    del self.columns[name][column]
                    self.awaited.append((name, column))
        tables = {name: dict(columns) for name, columns in self.columns.items()}
        for _ in range(chance.choice([0, 5, 15, 25])):
            self._word(running=False)
        for name, column in self.awaited:
            self._add(name, column)
            for _ in range(chance.randint(0, 3)):
                self._word(running=False)
        self.history.append(["start"])
        for _ in range(chance.randint(5, 25)):
            self._word(running=True)
        return replace(self.made, tables=tables, history=self.history)

    def _free(self, name: str) -> list[str]:
        """Return columns that may be added, dropped and changed."""
        known = self.columns[name]
        return [one for one in known if one not in ("key", "unused") and one not in known["key"]]

    def _word(self, *, running: bool) -> None:
        chance, name = self.chance, self.chance.choice(self.names)
        dice, free = chance.random(), self._free(name)
        if dice < 0.12 and free:
            self._alter(name, chance.choice(free), running=running)
        elif dice < 0.16 and running:
            self.history.append(["quiet"])
        elif dice < 0.19:
            self.history.append(["truncate", name])
        elif dice < 0.22:
            lost = [self._key(name) for _ in range(chance.randint(0, 3))]
            self.history.append(["snapshot", name, lost])
        elif dice < 0.4:
            self.history.append(["delete", name, self._key(name)])
        else:
            row = {one: self._value(type_) for one, type_ in self.columns[name].items() if one != "key"}
            self.history.append(["put", name, row])

    def _alter(self, name: str, column: str, *, running: bool) -> None:
        chance, type_ = self.chance, self.columns[name][column]
        if not column.startswith("v"):
            return  # rows with its former values could not be retracted: that needs a snapshot
        wider, dice = _WIDER.get(type_.removesuffix("?")), chance.random()
        if wider and dice < 0.5:
            self._did(["alter", name, {column: wider + "?" * type_.endswith("?")}])
        elif dice < 0.6:
            self._did(["alter", name, {column: None}])
        elif dice < 0.8:
            self._did(["rename", name, column, f"{column}_once"])
            self.unavailable.append((name, column))
        elif self.unavailable and running:
            name, column = self.unavailable.pop()
            if f"{column}_once" in self.columns[name] and column not in self.columns[name]:
                self._did(["rename", name, f"{column}_once", column])

    def _add(self, name: str, column: str) -> None:
        type_ = self.made.tables[name][column]
        default = None if type_.endswith("?") and self.chance.random() < 0.5 else self._value(type_.removesuffix("?"))
        self._did(["alter", name, {column: type_}, {column: default}])

    def _did(self, word: list[Any]) -> None:
        self.columns[word[1]] = altered_columns(self.columns[word[1]], word)
        self.history.append(word)

    def _key(self, name: str) -> dict[str, Canonical]:
        columns = self.columns[name]
        return {one: self._value(columns[one]) for one in columns["key"]}

    def _value(self, type_: str) -> Canonical:
        return value_of(type_, self.chance)

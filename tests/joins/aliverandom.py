"""Random histories of the servers behind a random join: traffic before, during and after the snapshot, and failures."""

from __future__ import annotations

import base64
import itertools
import random
from dataclasses import replace
from typing import Any

from cdc.model.types import Canonical
from tests.joins.altering import MERGED
from tests.joins.joincase import Case, Row
from tests.joins.joinrandom import random_case, random_view_case

Word = list[Any]
# What may happen, with its weight among a hundred words. Those of weight 0 hold for a whole history.
KINDS = {
    "never": 0,  # no initial snapshot
    "later": 0,  # tables that are added
    "cascades": 0,  # foreign keys that change rows without log events
    "untold": 0,  # partial images, and statements instead of rows
    "cleaner": 0,  # compaction, before the join reads and while it does
    "truncate": 2,
    "swap": 2,
    "recreate": 1,
    "snapshot": 2,
    "lost": 2,  # the server's log
    "forget": 1,  # a topic
}


def random_life(seed: int, query: int | None = None, kinds: tuple[str, ...] | None = None) -> Case:
    """Return the case of a seed; `query`: the seed of its schemas and SELECT, which several histories may share.

    Without `kinds` the seed chooses.
    """
    number = seed if query is None else query
    return life_of((random_view_case if number % 4 == 3 else random_case)(number), seed, kinds)


def life_of(case: Case, seed: int, kinds: tuple[str, ...] | None = None) -> Case:
    """Return the case with a random history of the servers."""
    return replace(case, history=_Life(random.Random(seed), case, kinds).history())


class _Life:
    """Tracks the tables' content, so that words refer to existing rows."""

    def __init__(self, chance: random.Random, case: Case, kinds: tuple[str, ...] | None) -> None:
        self.chance, self.case = chance, case
        read = case.query + "".join(view["query"] for view in case.views.values())
        self.names = [name for name in case.tables if name in read]
        self.sources = sorted({name.partition(".")[0] for name in self.names})
        if kinds is None:
            kinds = tuple(chance.sample(list(KINDS), chance.choice([0, 2, 3, 4, len(KINDS)])))
        self.kinds = kinds
        self.rows: dict[str, dict[tuple[Canonical, ...], Row]] = {name: {} for name in self.names}
        self.keys = chance.choice([2, 3, 4, 6])

    def history(self) -> list[Word]:
        chance = self.chance
        never = [source for source in self.sources if "never" in self.kinds and chance.random() < 0.5]
        later = [name for name in self.names if "later" in self.kinds and chance.random() < 0.4]
        words: list[Word] = [*(["never", source] for source in never), *(["later", name] for name in later)]
        if "untold" in self.kinds:
            words += [["untold", source, chance.choice([0.1, 0.4])] for source in self.sources]
        if "cascades" in self.kinds:
            words += self._foreign([name for name in self.names if name not in later])
        if "cleaner" in self.kinds:
            words.append(["cleaner"])
        before = [word for _ in range(chance.choice([0, 10, 20, 40])) if (word := self._change())]
        after: list[Word] = []
        for _ in range(chance.randint(3, 40)):
            after += self._word()
        due = [["add", name] for name in later]
        due += [["snapshot", name] for name in self.names if name.partition(".")[0] in never]
        for word in due:  # a table is added before it is read again
            known = [at for at, one in enumerate(after) if one == ["add", word[1]]]
            after.insert(chance.randint(max(known, default=-1) + 1, len(after)), word)
        if chance.random() < 0.3:
            after.insert(chance.randint(0, len(after)), ["join"])
        return [*words, *before, ["start"], *after]

    def _foreign(self, parents: list[str]) -> list[Word]:
        """Return foreign keys on join columns. Either the parent is captured, or its changes are unknown."""
        chance, words = self.chance, []
        for child, parent in itertools.permutations(self.names, 2):
            key, theirs, ours = self.case.tables[parent]["key"], self.case.tables[parent], self.case.tables[child]
            source = child.partition(".")[0]
            if parent not in parents or source != parent.partition(".")[0] or source == MERGED or len(key) > 1:
                continue
            for column, type_ in ours.items():
                if column.partition("_")[2] != key[0] or column in ours["key"] or chance.random() < 0.3:
                    continue
                if type_.removesuffix("?") == theirs[key[0]].removesuffix("?"):
                    rules = ["CASCADE", "NO ACTION", *(["SET NULL"] if type_.endswith("?") else [])]
                    words.append(["foreign", child, column, parent, chance.choice(rules), chance.choice(rules)])
        return words

    def _word(self) -> list[Word]:
        chance = self.chance
        dice = chance.random() * 100
        for trouble in self.kinds:
            dice -= 2 * KINDS[trouble]
            if dice < 0:
                return self._trouble(trouble, chance.choice(self.names))
        dice = chance.random()
        if dice < 0.05:
            return [["quiet"]]
        if dice < 0.12:
            source = chance.choice(self.sources)
            names = [name for name in self.names if name.partition(".")[0] == source]
            words = [word for _ in range(chance.randint(1, 4)) if (word := self._change(chance.choice(names)))]
            once = {(word[1], str(self._key(word[1], word[2]))): word for word in words if word[0] != "move"}
            return [["all", list(once.values())]] if once else []
        word = self._change()
        return [word] if word else []

    def _trouble(self, trouble: str, name: str) -> list[Word]:
        chance = self.chance
        if trouble == "lost":
            source = name.partition(".")[0]
            names = [one for one in self.names if one.partition(".")[0] == source]
            words = [word for _ in range(chance.randint(1, 6)) if (word := self._change(chance.choice(names)))]
            return [["lost", source, words]] if words else []
        if trouble in ("snapshot", "forget"):
            return [[trouble, name]]
        self.rows[name] = {}
        if trouble != "swap":
            return [[trouble, name]]
        for _ in range(chance.randint(0, 5)):
            row = self._row(name)
            self.rows[name][self._key(name, row)] = row
        return [["swap", name, list(self.rows[name].values())]]

    def _change(self, name: str | None = None) -> Word | None:
        """Return a change of a row, mostly of an existing one."""
        chance = self.chance
        name = name or chance.choice(self.names)
        known = self.rows[name]
        dice = chance.random()
        if not known or dice < 0.3 or (len(known) < self.keys and dice < 0.7):
            return self._put(name, self._row(name))
        row = chance.choice(list(known.values()))
        if dice < 0.4:
            del known[self._key(name, row)]
            return ["delete", name, {column: row[column] for column in self.case.tables[name]["key"]}]
        if dice < 0.7:
            return self._put(name, {**row, "unused": chance.randint(5, 99)})
        if dice < 0.8:
            other = {**row, **{c: self._value(name, c) for c in self.case.tables[name]["key"]}}
            if self._key(name, other) in known:
                return None
            known[self._key(name, other)] = other
            del known[self._key(name, row)]
            return ["move", name, {column: row[column] for column in self.case.tables[name]["key"]}, other]
        free = [column for column in row if column not in self.case.tables[name]["key"]]
        column = chance.choice(free)
        return self._put(name, {**row, column: self._value(name, column)})

    def _put(self, name: str, row: Row) -> Word:
        self.rows[name][self._key(name, row)] = row
        return ["put", name, row]

    def _key(self, name: str, row: Row) -> tuple[Canonical, ...]:
        return tuple(row[column] for column in self.case.tables[name]["key"])

    def _row(self, name: str) -> Row:
        return {column: self._value(name, column) for column in self.case.tables[name] if column != "key"}

    def _value(self, name: str, column: str) -> Canonical:
        type_ = self.case.tables[name][column]
        n = self.chance.randint(1, self.keys)
        if type_.endswith("?") and self.chance.random() < 0.1:
            return None
        match type_.removesuffix("?").partition("(")[0]:
            case "int" | "bigint" | "tinyint":
                return n
            case "decimal":
                scale = int(type_.removesuffix("?").rstrip(")").rpartition(",")[2])
                return f"{n}.{self.chance.choice(['0', '5'])}".ljust(scale + 2, "0")
            case "varchar":
                return f"n{n}"
            case "date":
                return f"2026-01-0{n}Z"
            case "datetime":
                return f"2026-01-0{n}T00:00:00{self.chance.choice(['', '.5'])}Z"
            case "double":
                return n / 2
            case "float":
                return n + self.chance.choice([0.5, 0.1])
            case "varbinary":
                return base64.b64encode(bytes([n, 255 - n])).decode()
        raise AssertionError(type_)

"""Random queries for the first rows per group: over tables, joins and groups, with the limit in every supported
form."""

from __future__ import annotations

import re

from tests.joins.agggroups import EXACT, GroupGenerator, names_of, select_of
from tests.joins.joinrandom import Alias, Table, is_wide

_ORDERED = (*EXACT, "double")
_MOST = [1, 1, 2, 3, 100]


class TopGenerator(GroupGenerator):
    """Makes queries that keep the first rows of each group."""

    def _topped(self, aliases: list[Alias], text: str) -> Table:
        """Return the first of some rows, identified by their own key or by their number."""
        keys = [(f"{a.name}.{c}", a.table.columns[c]) for a in aliases if a.name in ("r", "m") for c in a.table.key]
        parts = list(dict.fromkeys(self._item(aliases, *EXACT) for _ in range(self.chance.choice([0, 1, 1, 1, 2]))))
        more = [self._item(aliases) for _ in range(self.chance.randint(1, 3))]
        order = [self._item(aliases, *_ORDERED)[0] for _ in range(self.chance.randint(1, 2))]
        names = names_of(len(keys), len(more)) + [f"p{i}" for i in range(len(parts))]
        items = [*keys, *more, *parts]
        columns = {name: type_ for name, (_, type_) in zip(names, items, strict=True)}
        # a key that the query does not show may break ties, too
        hides = self.chance.random() < 0.3 and bool(parts)
        shown = {name: type_ for name, type_ in columns.items() if not (hides and name[0] == "k")}
        over = self._over_rows([part for part, _ in parts], order)
        said = [(item, shown[name]) for name, (item, _) in zip(names, items, strict=True) if name in shown]
        inner = select_of([*said, (over, "int")], {**shown, "n": "int"}, text)
        own = [] if hides else names[: len(keys)]
        # a number would be the number of a column
        if parts and self._maybe("distinct_on", 0.2) and not any(part.isdigit() for part, _ in parts):
            return self._first_of_each(said, shown, text, [part for part, _ in parts], order)
        return self._first(inner, shown, own, [f"p{i}" for i in range(len(parts))])

    def _first_of_each(
        self, said: list[tuple[str, str]], shown: dict[str, str], text: str, parts: list[str], order: list[str]
    ) -> Table:
        """Return the first row of each group by DISTINCT ON."""
        more = [one + self.chance.choice(["", " DESC", " NULLS LAST"]) for one in order if self.chance.random() < 0.8]
        found = select_of(said, shown, text, f"DISTINCT ON ({', '.join(parts)}) ")
        found += f"\nORDER BY {', '.join([*parts, *more])}" if more or self.chance.random() < 0.5 else ""
        return Table(found, [name for name in shown if name[0] == "p"], shown)

    def _topped_groups(self, text: str, columns: dict[str, str], keys: list[tuple[str, str]]) -> Table:
        """Return the first rows of a grouped query, numbered by its aggregates in the same SELECT."""
        select, _, rest = text.partition("\n")
        said = select.removeprefix("SELECT ")
        exact = [i for i, (_, type_) in enumerate(keys) if type_.removesuffix("?").startswith(EXACT)]
        parts = self.chance.sample(exact, min(len(exact), self.chance.randint(0, 1)))
        order = [self.chance.choice(["count(*)", *(key for key, _ in keys)])]
        over = self._over_rows([keys[i][0] for i in parts], order)
        inner = f"SELECT {said}, {over} AS n\n{rest}"
        names = list(columns)
        return self._first(inner, columns, names[: len(keys)], [names[i] for i in parts])

    def _over_rows(self, parts: list[str], order: list[str]) -> str:
        directions = ["", "", " ASC", " DESC", " DESC", " NULLS LAST", " DESC NULLS FIRST"]
        ordered = ", ".join(one + self.chance.choice(directions) for one in order)
        return f"ROW_NUMBER() OVER ({'PARTITION BY ' + ', '.join(parts) + ' ' if parts else ''}ORDER BY {ordered})"

    def _first(self, inner: str, columns: dict[str, str], own: list[str], parts: list[str]) -> Table:
        """Return the rows with a small enough number, identified by `own` columns, or by their group and number."""
        most = self.chance.choice(_MOST)
        places = [*parts, *(["n"] if most > 1 else [])]
        keys = self.chance.choice([one for one in (own, places) if one] or [["n"]])
        shown = [name for name in columns if name in keys or self.chance.random() < 0.7]
        if "n" in keys or self.chance.random() < 0.5:
            shown.append("n")
        if not keys or keys == ["n"]:
            shown = [name for name in shown if name != "n"] + ["n"]
        types = {**columns, "n": "int"}
        made = {name: types[name] for name in shown}
        if self.chance.random() < 0.15:
            text = f"{inner}\nQUALIFY n <= {most}"
            return Table(text, keys, types)
        numbered = re.search(r", ROW_NUMBER\(\) OVER \(ORDER BY (.*?)\) AS n\n", inner)
        if numbered is not None and own and self.chance.random() < 0.4:
            text = f"{inner.replace(numbered[0], chr(10))}\nORDER BY {numbered[1]} LIMIT {most}"
            if most < 100 and self._maybe("offset", 0.4):
                text += f" OFFSET {self.chance.randint(1, 2)}"
            return Table(text, own, columns)
        limit = self.chance.choice([f"t.n <= {most}", f"{most} >= t.n", f"t.n < {most + 1}", f"n <= {most}"])
        if self.chance.random() < 0.15:
            limit = f"t.n = {most}"
        elif self.chance.random() < 0.1:
            limit = f"t.n BETWEEN 1 AND {most}"
        if self.chance.random() < 0.2:
            plain = [name for name, type_ in columns.items() if type_ != "list" and not is_wide(type_)]
            limit = f"t.{self.chance.choice(plain)} IS NOT NULL AND {limit}"
        return Table(f"SELECT {', '.join(f't.{name}' for name in shown)}\nFROM ({inner}) t\nWHERE {limit}", keys, made)

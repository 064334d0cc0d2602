"""Other forms of random queries: several sets of groups, RIGHT JOIN after joins, names in another case."""

from __future__ import annotations

import re

from tests.joins.agggroups import names_of, select_of
from tests.joins.aggover import OverGenerator
from tests.joins.joinrandom import Alias, Join, Table

_NAMED = re.compile(r"\b([a-su-z]\d*)\.([a-z]\w*)\b")  # r.v0, j1.id


class FormGenerator(OverGenerator):
    """Makes queries in forms that the compiler rewrites."""

    def _grouped_in_sets(self, aliases: list[Alias], text: str) -> Table:
        """Return groups by several sets of columns, identified by the columns and the number of the set."""
        keys = list(dict.fromkeys(key for key in self._keys(aliases) if re.fullmatch(r"\w+\.\w+", key[0])))
        keys = keys[:3] or [self._item(aliases, "int", "bigint", "tinyint", "varchar", otherwise="2")]
        if not re.fullmatch(r"\w+\.\w+", keys[0][0]):
            return self._grouped(aliases, text)
        functions = [self._function(aliases) for _ in range(self.chance.randint(1, 3))]
        names, listed = [key for key, _ in keys], ", ".join(key for key, _ in keys)
        sets = [
            ", ".join(names[:-1]),
            ", ".join(name for name in names if self.chance.random() < 0.6) + ", " + names[-1],
            names[0],
        ]
        said = ", ".join(dict.fromkeys(f"({', '.join(dict.fromkeys(s.strip(', ').split(', ')))})" for s in sets))
        forms = [f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS ({said})"]
        forms += [f"{listed} WITH ROLLUP", f"{names[0]}, ROLLUP ({', '.join(names[1:])})"] if len(names) > 1 else []
        number = [("grouping_id()", "bigint")]
        if self.chance.random() < 0.4:
            number = [(f"grouping({name})", "int") for name in names]
        items = [*number, *keys, *functions]
        columns = {
            name: type_.rstrip("?") + "?" * (place >= len(number))
            for place, (name, (_, type_)) in enumerate(
                zip(names_of(len(number) + len(keys), len(functions)), items, strict=True)
            )
        }
        text = select_of(items, columns, text) + f"\nGROUP BY {self.chance.choice(forms)}"
        if self.chance.random() < 0.3:
            text += f"\nHAVING {self.chance.choice(['count(*) > 1', f'grouping({names[0]}) = 0 OR count(*) < 4'])}"
        return Table(text, list(columns)[: len(number) + len(keys)], columns)

    def _from_right(self, root: Alias, joins: list[Join], where: list[str]) -> str | None:
        """Return FROM with the tables that the first LEFT JOIN leads to before a RIGHT JOIN of the root."""
        first, kind, on = joins[0]
        if kind != "LEFT JOIN":
            return None
        inside, behind = [first.name], list[Join]()
        group: list[Join] = []
        for join in joins[1:]:
            tables = {name for condition in join[2] for name, _ in _NAMED.findall(condition)}
            if tables <= {*inside, join[0].name} and join[1] in ("JOIN", "LEFT JOIN"):
                inside.append(join[0].name)
                group.append(join)
            else:
                behind.append(join)
        if not group or any(kind not in ("JOIN", "LEFT JOIN") for _, kind, _ in behind):
            return None
        return self._from(first, [*group, (root, "RIGHT JOIN", on), *behind], where)

    def _in_another_case(self, text: str) -> str:
        """Return a query in which some names of tables and columns are in capitals."""

        def other(found: re.Match[str]) -> str:
            return self.chance.choice([found[0], found[0].upper(), f"{found[1]}.{found[2].upper()}"])

        return _NAMED.sub(other, text)

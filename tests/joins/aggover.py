"""Random queries with window functions over ordered partitions: of tables and joins, of groups, and in QUALIFY."""

from __future__ import annotations

from tests.joins.agggroups import EXACT, names_of, select_of
from tests.joins.aggtop import TopGenerator
from tests.joins.joinrandom import Alias, Table

_ORDERED = (*EXACT, "double")
_DIRECTIONS = ["", "", "", " ASC", " DESC", " DESC", " NULLS LAST", " DESC NULLS FIRST"]
_RANGES = ["UNBOUNDED PRECEDING AND CURRENT ROW", "CURRENT ROW AND UNBOUNDED FOLLOWING", "CURRENT ROW AND CURRENT ROW"]
_WHOLE = "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


class OverGenerator(TopGenerator):
    """Makes queries with window functions."""

    def _ordered(self, aliases: list[Alias], text: str) -> Table:
        """Return rows with the values of window functions, identified by their own key."""
        keys = [(f"{a.name}.{c}", a.table.columns[c]) for a in aliases if a.name in ("r", "m") for c in a.table.key]
        more = [self._item(aliases) for _ in range(self.chance.randint(0, 2))]
        windows = self._windows(aliases)
        names = names_of(len(keys), len(more) + len(windows))
        items = [*keys, *more, *windows]
        columns = {name: type_ for name, (_, type_) in zip(names, items, strict=True)}
        made = select_of(items, columns, text)
        if self.chance.random() < 0.15:
            own = zip(names[-len(windows) :], windows, strict=True)
            number = next((name for name, (_, type_) in own if type_ == "int"), None)
            rank = f"dense_rank() OVER ({self._over_by(aliases)})" if number is None else number
            made += f"\nQUALIFY {rank} {self.chance.choice(['<= 2', '> 1', '= 1'])}"
        return Table(made, names[: len(keys)], columns)

    def _windows(self, aliases: list[Alias]) -> list[tuple[str, str]]:
        """Return one to three window functions with their types, often of one order."""
        over, made = self._over_by(aliases), list[tuple[str, str]]()
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            if self.chance.random() < 0.3:
                over = self._over_by(aliases)
            made.append(self._window(aliases, over))
        if self.chance.random() < 0.2:
            number, _ = self._item(aliases, "int", "bigint", "tinyint", otherwise="2")
            made.append((f"coalesce({number}, 0) + rank() OVER ({over})", "bigint?"))
        return made

    def _over_by(self, aliases: list[Alias]) -> str:
        """Return PARTITION BY and ORDER BY."""
        parts = [self._item(aliases, *EXACT)[0] for _ in range(self.chance.choice([0, 1, 1, 1, 2]))]
        if self.chance.random() < 0.2:
            number, _ = self._item(aliases, "int", "bigint", "tinyint", otherwise="1")
            parts.append(f"{number} % 2")
        order = [self._item(aliases, *_ORDERED)[0] for _ in range(self.chance.randint(1, 2))]
        ordered = ", ".join(one + self.chance.choice(_DIRECTIONS) for one in order)
        return f"{'PARTITION BY ' + ', '.join(parts) + ' ' if parts else ''}ORDER BY {ordered}"

    def _frame(self) -> str:
        """Return a frame, or none."""
        dice, pick = self.chance.random(), self.chance.choice
        if dice < 0.4:
            return ""
        if dice < 0.6:
            return f" RANGE BETWEEN {pick([*_RANGES, _WHOLE])}"
        if dice < 0.7:
            return f" ROWS {pick(['2 PRECEDING', 'UNBOUNDED PRECEDING', 'CURRENT ROW'])}"
        if dice < 0.8:
            return f" ROWS BETWEEN {_WHOLE}"
        start, end = sorted(self.chance.randint(-3, 3) for _ in range(2))
        limits = [f"{abs(n)} {'PRECEDING' if n < 0 else 'FOLLOWING'}" if n else "CURRENT ROW" for n in (start, end)]
        first, last = pick([limits[0], "UNBOUNDED PRECEDING"]), pick([limits[1], "UNBOUNDED FOLLOWING"])
        return f" ROWS BETWEEN {first} AND {last}"

    def _window(self, aliases: list[Alias], over: str) -> tuple[str, str]:
        """Return a window function and its type."""
        pick = self.chance.choice
        value, type_ = self._item(aliases)
        maybe = type_.removesuffix("?") + "?"
        number, _ = self._item(aliases, "int", "bigint", "tinyint", otherwise="2")
        exact, of = self._item(aliases, *EXACT)
        skips = pick(["", "", " IGNORE NULLS"])
        distance = self.chance.randint(1, 3)
        kind = pick(["rank", "offset", "value", "aggregate"])
        if kind == "rank":
            call, found = pick([
                ("rank()", "int"), ("dense_rank()", "int"), ("row_number()", "int"), (f"ntile({distance})", "int"),
                ("percent_rank()", "double"), ("cume_dist()", "double"),
            ])  # fmt: skip
            return f"{call} OVER ({over})", found
        if kind == "offset":
            name = pick(["lag", "lead"])
            call = pick([f"{name}({value}){skips}", f"{name}({value}, {distance}){skips}"])
            if self.chance.random() < 0.2:  # a number has a default of the same type
                integer, whole = self._item(aliases, "int", otherwise="2")
                if whole.removesuffix("?") == "int":
                    return f"{name}({integer}, {distance}, {pick(['7', integer])}) OVER ({over})", "int?"
            return f"{call} OVER ({over})", maybe
        frame = self._frame()
        if kind == "value":
            call = pick([
                f"first_value({value}){skips}", f"last({value}){skips}", f"last_value({value}){skips}",
                f"nth_value({value}, {distance}){skips}",
                f"first({value})", f"last({value})",
            ])  # fmt: skip
            return f"{call} OVER ({over}{frame})", maybe
        call, found = pick([
            ("count(*)", "bigint"), (f"count({value})", "bigint"), (f"sum({number})", "bigint?"),
            (f"sum({number}) FILTER (WHERE {self._condition(aliases)})", "bigint?"), (f"avg({number})", "double?"),
            (f"min({exact})", of.removesuffix("?") + "?"), (f"max({exact})", of.removesuffix("?") + "?"),
            (f"max_by({exact}, {number})", of.removesuffix("?") + "?"), (f"count_if({number} > 1)", "bigint"),
        ])  # fmt: skip
        if self.chance.random() < 0.15 and (columns := self._columns(aliases, "double", "float", "decimal(6,2)")):
            call, found = f"avg({pick(columns)})", "double?"
            if call[4:-1] not in self._columns(aliases, "double", "float"):
                found = "decimal(10,6)?"
        return f"{call} OVER ({over if self.chance.random() < 0.9 else over.partition('ORDER BY')[0]}{frame})", found

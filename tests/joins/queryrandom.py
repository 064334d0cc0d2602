"""Random queries with the forms that people write, nested in each other and in those of `aggrandom`: joins by
expressions, outer columns without their table, equalities that an OR shares, SEMI and ANTI JOIN, single rows as values,
FULL JOIN with one key, names of windows, regular expressions, patterns of dates, texts of groups in one, WITH in FROM.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

from tests.joins.agggroups import EXACT, names_of, select_of
from tests.joins.aggrandom import CONSTRUCTS, MANY, Aggregated
from tests.joins.joincase import Case
from tests.joins.joinrandom import Alias, Join, Table, is_wide

NEW = frozenset({
    "computed", "bare", "shared", "semi", "single", "full_key", "named_windows", "patterns", "formats", "concat",
    "with_in_from", "pivot",
})  # fmt: skip
ALL = CONSTRUCTS | MANY | NEW
_OVER = re.compile(r"OVER \(([^()]*)\)")


def random_query(seed: int, query: int | None = None, constructs: frozenset[str] = ALL) -> Case:
    """Return the case of a seed, the same in every run. `query`: the seed of its schemas and SELECT, which many
    share."""
    happens = random.Random(seed)
    return QueryGenerator(random.Random(seed if query is None else query), happens, constructs).case()


class QueryGenerator(Aggregated):
    """Makes queries with all forms."""

    def __init__(self, chance: random.Random, happens: random.Random, constructs: frozenset[str]) -> None:
        super().__init__(chance, happens, constructs)
        self.turns = False  # a RIGHT JOIN may follow, whose query must name the table of each column
        self.semi: list[
            tuple[str, str]
        ] = []  # the tables that the next FROM joins so: the table that ON needs, the text

    # -- queries as tables

    def _made(self, tables: list[Table], kinds: list[str], *, last: bool = False) -> Table:
        if self._maybe("full_key", 0.06) and (made := self._full_joined(tables)) is not None:
            return made
        if self._maybe("pivot", 0.03) and (made := self._pivoted(tables)) is not None:
            return made
        return super()._made(tables, kinds, last=last)

    def _placed(self, made: Table, size: int) -> Table:
        found = super()._placed(made, size)
        if found.name.startswith("(") and self._maybe("with_in_from", 0.3):
            text = f"(WITH inside AS {found.name} SELECT {', '.join(made.columns)} FROM inside)"
            self.plain |= {text} if found.name in self.plain else set()
            return replace(found, name=text)
        return found

    def _full_joined(self, tables: list[Table]) -> Table | None:
        """Return groups of two tables side by side, identified by their one key."""
        found = [
            (one, other, a, b)
            for one in tables
            for other in tables
            for a, type_ in one.columns.items()
            for b, theirs in other.columns.items()
            if type_.startswith(EXACT) and type_.strip("?") == theirs.strip("?")
            if "unused" not in (a, b) and not is_wide(type_) and a not in one.computed and b not in other.computed
        ]
        if not found:
            return None
        one, other, a, b = self.chance.choice(found)
        sides = [self._side(Alias("r", table, True), name) for table, name in ((one, a), (other, b))]
        never = self.chance.choice([(True, True), (True, False), (False, True)])
        texts = []
        for (text, key, _), never_null in zip(sides, never, strict=True):
            where = f"\nWHERE {key} IS NOT NULL" if never_null else ""
            texts.append(f"({text}{where}\nGROUP BY {self.chance.choice([key, '1'])})")
        using = self.chance.random() < 0.3
        on = "USING (g)" if using else f"ON {self.chance.choice(['a.g = b.g', 'b.g = a.g'])}"
        shown = "g" if using else self.chance.choice(["coalesce(a.g, b.g)", "coalesce(b.g, a.g)"])
        items = [(shown, one.columns[a].strip("?") + "?")]
        items += [(f"{alias}.n", "bigint?") for alias in "ab"]
        items += [(f"{alias}.x", types) for alias, (_, _, types) in zip("ab", sides, strict=True)]
        items.append(("coalesce(a.n, 0) - coalesce(b.n, 0)", "bigint"))
        items = [items[0], *self.chance.sample(items[1:], self.chance.randint(1, 5))]
        columns = {name: type_ for name, (_, type_) in zip(names_of(1, len(items) - 1), items, strict=True)}
        text = f"FROM {texts[0]} a\nFULL JOIN {texts[1]} b {on}"
        if self.chance.random() < 0.3:
            text += (
                f"\nWHERE {self.chance.choice(['a.n', 'b.n'])} {self.chance.choice(['IS NULL', '> 1', 'IS NOT NULL'])}"
            )
        return Table(select_of(items, columns, text), ["k0"], columns)

    def _side(self, alias: Alias, name: str) -> tuple[str, str, str]:
        """Return the groups of a table's rows without WHERE and GROUP BY, their key and the type of their value."""
        value, type_ = self._function([alias])
        while type_ == "list" or value.startswith("GROUP_CONCAT"):
            value, type_ = self._item([alias], *EXACT)
            value = f"max({value})"
        key = f"r.{name}"
        return f"SELECT {key} AS g, count(*) AS n, {value} AS x\nFROM {alias.table.name} r", key, type_.strip("?") + "?"

    def _pivoted(self, tables: list[Table]) -> Table | None:
        """Return a table's rows with a column for each of some numbers."""
        alias = Alias("r", self.chance.choice(tables), True)
        numbers = [one for one in self._columns([alias], "int") if one.partition(".")[2] not in alias.table.computed]
        keys = [one for one in self._columns([alias], *EXACT) if one not in numbers[:1]]
        if not numbers or not keys:
            return None
        key = self.chance.choice(keys)
        by_name = {f"r.{name}": type_ for name, type_ in alias.table.columns.items()}
        text = (
            f"SELECT * FROM (SELECT {key} AS k0, {numbers[0]} AS kind, {self.chance.choice(numbers)} AS v\n"
            f"FROM {alias.table.name} r)\nPIVOT (sum(v) AS s, count(*) AS n FOR kind IN (1 AS one, 3 AS three))"
        )
        columns = {"k0": by_name[key], "one_s": "bigint?", "one_n": "bigint?", "three_s": "bigint?"}
        return Table(text, ["k0"], {**columns, "three_n": "bigint?"})

    # -- joins

    def _read(self, tables: list[Table], *, on: bool = True) -> tuple[list[Alias], str]:
        self.turns = self.chance.random() < 0.4
        return super()._read(tables, on=on)

    def _maybe(self, construct: str, share: float) -> bool:
        wrong = (construct == "right" and not self.turns) or (construct == "bare" and self.turns)
        return super()._maybe(construct, share) and not wrong

    def _joins(self, tables: list[Table]) -> tuple[list[Alias], list[Join]]:
        aliases, joins = super()._joins(tables)
        for alias, _, on in joins:
            for at, condition in enumerate(on[: len(alias.table.key)]):
                if self._maybe("computed", 0.15):
                    on[at] = self._by_expression(condition, alias)
        return aliases, joins

    def _by_expression(self, condition: str, joined: Alias) -> str:
        """Return the equality of a joined table's key with an expression, instead of one with a column."""
        left, _, right = condition.partition(" = ")
        own, other = (left, right) if left.startswith(f"{joined.name}.") else (right, left)
        if not re.fullmatch(r"\w+\.\w+", other):
            return condition
        type_ = joined.table.columns[own.partition(".")[2]].strip("?")
        computed = self._value_of(other, type_)
        return condition if computed is None else f"{own} = {computed}"

    def _value_of(self, column: str, type_: str) -> str | None:
        """Return an expression over a column of a type. It has the same type, or is another integer."""
        if type_ in ("int", "bigint", "tinyint"):
            number = self.chance.choice(["{0} + 1", "{0} * 1", "coalesce({0}, 2)", "{0} % 3", "{0} - 1"])
            return (
                f"CAST({number.format(column)} AS {type_.upper()})"
                if self.chance.random() < 0.5
                else number.format(column)
            )
        if type_.startswith("varchar"):
            text = ["lower({0})", "concat('n', right({0}, 1))", "coalesce({0}, 'n2')", "trim({0})", "left({0}, 2)"]
            return self.chance.choice(text).format(column)
        return None

    def _meet(self, aliases: list[Alias], joins: list[Join], tables: list[Table]) -> None:
        super()._meet(aliases, joins, tables)
        if not joins or joins[-1][0].name != "m" or not self._maybe("computed", 0.3):
            return
        alias, kind, (condition, *more) = joins[-1]
        own, _, other = condition.partition(" = ")
        types = alias.table.columns[own.partition(".")[2]].strip("?")
        sides = [self._value_of(side, types) for side in (own, other)]
        if types in ("int", "varchar(9)") and all(sides):
            chosen = self.chance.choice([(own, sides[1]), (sides[0], other), (sides[0], sides[1])])
            joins[-1] = (alias, kind, [f"{chosen[0]} = {chosen[1]}", *more])

    def _bare(self, condition: str, aliases: list[Alias], inner: Alias) -> str:
        if not self._maybe("bare", 0.5):
            return condition
        owners: dict[str, list[str]] = {}
        for alias in aliases:
            for name in alias.table.columns:
                owners.setdefault(name, []).append(alias.name)

        def shown(found: re.Match[str]) -> str:
            table, name = found[1], found[2]
            hidden = name in inner.table.columns or len(owners.get(name, [])) != 1
            return name if table == inner.name or not hidden else found[0]

        return re.sub(r"\b([a-z]\d*)\.(\w+)\b", shown, condition)

    def _exists(self, aliases: list[Alias], tables: list[Table], number: int) -> list[str]:
        if not self._maybe("semi", 0.3):
            return super()._exists(aliases, tables, number)
        inner = Alias(f"e{number + len(self.semi)}", self.chance.choice(tables), True)
        columns = self._compared(aliases, inner)
        if columns:
            outside, inside = self.chance.choice(columns)
            on = [f"{inside} = {outside}"] + [self._condition([inner])] * (self.chance.random() < 0.4)
            kind = self.chance.choice(["LEFT SEMI JOIN", "LEFT ANTI JOIN", "SEMI JOIN", "ANTI JOIN"])
            text = f"{kind} {inner.table.name} {inner.name} ON {' AND '.join(on)}"
            self.semi.append((outside.partition(".")[0], text))
        return []

    def _from(self, root: Alias, joins: list[Join], where: list[str]) -> str:
        semi, self.semi = self.semi, []
        if semi:
            lines = [f"FROM {root.table.name} {root.name}"]
            named = [root.name]
            for alias, kind, on in joins:
                lines.append(f"{kind} {alias.table.name} {alias.name} ON {' AND '.join(on)}")
                named.append(alias.name)
            for table, text in semi:
                lines.insert(self.chance.randint(named.index(table) + 1, len(lines)), text)
            return "\n".join(lines) + (f"\nWHERE {' AND '.join(where)}" if where else "")
        if joins and all(kind == "JOIN" for _, kind, _ in joins) and self._maybe("shared", 0.3):
            aliases = [root, *(alias for alias, _, _ in joins)]
            shared = []
            for _, _, on in joins:
                equal, some = " AND ".join(on), [self._condition(aliases) for _ in range(self.chance.randint(1, 2))]
                own = [f"({equal} AND {one})" for one in some]
                own += [f"({equal})"] if len(own) == 1 else []
                self.chance.shuffle(own)
                shared.append(f"({' OR '.join(own)})" if self.chance.random() < 0.7 else equal)
            text = "FROM " + ", ".join(f"{alias.table.name} {alias.name}" for alias in aliases)
            return f"{text}\nWHERE {' AND '.join([*shared, *where])}"
        return super()._from(root, joins, where)

    # -- values

    def _scalar(self, aliases: list[Alias], tables: list[Table]) -> tuple[str, str]:
        if not self._maybe("single", 0.4):
            return super()._scalar(aliases, tables)
        by_name = {table.name: table for table in tables}
        found = [(a, columns, name) for a in aliases for columns, name in a.table.references if name in by_name]
        numbers = [one for one in found if any(_is_number(t) for t in by_name[one[2]].columns.values())]
        if not numbers:
            return super()._scalar(aliases, tables)
        alias, columns, name = self.chance.choice(numbers)
        inner = Alias("s", by_name[name], True)
        number, type_ = self._item([inner], "int", "bigint", "tinyint")
        if self.chance.random() < 0.3:
            number, type_ = f"{number} + 1", "bigint"
        where = [self._bare(f"s.{theirs} = {alias.name}.{ours}", aliases, inner) for theirs, ours in columns.items()]
        where += [self._condition([inner])] * (self.chance.random() < 0.2)
        return f"(SELECT {number} FROM {name} s WHERE {' AND '.join(where)})", type_.strip("?") + "?"

    def _condition(self, aliases: list[Alias]) -> str:
        texts, dates = self._columns(aliases, "varchar"), self._columns(aliases, "date")
        if texts and self._maybe("patterns", 0.12):
            one = self.chance.choice(texts)
            return self.chance.choice([
                f"{one} RLIKE '^n[12]'", f"NOT {one} RLIKE '3$'", f"regexp_like({one}, '[2-4]$')",
                f"regexp_extract({one}, '^([a-z])([0-9])', 2) = '1'", f"regexp_replace({one}, '[0-9]', '#') = 'n#'",
            ])  # fmt: skip
        if dates and self._maybe("formats", 0.12):
            one = self.chance.choice(dates)
            return self.chance.choice([
                f"date_format({one}, 'yyyy-MM-dd') > '2026-01-02'", f"to_date(date_format({one}, 'dd.MM.yyyy'), "
                f"'dd.MM.yyyy') = DATE'2026-01-03'", f"date_format({one}, 'HH:mm') = '00:00'",
            ])  # fmt: skip
        return super()._condition(aliases)

    def _keys(self, aliases: list[Alias]) -> list[tuple[str, str]]:
        keys = super()._keys(aliases)
        texts, dates = self._columns(aliases, "varchar"), self._columns(aliases, "date")
        if texts and self._maybe("patterns", 0.08):
            text = self.chance.choice(["regexp_extract({0}, '([0-9])', 1)", "regexp_replace({0}, '[12]', 'x')"])
            keys[0] = (text.format(self.chance.choice(texts)), "varchar(9)?")
        elif dates and self._maybe("formats", 0.08):
            text = self.chance.choice(["date_format({0}, 'yyyy-MM')", "date_format({0}, 'dd')"])
            keys[0] = (text.format(self.chance.choice(dates)), "varchar(9)?")
        return list(dict.fromkeys(keys))

    def _function(self, aliases: list[Alias]) -> tuple[str, str]:
        if not self._maybe("concat", 0.07):
            return super()._function(aliases)
        exact, _ = self._item(aliases, *EXACT)
        other, _ = self._item(aliases, *EXACT)
        down = self.chance.choice(["", " DESC"])
        return self.chance.choice([
            (f"GROUP_CONCAT(DISTINCT {exact} ORDER BY {exact}{down} SEPARATOR ';')", "varchar(99)?"),
            (f"GROUP_CONCAT({exact} ORDER BY {other}{down}, {exact} SEPARATOR '|')", "varchar(99)?"),
            (f"group_concat({exact}, '-', {other})", "varchar(99)?"),
        ])  # fmt: skip

    def _ordered(self, aliases: list[Alias], text: str) -> Table:
        made = super()._ordered(aliases, text)
        first, _, rest = made.name.partition("\n")
        overs = list(dict.fromkeys(_OVER.findall(first)))
        if not overs or "\nQUALIFY" in rest or not self._maybe("named_windows", 0.4):
            return made
        chosen = self.chance.choice(overs)
        base = chosen
        if self.chance.random() < 0.4:  # OVER (w ORDER BY …)
            base = chosen.partition("ORDER BY")[0].strip()
        frame = re.search(r" (RANGE|ROWS) ", base)
        base = base if frame is None else base[: frame.start()]
        if not base:
            return made

        def written(found: re.Match[str]) -> str:
            if found[1] == base:
                return "OVER w"
            own = found[1].startswith(f"{base} ") and not re.match(r"(ASC|DESC|NULLS|,|%)", found[1][len(base) + 1 :])
            return f"OVER (w{found[1][len(base) :]})" if own else found[0]

        named = f"{_OVER.sub(written, first)}\n{rest}\nWINDOW w AS ({base})"
        return replace(made, name=named)


def _is_number(type_: str) -> bool:
    return type_.strip("?") in ("int", "bigint", "tinyint")

"""Find what the name of a column means, in the tables of one SELECT (part of stage 2).

SQL ignores the case of names: a name that differs in case is used if there is only one. A column that a join names in
USING, or that NATURAL finds in both tables, is one column of the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

Columns = Mapping[str, exp.Expr]


def same_name(names: Iterable[str], wanted: str) -> str | None:
    """Return the name itself if it is there, or else the only one that differs in case. None if there is none."""
    known = list(names)
    if wanted in known:
        return wanted
    found = {name for name in known if name.casefold() == wanted.casefold()}
    return found.pop() if len(found) == 1 else None


def sources_of(select: exp.Expr) -> list[exp.Expr]:
    """Return what a parsed SELECT reads: the entries of FROM and JOIN."""
    source = select.args.get("from_")
    return [] if source is None else [source.this, *(join.this for join in select.args.get("joins") or ())]


def text_of(node: exp.Expr) -> str:
    """Return the SQL of an expression, equal for names that differ in case only."""
    copy = exp.Paren(this=node.copy())
    for name in copy.find_all(exp.Identifier):
        name.set("this", name.name.casefold())
        name.set("quoted", False)
    inner: exp.Expr = copy.this
    return inner.sql()


@dataclass(slots=True)
class Shared:
    """The columns that joins with USING and NATURAL share, by their names in lower case: the value of each, and how the
    tables that have it write its name."""

    values: dict[str, exp.Expr] = field(default_factory=dict)
    tables: dict[str, dict[str, str]] = field(default_factory=dict)

    def owners(self, scope: Mapping[str, Columns], name: str) -> list[tuple[str, str]]:
        """Return the tables that have a column of this name, each with the exact name. Shared columns count once."""
        found = [(alias, own) for alias, columns in scope.items() if (own := same_name(columns, name)) is not None]
        shared = [one for one in found if self._shares(*one)]
        exact = [one for one in found if one[1] == name]
        return [*shared[:1], *(one for one in exact or ([] if shared else found) if one not in shared)]

    def value(self, scope: Mapping[str, Columns], alias: str, name: str) -> exp.Expr:
        """Return what a column without a table's name stands for."""
        return self.values[name.casefold()] if self._shares(alias, name) else scope[alias][name]

    def star(self, scope: Mapping[str, Columns]) -> Iterator[tuple[str, exp.Expr]]:
        """Yield the columns of `*`, each shared one once."""
        done = set[str]()
        for alias, columns in scope.items():
            for name in columns:
                shared = self._shares(alias, name)
                if not (shared and name.casefold() in done):
                    yield name, self.value(scope, alias, name)
                if shared:
                    done.add(name.casefold())

    def add(
        self, first: tuple[str, str], second: tuple[str, str], values: tuple[exp.Expr, exp.Expr], *, full: bool
    ) -> None:
        """Add a column that two tables share, each given with the column's name in it. In a FULL JOIN either row may be
        missing."""
        name = first[1].casefold()
        self.values[name] = exp.Coalesce(this=values[0], expressions=[values[1]]) if full else values[0]
        self.tables.setdefault(name, {}).update([first, second])

    def _shares(self, alias: str, name: str) -> bool:
        return self.tables.get(name.casefold(), {}).get(alias) == name

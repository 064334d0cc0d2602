"""Compare two tables of canonical values row by row and field by field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cdc.model.types import Canonical

Key = tuple[Canonical, ...]
Row = Mapping[str, Canonical]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The numbers of missing, extra and different rows. `examples` describe the first few."""

    missing: int = 0
    extra: int = 0
    different: int = 0
    examples: tuple[str, ...] = ()

    @property
    def none(self) -> bool:
        """Return whether the tables are equal."""
        return not (self.missing or self.extra or self.different)

    def __add__(self, other: Difference) -> Difference:
        """Add the counts and join the examples."""
        return Difference(
            missing=self.missing + other.missing,
            extra=self.extra + other.extra,
            different=self.different + other.different,
            examples=self.examples + other.examples,
        )

    def counts(self) -> dict[str, int]:
        """Return the three counts for JSON."""
        return {"missing": self.missing, "extra": self.extra, "different": self.different}


def keyed(rows: Iterable[Row], row_key: tuple[str, ...]) -> dict[Key, Row]:
    """Return the rows by the values of their row key. Raises ValueError if two rows have the same key."""
    result: dict[Key, Row] = {}
    for row in rows:
        key = tuple(row[name] for name in row_key)
        if key in result:
            raise ValueError(f"two rows with the key {key}")
        result[key] = row
    return result


def compare(expected: Mapping[Key, Row], found: Mapping[Key, Row], *, examples: int = 5) -> Difference:
    """Return how `found` differs from `expected`. An absent field counts as NULL."""
    missing = [key for key in expected if key not in found]
    extra = [key for key in found if key not in expected]
    different: list[tuple[Key, str]] = []
    for key, row in expected.items():
        if key in found and (fields := _fields(row, found[key])):
            different.append((key, fields))
    notes = (
        *(f"missing {key}" for key in missing[:examples]),
        *(f"extra {key}" for key in extra[:examples]),
        *(f"different {key}: {fields}" for key, fields in different[:examples]),
    )
    return Difference(missing=len(missing), extra=len(extra), different=len(different), examples=notes)


def _fields(expected: Row, found: Row) -> str:
    names = dict.fromkeys([*expected, *found])
    return ", ".join(
        f"{name} is {found.get(name)!r}, expected {expected.get(name)!r}"
        for name in names
        if not same(expected.get(name), found.get(name))
    )


def same(a: Any, b: Any) -> bool:
    """Return whether two canonical values are equal."""
    # True == 1 in Python, but a canonical boolean never equals an integer
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)

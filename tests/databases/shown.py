"""Compare a table of the server with a consumer's rows of its topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

Cell = bool | int | float | str | tuple[str, str] | list[Any] | None


class OddValue(str):
    """A value that the envelope cannot represent, as the server prints it; it is published as NULL."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownColumn:
    """A column as in information_schema."""

    name: str
    kind: str
    column_type: str
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """A table on its server; `key`: the columns of a key that identifies rows, or ()."""

    name: str
    kind: str
    engine: str
    columns: tuple[ShownColumn, ...]
    key: tuple[str, ...]
    rows: list[dict[str, Cell]]


def differences(
    table: ShownTable,
    rows: list[dict[str, Any]],
    published: Collection[str],
    left_out: Collection[str],
    canonical: Callable[[ShownColumn, Any], Cell],
    *,
    refused: bool = False,
) -> list[str]:
    """Return differences of the server's and the consumer's rows, over the `published` columns; `left_out` may be
    absent.

    `canonical(column, value)` makes values comparable. `refused`: a row with an odd value is a dead letter.
    """
    wrong: list[str] = []
    names, left = [c.name for c in table.columns], set(left_out)
    lacking, more = set(names) - set(published) - left, set(published) - set(names)
    if lacking or more:
        wrong.append(
            f"{table.name}: columns are published otherwise: {sorted(lacking)} lack, {sorted(more)} are too many"
        )
    asked = [c for c in table.columns if c.name in published]

    def comparable(row: Mapping[str, Any], ours: bool) -> str:
        cells = [(c.name, canonical(c, row[c.name]) if ours else row[c.name]) for c in asked]
        return repr([(name, None if isinstance(cell, OddValue) else cell) for name, cell in cells])

    whole = names if refused else table.key  # a row whose key holds such a value is a dead letter
    shown = [row for row in table.rows if not any(isinstance(row[name], OddValue) for name in whole)]
    want = Counter(comparable(row, False) for row in shown)
    got = Counter(comparable(row, True) for row in rows)
    for text in list(want - got)[:3]:
        wrong.append(f"{table.name}: the server shows {text[:600]}")
    for text in list(got - want)[:3]:
        wrong.append(f"{table.name}: the topic holds {text[:600]}")
    if want != got:
        wrong.append(f"{table.name}: {len(table.rows)} rows on the server, {len(rows)} in the topic")
    return wrong

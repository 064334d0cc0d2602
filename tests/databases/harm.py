"""Compare an application's statements before and after Tailorbird attaches: they must have the same effects.

All servers share it: `effects` runs statements and records each effect, `harmed` lists what differs between two runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.databases.cases import Line

SLOWER = 3.0  # seconds by which a statement may be slower than before, on a busy machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of a statement: the error's code ("" if it succeeded), the number of affected rows, its result."""

    sql: str
    error: str
    affected: int
    rows: tuple[tuple[object, ...], ...]
    seconds: float


def effects(
    run: Callable[[Line], tuple[str, int, tuple[tuple[object, ...], ...]]], lines: Sequence[Line]
) -> list[Effect]:
    """Run the lines in order."""
    found = []
    for line in lines:
        began = time.monotonic()
        error, affected, rows = run(line)
        found.append(Effect(sql=line.sql, error=error, affected=affected, rows=rows, seconds=time.monotonic() - began))
    return found


def harmed(before: Sequence[Effect], after: Sequence[Effect]) -> list[str]:
    """Return the statements that had another effect afterwards, or took much longer."""
    wrong = []
    for one, other in zip(before, after, strict=True):
        if (one.error, one.affected, one.rows) != (other.error, other.affected, other.rows):
            was = f"{one.error or 'succeeded'}, {one.affected} rows, {one.rows}"
            wrong.append(
                f"{one.sql}: before: {was}; after: {other.error or 'succeeded'}, {other.affected} rows, {other.rows}"
            )
        elif other.seconds > one.seconds + SLOWER:
            wrong.append(f"{one.sql}: took {one.seconds:.1f} s before, {other.seconds:.1f} s after")
    return wrong


def altered(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return the server settings that have changed."""
    names = sorted({*before, *after})
    return [f"{name}: {before.get(name)} → {after.get(name)}" for name in names if before.get(name) != after.get(name)]

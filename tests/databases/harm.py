"""First, do no harm: what an application's statements do before Tailorbird attaches, they do afterwards.

Shared by all servers: `effects` runs statements and says what each did, `harmed` what differs between two runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.databases.cases import Line

SLOWER = 3.0  # seconds that a statement may take longer than before, on a busy machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a statement did: the error's code ("" where it succeeded), the rows that it affected, what it returned."""

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
    """What did something else afterwards, or took much longer."""
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
    """Settings of a server that are not what they were."""
    names = sorted({*before, *after})
    return [f"{name}: {before.get(name)} → {after.get(name)}" for name in names if before.get(name) != after.get(name)]

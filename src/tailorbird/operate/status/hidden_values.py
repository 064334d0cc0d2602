"""Output without values of rows: keys and reasons of dead-letter records may contain values of any column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tailorbird.operate.status.dead_letters import LEFT_OUT, WAITING, DeadLetterRow, OpenDeadLetters

HIDDEN = "(hidden)"


def records_without_values(found: Iterable[DeadLetterRow]) -> list[DeadLetterRow]:
    """Return dead-letter records without the keys of rows and the reasons."""
    return [replace(one, key=HIDDEN, reason=HIDDEN) for one in found]


def counts_without_values(found: Iterable[OpenDeadLetters]) -> list[OpenDeadLetters]:
    """Return numbers of open records without their reasons. Reasons of tables that are left out name only columns."""
    return [one if one.stage in (LEFT_OUT, WAITING) else replace(one, reason=HIDDEN) for one in found]

"""Tables whose rows cannot be read for now, although their log is: the server that has the rows is unavailable, late or
unsuitable. Reading them is tried again; a checkpoint contains the reason until then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from cdc.model.errors import TailorbirdError

WAITS = "waits"  # in a checkpoint's state: WaitingTable by `database.table`


class WaitingTable(TypedDict):
    """Why the rows of a table are not read, and since when (ms since 1970). `why`, `remedy`: as in an error message."""

    since_ms: int
    why: str
    remedy: str


def note(waits: dict[str, WaitingTable], found: Mapping[str, TailorbirdError | None], now_ms: int) -> bool:
    """Enter the reasons why tables wait now; None removes a table. Return whether anything changed."""
    before = dict(waits)
    for name, error in found.items():
        if error is None:
            waits.pop(name, None)
        else:
            since = waits[name]["since_ms"] if name in waits else now_ms
            waits[name] = WaitingTable(since_ms=since, why=error.message, remedy=error.hint)
    return waits != before


def keep(waits: dict[str, WaitingTable], names: Iterable[str]) -> bool:
    """Remove the tables that nothing reads any more. Return whether there was one."""
    gone = waits.keys() - set(names)
    for name in gone:
        del waits[name]
    return bool(gone)


def reason(one: WaitingTable) -> str:
    """Return the reason and the remedy as one text."""
    return f"{one['why']}; {one['remedy']}" if one["remedy"] else one["why"]


def reasons(waits: Mapping[str, WaitingTable]) -> dict[str, str]:
    """Return the reason and the remedy of each table as one text."""
    return {name: reason(one) for name, one in waits.items()}


def waiting_of(state: Mapping[str, Any]) -> dict[str, WaitingTable]:
    """Return the tables that wait, by `database.table`, from a checkpoint's state."""
    return {
        name: WaitingTable(since_ms=one["since_ms"], why=one["why"], remedy=one["remedy"])
        for name, one in state.get(WAITS, {}).items()
    }

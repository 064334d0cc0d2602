"""One step from the running system to a topology's file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tailorbird.deploy.plan.seen import RowCount

Action = Literal[
    "keep",
    "make",
    "change",
    "read",
    "join",
    "build",
    "verify",
    "move",
    "rebuild",
    "follow",
    "fill",
    "reindex",
    "leave",
    "refuse",
]

# Default rates per second on two cores, used without measurements on this machine: changes that a join writes through
# HBase's Thrift server, and rows of an index built from its table (docs/results/index.md).
JOINED, INDEXED = 8_000.0, 2_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One action on one object, with its reason: a line of `tailorbird plan`.

    `by` says who performs it: `apply`, `run` (the processes, at their next start) or a command for the user. It is
    empty if nothing is done. The step reads `records` of the log and writes `rows`, if known. `seconds` is estimated
    from measured rates. `meanwhile` describes what readers see until the step is done. `lost`: the store has lost the
    table, so there is nothing to build alongside. The actions are:

        keep      unchanged                             rebuild   the join restarts from the log, in place
        make      create a missing object               follow    live indexing applies what a rebuild writes
        change    change a setting                      fill      fill a new index by a scan of its table
        read      read rows of a source                 reindex   build a second collection, then swap it in
        join      the join starts, or is not done yet   leave     not in the file; it remains
        build     build a changed table alongside       verify    compare it with the sources
        move      queries use it from then on
        refuse    the running system contradicts the file; nothing is done until this is resolved"""

    action: Action
    kind: str
    name: str
    why: str
    by: str = ""
    records: int | None = None
    rows: RowCount | None = None
    seconds: float | None = None
    meanwhile: str = ""
    lost: bool = False

    @property
    def by_hand(self) -> bool:
        """Return whether the user must perform this step: neither `apply` nor the processes do."""
        return self.action == "refuse" or self.by.startswith("tailorbird ")


def seconds_for(count: int | None, rate: float) -> float | None:
    """Return the estimated seconds for `count` items at `rate` per second. None if the count is unknown."""
    return None if count is None else round(count / rate, 1)

"""One step from what runs to what a topology's file asks for."""

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

# Changes and rows a second, on two cores, where nothing was measured on this machine: what a join writes through
# HBase's Thrift server; an index built from its table (docs/results/index.md).
JOINED, INDEXED = 8_000.0, 2_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is done to one thing, why, and by what: `apply`, `run` (the processes, when they start again), or a command
    for people; empty where nothing is done.

    `records` of the log are read for it and `rows` written anew, where that is known; `seconds` is about how long that
    takes, by rates that were measured. `meanwhile` is what readers see until it is done.

    keep      it stays as it is                     rebuild   a join begins anew, in place
    make      it is missing                         follow    the live feed brings it what a rebuild writes
    change    a setting of it                       fill      a new index is filled by a scan of its table
    read      rows of a source are read             reindex   an index is built anew beside the one that serves
    join      a join begins, or is not done yet     leave     nothing of the file names it, and it stays
    build     a changed table, beside the old one   verify    it is compared with the sources
    move      the name that queries use leads to it
    refuse    what runs contradicts the file: nothing is done before that is settled
    """

    action: Action
    kind: str
    name: str
    why: str
    by: str = ""
    records: int | None = None
    rows: RowCount | None = None
    seconds: float | None = None
    meanwhile: str = ""

    @property
    def by_hand(self) -> bool:
        """Whether neither `apply` nor the processes do it by themselves."""
        return self.action == "refuse" or self.by.startswith("tailorbird ")


def seconds_for(count: int | None, rate: float) -> float | None:
    """How long so many take; None where they were not counted."""
    return None if count is None else round(count / rate, 1)

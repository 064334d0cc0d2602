"""Decide which changes are before a source position, and compute a table's leaves as of a position.

A change has its position at the source as a *tag*: its GTID, or file and position if it has none. Rows of a snapshot
have an empty tag, which is before every position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cdc.merkle.tree import Leaves
from cdc.model.event import Position
from ingest.binlog.format.gtid import AnyGtidSet, GtidSet, MariaGtidSet, parse_gtid_set
from ingest.ledger.fold import TaggedChange

READ = ""  # the tag of rows from a snapshot
_MARIA = re.compile(r"(\d+)-(\d+)-(\d+)")


class Identity(NamedTuple):
    """Parts of a GTID: server UUID, tag and number in MySQL; for MariaDB `source` is the domain."""

    source: str | int
    tag: str | int
    number: int


def tag_of(source: Mapping[str, Any]) -> str:
    """Return the tag of a change; `source` is the `source` block of its envelope."""
    if source.get("gtid"):
        return str(source["gtid"])
    if source.get("snapshot") not in (None, False, "false") or not source.get("file"):
        return READ
    return f"{source['file']}:{source['pos']}"


@dataclass(slots=True)
class Reach:
    """Set of changes before a source position, by tag. Results are cached."""

    position: Position
    _gtids: AnyGtidSet | None = None
    _known: dict[str, bool] = field(default_factory=lambda: {READ: True})

    def __post_init__(self) -> None:
        self._gtids = parse_gtid_set(self.position.gtid_set) if self.position.gtid_set else None

    def covers(self, tag: str) -> bool:
        """Return whether the change with this tag is before the position."""
        found = self._known.get(tag)
        if found is None:
            found = self._known[tag] = self._covers(tag)
        return found

    def includes(self, other: Position) -> bool:
        """Return whether all changes before another position are also before this one."""
        if self._gtids is not None and other.gtid_set:
            theirs = parse_gtid_set(other.gtid_set)
            if isinstance(theirs, GtidSet):
                return isinstance(self._gtids, GtidSet) and self._gtids.covers(theirs)
            return isinstance(self._gtids, MariaGtidSet) and all(
                self._gtids.domains.get(domain, (0, -1))[1] >= number for domain, (_, number) in theirs.domains.items()
            )
        return place(other.file, other.pos) <= place(self.position.file, self.position.pos)

    def _covers(self, tag: str) -> bool:
        file, _, number = tag.rpartition(":")
        if match := _MARIA.fullmatch(tag):
            domain, server, sequence = map(int, match.groups())
            return self._gtids is not None and self._gtids.holds((domain, server, sequence))
        if self._gtids is not None and "-" in file:
            uuid, _, name = file.partition(":")
            return self._gtids.holds((uuid.lower(), name.lower(), int(number)))
        return place(file, int(number)) < place(self.position.file, self.position.pos)


def place(file: str, pos: int) -> tuple[int, str, int]:
    """Return a sort key for log positions: `binlog.1000000` is after `binlog.999999`."""
    return len(file), file, pos


def as_of(leaves: Leaves, deltas: Iterable[TaggedChange], low: Reach, high: Reach) -> tuple[Leaves, frozenset[int]]:
    """Convert the present leaves to those as of `low`. Also return the leaves that changed between `low` and `high`.

    `deltas` are all changes of the leaves since `low` or earlier.
    """
    unsure = set[int]()
    for one in deltas:
        if not low.covers(one.tag):
            leaves.take(one.leaf, one.change)
            if high.covers(one.tag):
                unsure.add(one.leaf)
    return leaves, frozenset(unsure)

"""Detect changes of a table in the catalog after which its rows read differently, although no row was logged.

Examples are an ALTER that rewrites the values of a column, a partition that is attached, detached or truncated, a
renamed enum label. They show as differences between two checks of the catalog. A check's result is stored in the
checkpoint, as digests. So changes during a downtime are found, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from cdc.model.identifiers import fold_identifier

# Pairs of types between which a column changes without a rewrite and without another value: text and varchar; timestamp
# and timestamptz in a session with time zone UTC.
_ALIKE = (frozenset({25, 1043}), frozenset({1114, 1184}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLook:
    """A column at a check. `row` is the transaction that wrote its catalog entry: it changes with each rewrite of the
    values.

    `filled`: older rows may have a value of the column that the catalog does not contain.
    """

    name: str
    type: int
    row: int
    filled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """A table at one check of the catalog.

    `published` is the OID of its publication entry, `file` the relfilenode (0 for a partitioned table). `columns` are
    by number. `members` maps the OIDs of its partitions to their relfilenodes. `shape` describes the composite types of
    its columns, `labels` the enums by OID.
    """

    oid: int
    published: int
    file: int
    columns: Mapping[int, ColumnLook]
    members: Mapping[int, int] = field(default_factory=dict)
    shape: str = ""
    labels: Mapping[int, str] = field(default_factory=dict)

    def state(self) -> dict[str, Any]:
        """Return the JSON value for the checkpoint."""
        found: dict[str, Any] = {
            "t": [self.oid, self.published, self.file],
            "c": {str(number): [_digest(one.name), one.type, one.row] for number, one in self.columns.items()},
        }
        if self.members:
            found["p"] = {str(oid): file for oid, file in self.members.items()}
        if self.shape:
            found["s"] = _digest(self.shape)
        if self.labels:
            found["l"] = {str(number): _digest(label) for number, label in self.labels.items()}
        return found


def with_dropped(before: Mapping[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a check together with the dropped columns of the check `before`: older rows of the log may
    contain values of them. PostgreSQL never uses the number of a column again."""
    return {**state, "c": {**before["c"], **state["c"]}}


def changed(
    before: Mapping[str, Any], now: TableLook, came_full: Callable[[int], bool], former: Collection[str] = ()
) -> str:
    """Return why a table must be re-read since the check `before`; empty if its rows read the same.

    `came_full(oid)` returns whether a new partition had rows that the log does not contain. `former` are the names of
    dropped columns that the log has shown, in lower case.
    """
    oid, published, _ = before["t"]
    after = now.state()
    if oid != now.oid:
        return "another table has its name"
    if published != now.published:
        return "it was not published for a time"
    return _columns(before, now, former) or _members(before, now, came_full) or _types(before, after)


def _columns(before: Mapping[str, Any], now: TableLook, former: Collection[str]) -> str:
    known: Mapping[str, Any] = before["c"]
    names = {name for name, _, _ in known.values()}
    rewritten = before["t"][2] != now.file  # VACUUM FULL, CLUSTER and TRUNCATE change the file, too, but no column
    for number, one in now.columns.items():
        if str(number) not in known:
            if _digest(one.name) in names or fold_identifier(one.name) in former:
                return f"column {one.name} was dropped and created again, or renamed"
            if one.filled and (rewritten or not now.file):
                return f"column {one.name} was added, and older rows have values in it"
            continue
        name, kind, row = known[str(number)]
        if name != _digest(one.name):
            return f"column {one.name} was renamed"
        if kind != one.type and frozenset({kind, one.type}) not in _ALIKE:
            return f"column {one.name} has another type"
        if rewritten and row != one.row:
            return f"the values of column {one.name} were rewritten"
    return ""


def _members(before: Mapping[str, Any], now: TableLook, came_full: Callable[[int], bool]) -> str:
    known: Mapping[str, int] = before.get("p", {})
    for oid, file in known.items():
        if int(oid) not in now.members:
            return "a partition was detached or dropped"
        if now.members[int(oid)] != file:
            return "a partition was truncated or rewritten"
    if any(str(oid) not in known and came_full(oid) for oid in now.members):
        return "a partition with rows was attached"
    return ""


def _types(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if before.get("s", "") != after.get("s", "") and before.get("s"):
        return "a composite type of its columns was altered"
    labels = after.get("l", {})
    if any(number in labels and labels[number] != label for number, label in before.get("l", {}).items()):
        return "a label of an enum was renamed"
    return ""


@lru_cache(4096)  # tables of many tenants have columns of the same names
def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()

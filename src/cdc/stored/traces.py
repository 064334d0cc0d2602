"""Lineage of a stored row: for each source row that it shows, the log record that contained it. A *trace* is its bytes.

A trace is a sequence of 8-byte entries in arbitrary order; empty if unknown. The first byte of an entry is the number
of a node (a source table) in the plan (`joins.query.plan.Plan.nodes`). 12 bits are the partition and 44 bits the offset
of the record, in the topic that the node reads. If the first byte is 255, the entry is the number of rows in a group:
one byte for the group's number, 6 bytes for the count. For a group, a trace contains only the rows of its newest
change.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

NOWHERE = -1  # instead of a partition and offset that are unknown or too large
MOST_NODES = 255
_GROUP = 255
_OFFSET_BITS, _PARTITIONS, _OFFSETS = 44, 1 << 12, 1 << 44
_COUNT_BITS, _COUNTS = 48, 1 << 48
_ENTRY = struct.Struct(">Q")


class Origin(NamedTuple):
    """The record that contained the row of plan node `node`: partition and offset in the topic that the node reads."""

    node: int
    partition: int
    offset: int


class GroupCount(NamedTuple):
    """Number of rows in a group when the row was written; `group` is the group's number in the plan."""

    group: int
    rows: int


def place_of(partition: int, offset: int) -> int:
    """Return a record's partition and offset as one number, or NOWHERE if one of them is too large."""
    fits = 0 <= partition < _PARTITIONS and 0 <= offset < _OFFSETS
    return partition << _OFFSET_BITS | offset if fits else NOWHERE


def entry(node: int, place: int) -> bytes:
    """Return the trace entry of a node's row; `place` is from `place_of`.

    Empty if the place is NOWHERE, or if the node's number is too large for an entry.
    """
    return _ENTRY.pack(node << 56 | place) if place >= 0 and node < MOST_NODES else b""


def count_entry(group: int, rows: int) -> bytes:
    """Return the trace entry with the number of rows in a group."""
    return _ENTRY.pack(_GROUP << 56 | group << _COUNT_BITS | min(rows, _COUNTS - 1))


def entries_of(trace: bytes) -> Iterator[Origin | GroupCount]:
    """Yield the entries of a trace. Raises ValueError if it is not one."""
    if len(trace) % _ENTRY.size:
        raise ValueError(f"a trace of {len(trace)} bytes")
    for (found,) in _ENTRY.iter_unpack(trace):
        node, rest = found >> 56, found & (1 << 56) - 1
        if node == _GROUP:
            yield GroupCount(rest >> _COUNT_BITS, rest & _COUNTS - 1)
        else:
            yield Origin(node, rest >> _OFFSET_BITS, rest & _OFFSETS - 1)

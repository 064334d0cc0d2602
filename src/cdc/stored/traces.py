"""Where a stored row came from: per row of a table that it shows, the record of the log that told that row.

A trace is entries of 8 bytes behind one another, in no order that means anything; none of it is known where it is
empty. An entry's first byte is a node's number in the plan (`joins.query.plan.Plan.nodes`), 12 bits are the partition,
44 the offset of the record in the topic that the node reads. 255 in place of a node says how many rows a group has:
a byte of the group's number, 6 of the count. Of a group's rows a trace names those of its newest change alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

NOWHERE = -1  # in place of a partition and offset that nobody knows, or that have no room
MOST_NODES = 255
_GROUP = 255
_OFFSET_BITS, _PARTITIONS, _OFFSETS = 44, 1 << 12, 1 << 44
_COUNT_BITS, _COUNTS = 48, 1 << 48
_ENTRY = struct.Struct(">Q")


class Origin(NamedTuple):
    """The record that told what node number `node` shows: its partition and offset in the node's topic."""

    node: int
    partition: int
    offset: int


class Counted(NamedTuple):
    """How many rows a group had when its row was written; `group` = its number in the plan."""

    group: int
    rows: int


def place_of(partition: int, offset: int) -> int:
    """A record's partition and offset as one number, NOWHERE if they do not fit."""
    fits = 0 <= partition < _PARTITIONS and 0 <= offset < _OFFSETS
    return partition << _OFFSET_BITS | offset if fits else NOWHERE


def entry(node: int, place: int) -> bytes:
    """The entry of a node's row; nothing of a place that is not known, or a node beyond those that have a number."""
    return _ENTRY.pack(node << 56 | place) if place >= 0 and node < MOST_NODES else b""


def count_entry(group: int, rows: int) -> bytes:
    """The entry that says how many rows a group has."""
    return _ENTRY.pack(_GROUP << 56 | group << _COUNT_BITS | min(rows, _COUNTS - 1))


def entries_of(trace: bytes) -> Iterator[Origin | Counted]:
    """What a trace says, entry by entry; ValueError when it is none."""
    if len(trace) % _ENTRY.size:
        raise ValueError(f"a trace of {len(trace)} bytes")
    for (found,) in _ENTRY.iter_unpack(trace):
        node, rest = found >> 56, found & (1 << 56) - 1
        if node == _GROUP:
            yield Counted(rest >> _COUNT_BITS, rest & _COUNTS - 1)
        else:
            yield Origin(node, rest >> _OFFSET_BITS, rest & _OFFSETS - 1)

"""Merge the partitions of a table into one order of its changes.

Within a partition, the log's order is kept: it is the order of each key. Between partitions, the smaller sequence
number goes first, so that the source's order is restored. Tombstones are skipped. A truncation, which every partition
contains, is returned once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from cdc.formats.debezium import from_envelope
from cdc.model.errors import Fatal
from cdc.model.event import ChangeEvent

Offsets = Mapping[int, int]  # by partition


class LogBytes(NamedTuple):
    """An undecoded record of a change topic."""

    offset: int
    value: bytes | None
    ts_ms: int


class CommittedChange(NamedTuple):
    """A change, its partition and offset, and its record timestamp (milliseconds since 1970)."""

    partition: int
    offset: int
    ts_ms: int
    event: ChangeEvent


class ChangeBatch(NamedTuple):
    """Changes in order, and the next offset of each partition."""

    changes: tuple[CommittedChange, ...]
    next: Offsets


def merge(
    found: Mapping[int, Iterable[LogBytes]], starts: Offsets, read_up_to: Offsets, whole: Iterable[int]
) -> ChangeBatch:
    """Return all changes whose order is certain.

    A partition that is not `whole` (read up to the requested end) may contain a smaller sequence number after its last
    record. Then the remaining records of other partitions are left for the next batch.

    `starts` are the first offsets of the read, `read_up_to` the next offsets of partitions whose records are all
    returned. Raises Fatal, with partition and offset, for a record without a valid envelope.
    """
    queues = {partition: deque(_changes(partition, records)) for partition, records in found.items()}
    ended, merged = set(whole), list[CommittedChange]()
    nexts = {**starts, **{p: read_up_to[p] for p in read_up_to if not queues.get(p)}}
    while True:
        heads = [(queue[0].event.source.sequence, partition) for partition, queue in queues.items() if queue]
        short = any(not queue and partition not in ended for partition, queue in queues.items())
        if not heads or short:
            return ChangeBatch(tuple(merged), nexts)
        _, partition = min(heads)
        change = queues[partition].popleft()
        nexts[partition] = change.offset + 1 if queues[partition] else read_up_to[partition]
        if change.event.op != "t" or partition == 0:
            merged.append(change)


def _changes(partition: int, records: Iterable[LogBytes]) -> Iterable[CommittedChange]:
    for record in records:
        if record.value is None:
            continue
        try:
            event = from_envelope(orjson.loads(record.value))
        except (ValueError, KeyError, TypeError) as error:
            where = f"partition {partition}, offset {record.offset}"
            raise Fatal(f"{where}: invalid envelope: {error}", "a newer version may have written it") from error
        yield CommittedChange(partition, record.offset, record.ts_ms, event)

"""Merge the partitions of a table into one order of its changes.

Within a partition the order stays as it is. Between partitions, the change with the smaller sequence number comes
first, which restores the source's order. Tombstones are skipped. A truncation, which every partition contains, is
returned once.
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
    """A change, with partition, offset and timestamp (milliseconds since 1970) of its record."""

    partition: int
    offset: int
    ts_ms: int
    event: ChangeEvent


class ChangeBatch(NamedTuple):
    """Changes in the source's order, and the offset at which to continue in each partition."""

    changes: tuple[CommittedChange, ...]
    next: Offsets


def merge(
    found: Mapping[int, Iterable[LogBytes]], starts: Offsets, read_up_to: Offsets, whole: Iterable[int]
) -> ChangeBatch:
    """Merge records of several partitions into one order, and return all changes whose order is certain.

    `found` are the records by partition, read from the offsets `starts` on. `read_up_to` are the offsets after them.
    Partitions in `whole` are read completely. In any other one, a change with a smaller sequence number may follow, so
    changes of all partitions after its last record are left for the next batch. Every partition contains each marker
    (op `t`); only that of partition 0 is returned. Raises Fatal, with partition and offset, for a record without a
    valid envelope.
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

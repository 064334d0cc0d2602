"""A table's partitions → one order of its changes; pure.

Within a partition the log's order stands: it is the order of each key. Between partitions the smaller sequence goes
first, so that whatever a source did one after another is told so. A record that tells no change (a tombstone) is passed
over, and a truncation, which every partition has, is told once.
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
    """A record of a change topic as it is."""

    offset: int
    value: bytes | None
    ts_ms: int


class CommittedChange(NamedTuple):
    """A change, where it stands, and when the log took it (milliseconds since 1970)."""

    partition: int
    offset: int
    ts_ms: int
    event: ChangeEvent


class ChangeBatch(NamedTuple):
    """Changes in order, and what is read next of each partition."""

    changes: tuple[CommittedChange, ...]
    next: Offsets


def merge(
    found: Mapping[int, Iterable[LogBytes]], starts: Offsets, read_up_to: Offsets, whole: Iterable[int]
) -> ChangeBatch:
    """All changes that can be ordered of what was read: a partition that is not `whole` (read to where the reader was
    to stop) may hold a smaller sequence behind its last record, so the rest of the others waits for the next batch.

    `starts` is where reading began, `read_up_to` what comes next of a partition all of whose records are told.
    Fatal, with its place, for a record that is no envelope of ours.
    """
    queues = {partition: deque(_changes(partition, records)) for partition, records in found.items()}
    ended, reported = set(whole), list[CommittedChange]()
    nexts = {**starts, **{p: read_up_to[p] for p in read_up_to if not queues.get(p)}}
    while True:
        heads = [(queue[0].event.source.sequence, partition) for partition, queue in queues.items() if queue]
        short = any(not queue and partition not in ended for partition, queue in queues.items())
        if not heads or short:
            return ChangeBatch(tuple(reported), nexts)
        _, partition = min(heads)
        change = queues[partition].popleft()
        nexts[partition] = change.offset + 1 if queues[partition] else read_up_to[partition]
        if change.event.op != "t" or partition == 0:
            reported.append(change)


def _changes(partition: int, records: Iterable[LogBytes]) -> Iterable[CommittedChange]:
    for record in records:
        if record.value is None:
            continue
        try:
            event = from_envelope(orjson.loads(record.value))
        except (ValueError, KeyError, TypeError) as error:
            where = f"partition {partition}, offset {record.offset}"
            raise Fatal(f"{where}: no envelope of ours: {error}", "was it written by a newer version?") from error
        yield CommittedChange(partition, record.offset, record.ts_ms, event)

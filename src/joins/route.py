"""A record of the log → what each step needs to hear of it: the only place that reads envelopes.

What can not be read becomes a `Refused` record with its bytes and the reason; it travels along the plan to the sink,
which sends it to the dead-letter topic in the batch's one action. Nothing here raises for bad data.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from cdc.envelope import from_envelope
from cdc.event import ChangeEvent, Row
from joins.plan import KeyedJoin, Plan, Project
from joins.records import (
    DimensionSeen,
    FactSeen,
    Halted,
    Pointed,
    Record,
    Refused,
    Values,
    Version,
    text_of,
)

# End offsets per topic and partition, noted when the query started.
Settled = Mapping[str, Mapping[int, int]]


class Router:
    """Turns the log's records into the plan's; one per task and batch.

    `settled`: an update that changes no used column is dropped only at or above these offsets. Below them, compaction
    may have left such an update as the only record of its key.
    """

    def __init__(self, plan: Plan, settled: Settled) -> None:
        self._settled = settled
        self._readers: dict[str, list[_Reader]] = {}
        fact = plan.assemble.fact
        self._readers.setdefault(fact.source.topic, []).append(_FactReader(fact, plan.joins))
        for join in plan.joins:
            readers = self._readers.setdefault(join.dimension.source.topic, [])
            readers.append(_DimensionReader(join.dimension, join.hop))

    def route(self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None) -> list[Record]:
        """What the steps hear of one record; a tombstone repeats the delete before it and says nothing."""
        if value is None:
            return []
        try:
            event = from_envelope(orjson.loads(value))
            source = event.source
            if event.op == "t":
                where = f"{topic}, partition {partition}, offset {offset}"
                return [Halted(f"TRUNCATE of {source.table_id} met at {where}")]
            version = (int(source.sequence), offset)
            skip_unused = offset >= self._settled.get(topic, {}).get(partition, offset + 1)
            found: list[Record] = []
            for reader in self._readers[topic]:
                found += reader.read(event, version, skip_unused)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            return [_refused(topic, partition, offset, key, value, error)]
        return found


class _Reader:
    """Reads events for one project of the plan."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def values(self, row: Row) -> Values:
        return [row[column] for column in self.project.columns]

    def read(self, event: ChangeEvent, version: Version, skip_unused: bool) -> Iterator[Record]:
        after = None if event.after is None else self.values(event.after)
        before = None if event.before is None else self.values(event.before)
        if after is None and before is None:
            raise ValueError(f"op {event.op} with neither before nor after")
        if event.op in ("u", "d") and before is None:
            raise ValueError(f"op {event.op} without its before image")
        if event.op != "d" and after is None:
            raise ValueError(f"op {event.op} without its after image")
        if event.op == "d":
            after = None
        if skip_unused and event.op == "u" and before == after:
            return iter(())
        return self.changed(before, after, version, event.source.ts_ms)

    def changed(self, before: Values | None, after: Values | None, version: Version, ts_ms: int) -> Iterator[Record]:
        raise NotImplementedError


class _FactReader(_Reader):
    """The fact's row itself, and at every hop the key that it points at."""

    def __init__(self, project: Project, joins: tuple[KeyedJoin, ...]) -> None:
        super().__init__(project)
        self.hops = [(join.hop, project.columns.index(join.fact_column)) for join in joins]
        self.key_length = len(project.key)

    def changed(self, before: Values | None, after: Values | None, version: Version, ts_ms: int) -> Iterator[Record]:
        # a project's columns begin with its key
        old = None if before is None else text_of(before[: self.key_length])
        new = None if after is None else text_of(after[: self.key_length])
        if old is not None and old != new:
            yield FactSeen(old, version, ts_ms, None)
        if new is not None:
            yield FactSeen(new, version, ts_ms, after)
        for hop, index in self.hops:
            left = None if before is None or before[index] is None else text_of(before[index])
            right = None if after is None or after[index] is None else text_of(after[index])
            # NULL matches nothing: such a row never reaches the hop, or all of them would share one key
            if old is not None and left is not None and (left, old) != (right, new):
                yield Pointed(hop, left, old, version, False)
            if new is not None and right is not None:
                yield Pointed(hop, right, new, version, True)


class _DimensionReader(_Reader):
    """A dimension's row under its key."""

    def __init__(self, project: Project, hop: int) -> None:
        super().__init__(project)
        self.hop, self.index = hop, project.columns.index(project.key[0])

    def changed(self, before: Values | None, after: Values | None, version: Version, ts_ms: int) -> Iterator[Record]:
        old = None if before is None else text_of(before[self.index])
        new = None if after is None else text_of(after[self.index])
        if old is not None and old != new:
            yield DimensionSeen(self.hop, old, version, ts_ms, None)
        if new is not None:
            yield DimensionSeen(self.hop, new, version, ts_ms, after)


def _refused(
    topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, error: Exception
) -> Refused:
    reason = f"no {error} in it" if isinstance(error, KeyError) else str(error)
    return Refused(topic, partition, offset, f"not an envelope: {reason}", _base64(key), _base64(value))


def _base64(stored: bytes | None) -> Any:
    return None if stored is None else base64.b64encode(stored).decode()

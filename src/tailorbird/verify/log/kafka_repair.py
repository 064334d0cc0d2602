"""Let the capture of a source publish rows again. The capture stays the only writer of its topics."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import orjson

from cdc.model.schema import TableId
from cdc.topology.topology import Topology
from ingest.capture.signals import repair_value
from ingest.log.kafka_signals import send

_KEYS = 1000  # per signal: a record holds at most a megabyte
MOST = 5000  # keys per table that a capture holds at once; with more it would read the whole table


def ask_for(topology: Topology, table: TableId, keys: Collection[bytes]) -> Iterator[tuple[list[bytes], int]]:
    """Send signals that request rows by key, at most `MOST` keys at a time.

    Yield each group of keys with the offset of its last signal. The caller must wait until the capture has applied
    that signal before it takes the next group. Raises Retriable while Kafka is unavailable."""
    name, left = table.name, sorted(keys)
    for begin in range(0, len(left), MOST):
        some, offset = left[begin : begin + MOST], 0
        for at in range(0, len(some), _KEYS):
            value = repair_value(name, [orjson.loads(key) for key in some[at : at + _KEYS]])
            offset = send(topology, table.source, value)
        yield some, offset

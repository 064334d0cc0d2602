"""Has a source's capture publish rows again as they are: the capture stays the only writer of its topics."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import orjson

from cdc.model.schema import TableId
from cdc.topology.topology import Topology
from ingest.capture.signals import repair_value
from ingest.log.kafka_signals import send

_KEYS = 1000  # of one signal: a record holds a megabyte
MOST = 5000  # keys that a capture holds at once of a table, which it would read as a whole otherwise


def ask_for(topology: Topology, table: TableId, keys: Collection[bytes]) -> Iterator[tuple[list[bytes], int]]:
    """Ask for rows by the keys of their records, so many at a time as a capture holds; each time these keys, and the
    offset of the last signal. Whoever asks waits until it is obeyed before the next. Retriable: Kafka is away."""
    name, left = table.name, sorted(keys)
    for begin in range(0, len(left), MOST):
        some, offset = left[begin : begin + MOST], 0
        for at in range(0, len(some), _KEYS):
            value = repair_value(name, [orjson.loads(key) for key in some[at : at + _KEYS]])
            offset = send(topology, table.source, value)
        yield some, offset

"""Let the capture of a source publish rows again. The capture stays the only writer of its topics."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

import orjson

from cdc.model.schema import TableId
from cdc.topology.topology import Topology
from ingest.capture.signals import repair_value
from ingest.ledger.run_ledger import Ledger
from ingest.log.kafka_signals import send
from tailorbird.verify.settling import settling_policy

_KEYS = 1000  # per signal: a record holds at most a megabyte
MOST = 5000  # keys per table that a capture holds at once; with more it would read the whole table


def ask_for(topology: Topology, table: TableId, keys: Collection[bytes], ledger: Ledger) -> Iterator[int]:
    """Send signals that request rows by key, at most `MOST` keys at a time.

    Yields the number of keys of each group once the capture has applied its signals. Ends when the capture makes no
    progress with one. Raises Retriable while Kafka is unavailable.
    """
    name, left = table.name, sorted(keys)
    for begin in range(0, len(left), MOST):
        some, offset = left[begin : begin + MOST], 0
        for at in range(0, len(some), _KEYS):
            value = repair_value(name, [orjson.loads(key) for key in some[at : at + _KEYS]])
            offset = send(topology, table.source, value)
        if not _applied(ledger, table, offset):
            return
        yield len(some)


def _applied(ledger: Ledger, table: TableId, offset: int) -> bool:
    """Wait, while the capture makes progress, until it has applied the signal at an offset; return whether it has."""
    settling = settling_policy()
    settling.begin(time.monotonic())
    while True:
        ledger.poll(0.02)
        reached = ledger.topology_ledger.reached[table.source]
        if reached.signals > offset and table.name not in reached.unknown:
            return True
        if settling.used_up(reached.position, time.monotonic()):
            return False

"""Look at the replication slots of a topology's PostgreSQL sources, also while no capture runs."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.topology.topology import Source, Topology
from ingest.postgres import pg_slot
from ingest.postgres.pg_connection import connected
from ingest.postgres.pg_source import ALARM, KEPT


def slot_sources(topology: Topology) -> list[Source]:
    """Return the sources that have a slot and are captured from here."""
    return [
        one for one in topology.sources.values() if one.type == "postgresql" and one.poll is None and one.agent is None
    ]


def kept_bytes(topology: Topology) -> Iterator[tuple[Source, int]]:
    """Yield how many bytes of log each server keeps for its slot, 0 without one, and publish it as a metric.

    Raises Retriable while a server is unavailable."""
    for source in slot_sources(topology):
        with connected(source) as connection:
            slot = pg_slot.slot_of(connection, source, pg_slot.names_of(topology.name, source))
        kept = 0 if slot is None else slot.kept
        ALARM.labels(source.name).set(source.alarm_slot)
        KEPT.labels(source.name).set(kept)
        yield source, kept

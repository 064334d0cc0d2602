"""Positions of sources in Kafka, setting a source back, and signals; implements `commands.FleetSources`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.topology.topology import Topology
from ingest.capture.signals import signal_value
from ingest.fleet.desired import SourceSpec, source_of
from ingest.log.kafka_rewind import kept_positions, set_back
from ingest.log.kafka_signals import send
from ingest.records.capture_interfaces import Checkpoint


@dataclass(frozen=True, slots=True)
class KafkaPositions:
    """Implements `commands.FleetSources` for the fleet of one topology."""

    topology: Topology

    def positions(self, source: str, spec: SourceSpec) -> Sequence[Mapping[str, Any]]:
        """Return the older positions to which the source can be set back, oldest first, as JSON values."""
        return [_shown(mark) for mark in kept_positions(self.topology, source_of(spec, self.topology.name, source))]

    def set_back(self, source: str, spec: SourceSpec, sequence: int | None, ts_ms: float | None) -> Mapping[str, Any]:
        """Set the source back and return where it resumes. Implements `FleetSources`."""
        return _shown(set_back(self.topology, source_of(spec, self.topology.name, source), sequence, ts_ms))

    def signal(self, source: str, kind: str, tables: Sequence[str], where: str) -> None:
        """Send a signal of type `kind` to the source's capture; `where` is a condition, or empty."""
        send(self.topology, source, signal_value(kind, tuple(tables), where))


def _shown(mark: Checkpoint) -> dict[str, Any]:
    at = mark.position
    return {"sequence": at.sequence, "file": at.file, "pos": at.pos, "gtid_set": at.gtid_set, "ts_ms": mark.ts_ms}

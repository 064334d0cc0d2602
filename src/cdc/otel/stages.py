"""Identify the trace of a change, and its spans. Every stage computes the same ids and the same choice of changes.

A change is a (source, sequence). Its trace id is a hash of both and the topology. It is sampled if the id is below the
ratio's bound, as in OpenTelemetry's `TraceIdRatioBased`. A span's id is a hash of the trace id and the stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b

Stage = tuple[str, ...]
CAPTURE: Stage = ("capture",)
GATEWAY: Stage = ("gateway",)
DEFAULT_RATIO = 0.001
_LONGEST = 10_000  # changes of one batch that are looked at: the newest
_LOW = (1 << 64) - 1
_RATIOS = {"always_on": 1.0, "always_off": 0.0}


def join_stage(table: str) -> Stage:
    """Return the stage of a join's batch."""
    return "join", table


def sink_stage(table: str) -> Stage:
    """Return the stage in which a joined table is written."""
    return "sink", table


def index_stage(index: str) -> Stage:
    """Return the stage in which an index is written."""
    return "index", index


def visible_stage(index: str) -> Stage:
    """Return the stage until queries see the documents."""
    return "visible", index


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedChange:
    """A sampled change."""

    source: str
    sequence: int
    trace_id: int

    def span_id(self, stage: Stage) -> int:
        """Return the id of the span of a stage: 64 bits, not 0."""
        text = f"{self.trace_id:032x}/{'/'.join(stage)}"
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Decides which changes of a topology are traced: a part `ratio` of them, from 0 to 1."""

    topology: str
    ratio: float

    def change(self, source: str, sequence: int) -> TracedChange | None:
        """Return the change if it is sampled."""
        text = f"{self.topology}/{source}/{sequence}"
        found = int.from_bytes(blake2b(text.encode(), digest_size=16).digest()) or 1
        if found & _LOW >= round(self.ratio * (1 << 64)):
            return None
        return TracedChange(source=source, sequence=sequence, trace_id=found)

    def between(
        self, before: Mapping[str, Mapping[str, object]], now: Mapping[str, Mapping[str, object]]
    ) -> Iterator[TracedChange]:
        """Yield the sampled changes that positions `now` contain and positions `before` do not, by source.

        Both are as in a barrier. A source without a former position begins here. Of more than 10,000 changes, only the
        newest are looked at."""
        for source, position in now.items():
            if source not in before:
                continue
            after, until = _sequence(before[source]), _sequence(position)
            for sequence in range(max(after, until - _LONGEST) + 1, until + 1):
                if (change := self.change(source, sequence)) is not None:
                    yield change


def _sequence(position: Mapping[str, object]) -> int:
    return int(str(position["sequence"]))


def ratio_of(environ: Mapping[str, str]) -> float:
    """Return the ratio that OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG name, 0 if no traces are wanted.

    Without a sampler it is one change in a thousand. Raises ValueError for what is no sampler or no ratio."""
    if not wanted(environ, "TRACES"):
        return 0.0
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").removeprefix("parentbased_") or "traceidratio"
    if sampler in _RATIOS:
        return _RATIOS[sampler]
    if sampler != "traceidratio":
        raise ValueError(f"OTEL_TRACES_SAMPLER: {sampler!r} is not traceidratio, always_on or always_off")
    ratio = float(environ.get("OTEL_TRACES_SAMPLER_ARG") or DEFAULT_RATIO)
    if not 0 <= ratio <= 1:
        raise ValueError(f"OTEL_TRACES_SAMPLER_ARG: {ratio} is not between 0 and 1")
    return ratio


def wanted(environ: Mapping[str, str], signal: str) -> bool:
    """Return whether the environment names an endpoint for a signal, TRACES or METRICS, and does not switch it off."""
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    off = environ.get(f"OTEL_{signal}_EXPORTER") == "none" or environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not off and any(environ.get(name) for name in endpoints)

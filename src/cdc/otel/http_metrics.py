"""Send the metrics of `/metrics` to an OpenTelemetry collector, over OTLP and HTTP, from the same registry."""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry

from cdc.model.extras import extras_named
from cdc.otel.http_spans import NAME, resource_of
from cdc.otel.stages import wanted

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.resources import Resource
    from prometheus_client.metrics_core import Metric

_EVERY_MS = "60000"


def send_metrics(topology: str, part: str, registry: CollectorRegistry = REGISTRY) -> None:
    """Send the registry's values every OTEL_METRIC_EXPORT_INTERVAL ms, from a daemon thread, and at the end.

    Does nothing if the environment names no collector. Raises UsageError if `tailorbird[otel]` is not installed."""
    if not wanted(os.environ, "METRICS"):
        return
    with extras_named("otel"):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    exporter, ended, began_ns = OTLPMetricExporter(), threading.Event(), time.time_ns()
    resource, every = resource_of(topology, part), int(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", _EVERY_MS)) / 1000

    def send() -> None:
        exporter.export(metrics_data(registry, resource, began_ns, time.time_ns()))

    def run() -> None:
        while not ended.wait(every):
            send()

    def end() -> None:
        ended.set()
        send()
        exporter.shutdown()

    threading.Thread(target=run, name="otlp metrics", daemon=True).start()
    atexit.register(end)


def metrics_data(registry: CollectorRegistry, resource: Resource, began_ns: int, now_ns: int) -> MetricsData:
    """Return the registry's values in OpenTelemetry's form: counters as monotonic sums, all other samples as gauges."""
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    def points(family: Metric, name: str) -> list[export.NumberDataPoint]:
        return [
            export.NumberDataPoint(one.labels, began_ns, now_ns, one.value)
            for one in family.samples
            if one.name == name
        ]

    found: list[export.Metric] = []
    for family in registry.collect():
        if family.type == "counter":
            total = export.Sum(points(family, f"{family.name}_total"), export.AggregationTemporality.CUMULATIVE, True)
            found.append(export.Metric(family.name, family.documentation, "", total))
            continue
        for name in dict.fromkeys(one.name for one in family.samples):
            found.append(export.Metric(name, family.documentation, "", export.Gauge(points(family, name))))
    scope = export.ScopeMetrics(InstrumentationScope(NAME), found, "")
    return export.MetricsData([export.ResourceMetrics(resource, [scope], "")])

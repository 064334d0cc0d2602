"""An OpenTelemetry collector for tests: it receives OTLP over HTTP and keeps spans and metrics."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What was received: each span with the attributes of its resource, and the last value of each metric."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.spans: list[tuple[dict[str, Any], Any]] = []
        self.metrics: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}

    def environ(self, **more: str) -> dict[str, str]:
        """Return the variables that make a process send everything here, at once."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "OTEL_TRACES_SAMPLER": "always_on",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
            **more,
        }

    def trace(self, trace_id: int) -> dict[str, Any]:
        """Return the spans of a trace by name."""
        wanted = trace_id.to_bytes(16)
        return {span.name: span for _, span in self.spans if span.trace_id == wanted}

    def receive(self, path: str, body: bytes) -> None:
        """Keep the content of a request."""
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                of = plain(resource.resource.attributes)
                self.spans += [(of, span) for scope in resource.scope_spans for span in scope.spans]
            return
        assert path == "/v1/metrics"
        for resource_metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource_metrics.scope_metrics:
                for metric in scope.metrics:
                    points = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
                    series = self.metrics.setdefault(metric.name, {})
                    for point in points:
                        series[tuple(sorted(plain(point.attributes).items()))] = point.as_double


def plain(attributes: Any) -> dict[str, Any]:
    """Return OTLP's attributes as a mapping."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            kept.receive(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept = Collector(server.server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()

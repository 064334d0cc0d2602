"""Send spans of sampled changes to an OpenTelemetry collector, over OTLP and HTTP. Nothing is imported without one."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from cdc.model.errors import UsageError
from cdc.model.extras import extras_named
from cdc.otel.stages import Sampling, Stage, TracedChange, ratio_of

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor

NAME = "tailorbird"


class Tracer:
    """Sends spans from a thread of its own. Spans are dropped while the collector is unavailable. Safe for threads.

    Attributes contain names, positions and times, never values of rows."""

    def __init__(self, sampling: Sampling, processor: SpanProcessor, resource: Resource) -> None:
        self.sampling, self._processor, self._resource = sampling, processor, resource

    def span(
        self,
        change: TracedChange,
        stage: Stage,
        *,
        parent: Stage | None,
        began_ns: int,
        ended_ns: int,
        attributes: Mapping[str, str | int],
    ) -> None:
        """Send the span of a stage of a change. Times are nanoseconds since 1970, by the clock of their machine."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

        def context(of: Stage, *, remote: bool) -> SpanContext:
            flags = TraceFlags(TraceFlags.SAMPLED)
            return SpanContext(change.trace_id, change.span_id(of), is_remote=remote, trace_flags=flags)

        span = ReadableSpan(
            name=" ".join(stage),
            context=context(stage, remote=False),
            parent=None if parent is None else context(parent, remote=True),
            resource=self._resource,
            kind=SpanKind.CONSUMER if parent else SpanKind.PRODUCER,
            attributes={
                "tailorbird.topology": self.sampling.topology,
                "tailorbird.source": change.source,
                "tailorbird.sequence": change.sequence,
                **attributes,
            },
            start_time=began_ns,
            end_time=max(began_ns, ended_ns),
            instrumentation_scope=InstrumentationScope(NAME),
        )
        self._processor.on_end(span)


@cache
def tracer_of(topology: str, part: str) -> Tracer | None:
    """Return the tracer of a part of this process, or None if the environment names no collector, or no traces.

    Raises UsageError for invalid settings, and if `tailorbird[otel]` is not installed."""
    try:
        ratio = ratio_of(os.environ)
    except ValueError as error:
        raise UsageError(str(error), "docs/observability.md lists the variables") from error
    if not ratio:
        return None
    with extras_named("otel"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    processor = BatchSpanProcessor(OTLPSpanExporter())
    atexit.register(processor.shutdown)
    return Tracer(Sampling(topology=topology, ratio=ratio), processor, resource_of(topology, part))


def resource_of(topology: str, part: str) -> Resource:
    """Return the description of this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence."""
    from opentelemetry.sdk.resources import Resource

    own = {"service.namespace": topology, "service.instance.id": f"{topology}/{part}/{os.getpid()}"}
    return Resource({"service.name": f"{NAME} {part}", **own}).merge(_of_environment())


def _of_environment() -> Resource:
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    return Resource.get_empty().merge(OTELResourceDetector().detect())

"""OpenTelemetry: every stage chooses the same changes and ids, metrics are those of `/metrics`, and off means off."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from prometheus_client import CollectorRegistry, Counter, Gauge

from cdc.otel.http_metrics import metrics_data
from cdc.otel.stages import CAPTURE, DEFAULT_RATIO, Sampling, join_stage, ratio_of
from tests.support.collector import collector
from tests.support.waiting import wait_for


@given(st.floats(0, 1), st.text("abc_", min_size=1), st.integers(1, 2**62))
def test_the_choice_is_that_of_a_standard_sampler(ratio: float, source: str, sequence: int) -> None:
    """A collector or another program that samples by trace id keeps exactly the traces that Tailorbird sends."""
    every = Sampling(topology="t", ratio=1.0).change(source, sequence)
    assert every is not None
    decided = TraceIdRatioBased(ratio).should_sample(None, every.trace_id, "").decision
    chosen = Sampling(topology="t", ratio=ratio).change(source, sequence)
    assert (chosen == every) == (decided == Decision.RECORD_AND_SAMPLE)


def test_stages_agree_on_changes_and_ids() -> None:
    """A range of positions contains the changes that capture chooses one by one. Ids differ by change and by stage."""
    sampling = Sampling(topology="t", ratio=0.1)
    alone = [one for number in range(101, 1101) if (one := sampling.change("s", number)) is not None]
    before, now = {"s": {"sequence": 100}}, {"s": {"sequence": 1100}, "new": {"sequence": 50}}
    assert list(sampling.between(before, now)) == alone
    assert 50 < len(alone) < 200
    ids = {one.span_id(stage) for one in alone for stage in (CAPTURE, join_stage("a"), join_stage("b"))}
    assert len(ids) == 3 * len(alone)
    assert list(sampling.between(now, before)) == []
    huge = {"s": {"sequence": 10**9}}
    assert 0 < len(list(sampling.between(before, huge))) < 2000, "the newest 10,000 are looked at"


_ON = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}


@pytest.mark.parametrize(
    ("environ", "ratio"),
    [
        ({}, 0.0),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, 0.0),
        (_ON, DEFAULT_RATIO),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, DEFAULT_RATIO),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, 0.0),
        ({**_ON, "OTEL_TRACES_SAMPLER": "parentbased_always_on"}, 1.0),
        ({**_ON, "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}, 0.5),
        ({**_ON, "OTEL_TRACES_SAMPLER": "always_off"}, 0.0),
        ({**_ON, "OTEL_TRACES_EXPORTER": "none"}, 0.0),
        ({**_ON, "OTEL_SDK_DISABLED": "true"}, 0.0),
    ],
)
def test_standard_variables_switch_traces(environ: Mapping[str, str], ratio: float) -> None:
    """Without an endpoint nothing is sent, whatever else is set."""
    assert ratio_of(environ) == ratio


@pytest.mark.parametrize(
    "wrong",
    [{"OTEL_TRACES_SAMPLER": "jaeger_remote"}, {"OTEL_TRACES_SAMPLER_ARG": "2"}, {"OTEL_TRACES_SAMPLER_ARG": "x"}],
)
def test_what_is_no_sampler_is_an_error(wrong: Mapping[str, str]) -> None:
    """It is not silently another ratio."""
    with pytest.raises(ValueError, match=r"SAMPLER|float"):
        ratio_of({**_ON, **wrong})


def test_metrics_are_those_of_the_registry() -> None:
    """Names, labels, kinds and values."""
    registry = CollectorRegistry()
    Counter("rows", "Rows.", ["table"], registry=registry).labels("a").inc(3)
    Gauge("lag_seconds", "Lag.", registry=registry).set(0.5)
    (resource,) = metrics_data(registry, Resource.create(), 1, 2).resource_metrics
    found = {
        one.name: [(dict(point.attributes or {}), getattr(point, "value", None)) for point in one.data.data_points]
        for one in resource.scope_metrics[0].metrics
    }
    assert found["rows"] == [({"table": "a"}, 3.0)]
    assert found["lag_seconds"] == [({}, 0.5)]
    assert getattr(resource.scope_metrics[0].metrics[0].data, "is_monotonic", False)


_PROCESS = """
import sys, time
from cdc.otel.stages import CAPTURE
from cdc.otel.http_metrics import send_metrics
from cdc.otel.http_spans import tracer_of
send_metrics("shop", "capture s")
tracer = tracer_of("shop", "capture s")
if tracer is not None:
    change = tracer.sampling.change("s", 7)
    tracer.span(change, CAPTURE, parent=None, began_ns=5, ended_ns=9, attributes={"tailorbird.table": "t"})
print(any(name.startswith("opentelemetry") for name in sys.modules))
"""


def test_a_process_sends_to_a_collector_and_without_one_imports_nothing() -> None:
    """Spans and metrics that are not sent yet are sent at the end of the process."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    with collector() as kept:
        for more, imported in (({}, "False"), (kept.environ(OTEL_RESOURCE_ATTRIBUTES="site=a"), "True")):
            done = subprocess.run(
                [sys.executable, "-c", _PROCESS], env={**environ, **more}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout.strip() == imported
        wait_for(lambda: kept.spans and kept.metrics, "nothing arrives", 10)
    [(resource, span)] = kept.spans
    assert (span.name, span.start_time_unix_nano, span.end_time_unix_nano) == ("capture", 5, 9)
    assert (resource["service.name"], resource["service.namespace"], resource["site"]) == (
        "tailorbird capture s", "shop", "a",
    )  # fmt: skip
    assert "python_info" in kept.metrics

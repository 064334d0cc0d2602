"""The option `--metrics-port` of all processes. Images and unit files set its variable."""

from __future__ import annotations

from typing import Annotated

import typer

VARIABLE = "TAILORBIRD_METRICS_PORT"

MetricsPort = Annotated[
    int, typer.Option("--metrics-port", envvar=VARIABLE, help="Serve /metrics and /health on this port; 0: off.")
]
MetricsPorts = Annotated[
    list[int] | None,
    typer.Option("--metrics-port", envvar=VARIABLE, help="Serve /metrics and /health, one port per table; 0: off."),
]

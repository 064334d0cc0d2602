"""`tailorbird demo`: run the shop's pipeline over live traffic and verify the result."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path

import typer
from rich.console import Console

from cdc.lifetime.proc_signals import stop_event
from cdc.model.errors import UsageError


def demo(
    duration: str = typer.Option(
        "", "--for", metavar="60s", help="Stop the traffic after this time. Default: at Ctrl-C."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the outcome as one JSON object on the last line."),
    rate: float = typer.Option(110.0, help="Source changes per second."),
    customers: int = typer.Option(5_000, min=1, help="Customers of the catalogue."),
    products: int = typer.Option(2_000, min=1, help="Products of the catalogue."),
    orders: int = typer.Option(50_000, min=1, help="Orders of the catalogue."),
    seed: int = typer.Option(7, help="Seed of catalogue and traffic."),
    page_port: int = typer.Option(8080, "--port", help="Port of the page."),
    file: str = typer.Option(
        "", "--topology", help="Another topology of the shop, by file or name: revenue, two-engines."
    ),
    fleet: bool = typer.Option(False, "--fleet", help="Capture by agents, through a gateway over mTLS: docs/fleet.md."),
    sink: str = typer.Option("", "--sink", metavar="NAME", help="Also store the table in `postgres` or `iceberg`."),
    index: str = typer.Option("", "--index", metavar="opensearch", help="Index in OpenSearch: docs/indexing.md."),
    keep: bool = typer.Option(False, "--keep", help="Keep the local stack running at the end."),
) -> None:
    """Run the whole pipeline over live traffic on local servers and compare the result.

    Exit code 0 only if every table in HBase and its index equals, row by row and field by field, the answer of the same
    query over both databases.

    Example: tailorbird demo --for 60s --json

    Example: tailorbird demo --topology topologies/revenue.yml

    Example: tailorbird demo --topology two-engines --for 60s

    Example: tailorbird demo --fleet --for 60s --json

    Example: tailorbird demo --sink iceberg --for 60s

    Example: tailorbird demo --index opensearch --for 60s
    """
    topology = _topology_file(_named(file, sink, index))
    console = Console(stderr=True)
    for_seconds = _seconds(duration) if duration else None
    stop = stop_event()
    # imported here so that `tailorbird --help` stays quick
    from tailorbird.cli.cli_demo_show import DemoOptions, show

    options = DemoOptions(
        file=topology,
        seconds=for_seconds,
        rate=rate,
        sizes={"customers": customers, "products": products, "orders": orders},
        seed=seed,
        page_port=page_port,
        fleet=fleet,
        keep=keep,
    )
    with ExitStack() as closing:
        outcome, equal = show(options, console, closing, stop)
    if as_json:
        typer.echo(json.dumps(outcome))
    raise typer.Exit(0 if equal else 1)


def _named(file: str, sink: str, index: str) -> str:
    """Return the file or name of the topology that the options choose."""
    if sink not in ("", "postgres", "iceberg") or (sink and file):
        raise UsageError(f"--sink {sink}", "--sink postgres or --sink iceberg, without --topology")
    if index not in ("", "opensearch") or (index and (file or sink)):
        raise UsageError(f"--index {index}", "--index opensearch, without --topology and --sink")
    return file or sink or index or "shop"


def _topology_file(named: str) -> str:
    """Return the topology's file. A bare name means `topologies/NAME.yml` in the checkout or the working folder."""
    if "/" in named or named.endswith(".yml"):
        return named
    ours = Path(__file__).parents[3] / "topologies" / f"{named}.yml"
    return str(ours) if ours.exists() else f"topologies/{named}.yml"


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)", text)
    if match is None:
        raise UsageError(f"--for {text}: not a duration", "write e.g. --for 60s or --for 5m")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]

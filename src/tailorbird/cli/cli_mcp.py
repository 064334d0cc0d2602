"""`tailorbird mcp`: serve the rows of dashboards to clients that speak the Model Context Protocol."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cdc.topology.topology import Topology


def mcp(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    dashboard: Annotated[
        list[str] | None, typer.Option("--dashboard", help="Only this dashboard. May be repeated. Default: all.")
    ] = None,
) -> None:
    """Serve the rows of dashboards to MCP clients, read-only, over standard input and output.

    A client starts this command and speaks the Model Context Protocol with it. Its tools are `tables`, `search`,
    `explain`, `cut` and `verification`. Every answer has its proof: the positions of the source databases up to which
    it is complete, and the last result of `verify`. Only columns that a dashboard shows can be read, filtered or
    searched (docs/mcp.md).

    Example: tailorbird mcp topologies/shop.yml --dashboard sales

    Example: tailorbird mcp topologies/shop.yml --dashboard sales --dashboard stock
    """
    from importlib.metadata import version

    from cdc.model.extras import extras_named
    from cdc.process.file_topology import load_serving

    with extras_named("dashboard"):
        from tailorbird.web.dashboard.view import choose_dashboards
        from tailorbird.web.mcp.protocol import McpServer
        from tailorbird.web.mcp.run_answers import DashboardAnswers
        from tailorbird.web.mcp.tools import INSTRUCTIONS, Handles, tools_of

    topology = load_serving(file)
    names: list[str | None] = [*dashboard] if dashboard else [None]
    chosen = [one for name in names for one in choose_dashboards(topology, name)]
    answers = {one.name: DashboardAnswers(topology, one, explained) for one in chosen}
    server = McpServer(
        tools_of(answers, Handles(lambda: secrets.token_hex(8))),
        version=version("tailorbird"),
        instructions=INSTRUCTIONS,
    )
    for line in sys.stdin:
        if line.strip() and (reply := server.answer(line)) is not None:
            sys.stdout.write(reply + "\n")
            sys.stdout.flush()


def explained(topology: Topology, table: str, row_key: bytes) -> Mapping[str, Any] | None:
    """Return the output of `tailorbird explain --json` for the row with this key, or None if there is no such row."""
    from cdc.model.extras import extras_named

    with extras_named("joins"):
        from tailorbird.verify.explain.explanation_text import json_of
        from tailorbird.verify.explain.run_explain import Explainer
    with Explainer(topology, table) as explainer:
        found = explainer.explain_at(row_key)
    return None if found is None else json_of(found)

"""`tailorbird api`: open the topologies' topics, and serve the API until the process is stopped."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from cdc.model.errors import UsageError
from cdc.oidc.claims import OidcSettings
from cdc.process.kafka_grants import granted
from cdc.topology.topology import Topology
from ingest.fleet.tokens import Guesses
from ingest.gateway.http_operators import Guard
from ingest.gateway.run_gateway import commands_of
from tailorbird.web.api.changes import IndexChanges
from tailorbird.web.api.commands import RemoteCommand
from tailorbird.web.api.http_app import Api, api_app
from tailorbird.web.api.http_events import EventStreams
from tailorbird.web.api.http_rows import serve_events, serve_rows
from tailorbird.web.api.proc_operations import Operations
from tailorbird.web.api.served import AuditLog, ServedTopology
from tailorbird.web.dashboard.guard.access import Access
from tailorbird.web.dashboard.guard.http_serve import is_loopback, refuse_taken, serve_pages
from tailorbird.web.fleet.kafka_fleet import fleet_topics
from tailorbird.web.mcp.run_answers import DashboardAnswers
from tailorbird.web.mcp.tools import Handles, tools_of

ExplainRow = Callable[[Topology, str, bytes], Mapping[str, Any] | None]


def run_api(
    topologies: Sequence[tuple[Topology, Topology]],
    commands: Sequence[RemoteCommand],
    explain: ExplainRow,
    *,
    host: str,
    port: int,
    access: Access,
    oidc: OidcSettings | None = None,
) -> None:
    """Serve the API until SIGTERM or SIGINT. `topologies` are pairs: with the login of an operator in Kafka, and
    with the versions of tables that queries see.

    Raises UsageError if the port is in use, if other machines could reach it without TLS, or if two topologies have one
    name; Retriable while Kafka is unavailable."""
    refuse_taken(host, port)
    refuse_plain(host, access)
    names = [one.name for one, _ in topologies]
    if len(set(names)) < len(names):
        raise UsageError("two of the topologies have the same name", "rename one of them")
    issuer = None
    if oidc is not None:
        from cdc.oidc.http_oidc import OidcIssuer

        issuer = OidcIssuer(oidc)
    guesses, guards, served = Guesses(), dict[str, Guard](), list[ServedTopology]()
    with ExitStack() as stack:
        for topology, serving in topologies:
            topic, audit = stack.enter_context(fleet_topics(granted(topology, "operator")))
            tokens = commands_of(topology, topic, audit)
            guards[topology.name] = Guard(tokens, guesses, time.monotonic, issuer)
            served.append(served_topology(topology, serving, audit, explain))
        api = Api(served, commands, Operations())
        app = api_app(api, guards)
        serve_rows(app, api)
        serve_events(app, api, EventStreams())
        serve_pages(app, "api", host=host, port=port, reported={"topologies": ",".join(names)}, access=access)


def served_topology(topology: Topology, serving: Topology, audit: AuditLog, explain: ExplainRow) -> ServedTopology:
    """Return a topology with the tools over its dashboards. No server is asked before a request."""
    handles = Handles(lambda: secrets.token_hex(8))
    answers = {name: DashboardAnswers(serving, one, explain) for name, one in serving.dashboards.items()}
    return ServedTopology(
        name=topology.name,
        file=topology.file,
        audit=audit,
        tools={tool.name: tool for tool in tools_of(answers, handles)} if answers else {},
        dashboards=tuple(answers),
        feed=lambda name: IndexChanges(answers[name], handles),
    )


def refuse_plain(host: str, access: Access) -> None:
    """Raise UsageError if tokens would pass a network without TLS."""
    if bool(access.certificate) != bool(access.key):
        raise UsageError("a certificate needs its key", "--tls-cert FILE --tls-key FILE")
    if not (is_loopback(host) or access.secure or access.behind_proxy):
        what = f"other machines can reach {host}, and would send tokens without TLS"
        raise UsageError(what, "--tls-cert FILE --tls-key FILE, or --behind-proxy")

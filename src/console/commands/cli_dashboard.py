"""`tailorbird dashboard`: the live pages of indexes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cdc.topology.topology import Index, Topology
    from console.checks.telling import PageCheck


def dashboard(
    topology: Annotated[str, typer.Argument(help="Topology file, e.g. topologies/shop.yml.")],
    name: Annotated[
        str | None, typer.Option("--dashboard", help="Only this dashboard; else all of them, the first at /.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve on; other machines reach only what is not loopback.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to serve on.")] = 8080,
    auth: Annotated[
        str | None, typer.Option("--auth", help="File of who may look, as `tailorbird password` writes its lines.")
    ] = None,
    tls_cert: Annotated[str, typer.Option("--tls-cert", help="Certificate of the server (PEM).")] = "",
    tls_key: Annotated[str, typer.Option("--tls-key", help="Its key.")] = "",
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy of yours asks who they are, and speaks TLS.")
    ] = False,
) -> None:
    """Serve live pages over indexes: search, facets, time histogram, newest rows, freshness.

    Example: tailorbird dashboard topologies/shop.yml --port 8080
    """
    # imported here, since the web server takes a second to load and no other command needs it
    from cdc.process.file_running import announced
    from cdc.process.file_topology import load_serving
    from cdc.words.extras import extras_named
    from console.doctor.validate import validate

    with extras_named("dashboard"):
        from console.dashboard.board import Board
        from console.dashboard.guard.access import Access
        from console.dashboard.guard.file_passwords import load_passwords
        from console.dashboard.http_dashboard import serve_dashboards
        from console.dashboard.http_wait import serve_wait
        from console.dashboard.view import choose_dashboards

    loaded = load_serving(topology)
    chosen = choose_dashboards(loaded, name)
    waiting = _waiting(loaded)
    checked = _checked(loaded)
    indexes = {one.name: loaded.indexes[one.index] for one in chosen}
    columns = validate(loaded)
    shown = [(one, indexes[one.name]) for one in chosen]
    boards = [
        Board(loaded, one, partial(waiting, of), partial(checked, of), columns.get(of.table) or ()) for one, of in shown
    ]
    serve_wait(loaded)
    users = load_passwords(auth) if auth else {}
    access = Access(users=users, certificate=tls_cert, key=tls_key, behind_proxy=behind_proxy)
    # where `status` can ask it
    asked = port if host in ("127.0.0.1", "localhost", "0.0.0.0") and not access.secure else 0
    with ExitStack() as told:
        for one in chosen:
            told.enter_context(announced(loaded.name, f"dashboard {one.name}", asked))
        serve_dashboards(boards, host=host, port=port, access=access, look=_look(loaded))


def _look(topology: Topology) -> Callable[[], dict[str, Any]]:
    """A function that tells the topology's graph, as `tailorbird status` sees its processes."""
    from console.commands.cli_status import asked_parts
    from console.dashboard.panels.overview import graph_of
    from joins.select.parser import tables_of

    reads = {name: {one.source for one in tables_of(topology, table)} for name, table in topology.tables.items()}
    return lambda: graph_of(topology, reads, asked_parts(topology))


def _checked(topology: Topology) -> Callable[[Index], PageCheck]:
    """A function that tells what checks found of the tables behind an index; nothing while Kafka does not tell."""
    from console.checks.kafka_runs import runs_watched
    from console.checks.telling import PageCheck, check_statuses, page_text
    from console.commands.cli_dead_letters import joined_from

    if not topology.checks:
        return lambda index: PageCheck()
    runs, reads = runs_watched(topology), joined_from(topology)

    def tell(index: Index) -> PageCheck:
        now_ms = time.time_ns() // 1_000_000
        tables = {("table", index.table), ("index", index.table), *(("log", one) for one in reads.get(index.table, ()))}
        return page_text(check_statuses(topology, runs.last() or {}, now_ms), tables, topology.file, now_ms)

    return tell


def _waiting(topology: Topology) -> Callable[[Index], int | None]:
    """A function that tells how much of an index's rows is refused or in quarantine; None while Kafka does not tell."""
    from console.commands.cli_dead_letters import joined_from
    from console.status.dead_letters import affected
    from console.status.kafka_letters import letters_watched
    from console.status.kafka_positions import positions_watched
    from console.status.quarantine import quarantined

    letters, positions, tables = letters_watched(topology), positions_watched(topology, 3.0), joined_from(topology)

    def count(index: Index) -> int | None:
        found = letters.last()
        if found is None:
            return None
        return affected([*quarantined(positions.last() or {}), *found], tables, index.table, index.name)

    return count

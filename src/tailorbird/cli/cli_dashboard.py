"""`tailorbird dashboard`: serve the live pages of indexes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cdc.oidc.claims import OidcSettings
    from cdc.topology.topology import Index, Topology
    from tailorbird.operate.status.captured_position import CapturedPosition
    from tailorbird.operate.status.dead_letters import DeadLetterRow, OpenDeadLetters
    from tailorbird.operate.status.index_status import VisibleCut
    from tailorbird.verify.checks.check_status import CheckStatus, PageCheck
    from tailorbird.web.dashboard.panels.listed import ListedPage


def dashboard(
    topology: Annotated[str, typer.Argument(help="Topology file, e.g. topologies/shop.yml.")],
    name: Annotated[
        str | None, typer.Option("--dashboard", help="Only this dashboard. Default: all, the first one at /.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on. Other machines cannot reach a loopback address.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to serve on.")] = 8080,
    auth: Annotated[
        str | None, typer.Option("--auth", help="File of users, with lines printed by `tailorbird password`.")
    ] = None,
    oidc: Annotated[
        Path | None, typer.Option("--oidc", help="File of an OpenID Connect issuer where users log in.")
    ] = None,
    tls_cert: Annotated[str, typer.Option("--tls-cert", help="Certificate of the server (PEM).")] = "",
    tls_key: Annotated[str, typer.Option("--tls-key", help="Private key of the server (PEM).")] = "",
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="Your reverse proxy authenticates users and terminates TLS.")
    ] = False,
) -> None:
    """Serve dashboards over indexes: panels, search, facets, rows and freshness.

    Example: tailorbird dashboard topologies/shop.yml --port 8080
    """
    # imported here, since the web server takes a second to load and no other command needs it
    from cdc.model.extras import extras_named
    from cdc.process.file_running import announced
    from cdc.process.file_topology import load_serving
    from tailorbird.operate.doctor.validate import validate

    with extras_named("dashboard"):
        from tailorbird.web.dashboard.board import Board
        from tailorbird.web.dashboard.guard.access import Access
        from tailorbird.web.dashboard.guard.file_passwords import load_passwords
        from tailorbird.web.dashboard.http_dashboard import serve_dashboards
        from tailorbird.web.dashboard.view import choose_pages

    loaded = load_serving(topology)
    chosen = choose_pages(loaded, name)
    columns, watched = validate(loaded), _Watched(loaded)
    boards = [
        Board(loaded, one, partial(watched.waiting, of), partial(watched.checked, of), columns.get(of.table) or ())
        for one in chosen
        for of in [loaded.indexes[one.index]]
    ]
    users = load_passwords(auth) if auth else {}
    settings = None if oidc is None else _issuer(oidc)
    access = Access(users=users, oidc=settings, certificate=tls_cert, key=tls_key, behind_proxy=behind_proxy)
    # the port at which `status` can query this process
    asked = port if host in ("127.0.0.1", "localhost", "0.0.0.0") and not access.secure else 0
    with ExitStack() as reported:
        for one in chosen:
            reported.enter_context(announced(loaded.name, f"dashboard {one.name}", asked, "127.0.0.1"))
        look, explain = _look(loaded, watched), partial(_explained, loaded)
        serve_dashboards(
            boards, host=host, port=port, access=access, look=look, listed=watched.pages(), explain=explain
        )


def _issuer(file: Path) -> OidcSettings:
    from cdc.model.extras import extras_named

    with extras_named("dashboard"):
        from cdc.oidc.http_oidc import load_oidc
    return load_oidc(file)


def _look(topology: Topology, watched: _Watched) -> Callable[[], dict[str, Any]]:
    """Return a function that describes the topology and the state of its processes and servers, as JSON for the
    page."""
    from joins.select.parser import tables_of
    from tailorbird.operate.status.file_parts import asked_parts
    from tailorbird.web.dashboard.panels.flow import FlowState, Rates
    from tailorbird.web.dashboard.panels.overview import graph_of

    reads = {name: {one.source for one in tables_of(topology, table)} for name, table in topology.tables.items()}
    rates = Rates()

    def look() -> dict[str, Any]:
        parts, captured, now_ms = asked_parts(topology), watched.captured(), time.time_ns() // 1_000_000
        counted = {f"capture {name}": float(one.sequence) for name, one in (captured or {}).items()}
        for part in parts:
            if part.part.startswith("index ") and "documents" in part.more:  # several processes serve one index
                counted[part.part] = counted.get(part.part, 0.0) + part.more["documents"]
        rates.note(time.monotonic(), counted)
        seen = FlowState(
            now_ms=now_ms,
            rates=rates.reported(),
            captured=captured,
            visible=watched.visible(),
            waiting=watched.dead_letters()[0],
            checked=[one for status in watched.statuses(now_ms) or () if status.run for one in status.run.checked],
        )
        return graph_of(topology, reads, parts, seen)

    return look


def _explained(topology: Topology, table: str, row_key: bytes) -> dict[str, Any] | None:
    """Return the output of `tailorbird explain --json` for the row with this key, or None if there is no such row."""
    from cdc.model.extras import extras_named

    with extras_named("joins"):
        from tailorbird.verify.explain.explanation_text import json_of
        from tailorbird.verify.explain.run_explain import Explainer
    with Explainer(topology, table) as explainer:
        found = explainer.explain_at(row_key)
    return None if found is None else json_of(found)


class _Watched:
    """Reads a topology's dead letters, quarantine and check results from Kafka every few seconds, for the pages."""

    def __init__(self, topology: Topology) -> None:
        from tailorbird.cli.cli_dead_letters import joined_from
        from tailorbird.operate.status.kafka_captured import positions_watched
        from tailorbird.operate.status.kafka_dead_letters import dead_letters_listed
        from tailorbird.verify.checks.kafka_runs import runs_watched
        from tailorbird.web.dashboard.panels.listed import MOST_DEAD_LETTERS

        self._topology, self._reads = topology, joined_from(topology)
        self._dead_letters = dead_letters_listed(topology, keep=MOST_DEAD_LETTERS)
        self._positions = positions_watched(topology, 3.0)
        self._runs = runs_watched(topology) if topology.checks else None

    def captured(self) -> dict[str, CapturedPosition] | None:
        """Return the newest captured position of each source. None while Kafka is unavailable."""
        return self._positions.last()

    def visible(self) -> dict[str, VisibleCut] | None:
        """Return what queries of each index see, as source positions. None while Solr is unavailable.

        Solr is queried only by this call, so a page without viewers causes no load."""
        from cdc.model.errors import Retriable
        from tailorbird.operate.status.visible_cuts import visible_cuts

        try:
            return visible_cuts(self._topology)
        except Retriable:  # the affected parts show the missing values
            return None

    def waiting(self, index: Index) -> int | None:
        """Return how many rows of an index are dead letters or in quarantine; None while Kafka is unavailable."""
        from tailorbird.operate.status.dead_letters import affected

        found, _ = self.dead_letters()
        return None if found is None else affected(found, self._reads, index.table, index.name)

    def dead_letters(self) -> tuple[Sequence[OpenDeadLetters] | None, Sequence[DeadLetterRow]]:
        """Return the counts of open records, quarantined tables first, and the newest records.

        The counts are None while Kafka is unavailable.
        """
        from tailorbird.operate.status.quarantine import quarantine_dead_letters, quarantined

        found, positions = self._dead_letters.last(), self._positions.last() or {}
        if found is None:
            return None, ()
        return [*quarantined(positions), *found[0]], [*quarantine_dead_letters(positions), *found[1]]

    def checked(self, index: Index) -> PageCheck:
        """Return the results of checks for an index and the tables that it is built from; empty without Kafka."""
        from tailorbird.verify.checks.check_status import PageCheck, page_text

        now_ms = time.time_ns() // 1_000_000
        found = self.statuses(now_ms)
        if found is None:
            return PageCheck()
        reads = self._reads.get(index.table, ())
        tables = {("table", index.table), ("index", index.table), *(("log", one) for one in reads)}
        return page_text(found, tables, self._topology.file, now_ms)

    def statuses(self, now_ms: int) -> list[CheckStatus] | None:
        """Return the state of each check; None while Kafka is unavailable."""
        from tailorbird.verify.checks.check_status import check_statuses

        runs = {} if self._runs is None else self._runs.last()
        return None if runs is None else check_statuses(self._topology, runs, now_ms)

    def pages(self) -> dict[str, tuple[str, Callable[[int], ListedPage]]]:
        """Return the additional pages by path, each with its title and a function that builds its content.

        There is a Fleet page if agents capture a source."""
        from tailorbird.web.dashboard.panels.listed import dead_letters_page, fleet_page, proof_page

        topology = self._topology
        found: dict[str, tuple[str, Callable[[int], ListedPage]]] = {
            "/proof": ("Proof", lambda now: proof_page(topology, self.statuses(now), now)),
            "/dead-letters": ("Dead letters", lambda now: dead_letters_page(topology, *self.dead_letters(), now)),
        }
        if any(one.agent for one in topology.sources.values()):
            found["/fleet"] = ("Fleet", lambda _: fleet_page(topology))
        return found

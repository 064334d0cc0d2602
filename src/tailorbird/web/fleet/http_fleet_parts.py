"""The parts of the fleet's page: agents, tables, sources. Each shows data and reports the user's commands.

Names from databases reach the browser as text nodes and attributes only, never as markup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from nicegui import ui
from nicegui.element import Element

from tailorbird.web.fleet.view import AgentLine, GatewayLine, Health, SourceLine, TableLine

Do = Callable[[], Awaitable[None]]
_GOOD: frozenset[Health] = frozenset({"moving", "idle"})


class FleetActions(Protocol):
    """Commands that a user can issue."""

    async def sync(self, table: TableLine) -> None: ...
    async def stop_table(self, source: SourceLine, table: str) -> None: ...
    async def run(self, source: SourceLine, running: bool) -> None: ...
    async def drain(self, one: AgentLine | GatewayLine) -> None: ...
    async def configure(self, source: SourceLine) -> None: ...
    async def place(self, source: SourceLine) -> None: ...
    async def dump(self, source: SourceLine) -> None: ...


def button(text: str, testid: str, do: Do, name: str = "") -> Element:
    """A plain button. `name` describes its purpose if its text does not."""
    with ui.element("button").classes("tb-fleet-button").props(f"type=button data-testid={testid}") as made:
        ui.label(text)
    if name:
        made.props["aria-label"] = f"{text} {name}"
    made.on("click", do)
    return made


def _pill(health: Health, testid: str) -> None:
    ui.label(health).classes(f"tb-pill {'' if health in _GOOD else 'bad'}").props(f"data-testid={testid}")


def _head(*names: str) -> None:
    with ui.element("thead"), ui.element("tr"):
        for name in names:
            with ui.element("th").props("scope=col"):
                ui.label(name)


def _cell(text: str = "", testid: str = "") -> Element:
    with ui.element("td") as made:
        if text:
            label = ui.label(text)
            label.props["title"] = text
    if testid:
        made.props(f"data-testid={testid}")
    return made


def _row(testid: str, key: str) -> Element:
    made = ui.element("tr").props(f"data-testid={testid}")
    made.props["data-key"] = key
    return made


class AgentsPart:
    """The part of the page with one line per agent: its health, gateway and sources."""

    def __init__(self, actions: FleetActions) -> None:
        self._actions = actions
        with ui.element("section").classes("tb-card").props("aria-label=Agents"):
            ui.label("Agents").classes("tb-heading").props("role=heading aria-level=2")
            self._body = ui.element("table").classes("tb-fleet-table").props("data-testid=agents")

    def show(self, agents: Sequence[AgentLine]) -> None:
        """Replace the content."""
        self._body.clear()
        with self._body:
            _head("Agent", "Health", "Sources", "Gateway", "Version", "")
            with ui.element("tbody"):
                for one in agents:
                    with _row("agent", one.name):
                        _cell(one.name)
                        with _cell():
                            _pill(one.health, "agent-health")
                            ui.label(one.why).classes("tb-note")
                        _cell(", ".join(one.sources) or "none")
                        _cell(one.gateway)
                        _cell(one.version)
                        with _cell():
                            text = "End draining" if one.drained else "Drain"
                            button(text, "drain", partial(self._actions.drain, one), one.name)
        if not agents:
            with self._body:
                ui.label("No agent has dialled yet.").classes("tb-note")


class GatewaysPart:
    """The part of the page with one line per gateway."""

    def __init__(self, actions: FleetActions) -> None:
        self._actions = actions
        with ui.element("section").classes("tb-card").props("aria-label=Gateways"):
            ui.label("Gateways").classes("tb-heading").props("role=heading aria-level=2")
            self._body = ui.element("table").classes("tb-fleet-table").props("data-testid=gateways")

    def show(self, gateways: Sequence[GatewayLine]) -> None:
        """Replace the content."""
        self._body.clear()
        with self._body:
            _head("Gateway", "Health", "Agents", "")
            with ui.element("tbody"):
                for one in gateways:
                    with _row("gateway", one.name):
                        _cell(one.name)
                        with _cell():
                            _pill(one.health, "gateway-health")
                        _cell(str(one.agents))
                        with _cell():
                            text = "End draining" if one.drained else "Drain"
                            button(text, "drain-gateway", partial(self._actions.drain, one), one.name)


class MapPart:
    """Databases and tables by agent. Each table that is not captured has a button to capture it."""

    def __init__(self, actions: FleetActions) -> None:
        self._actions = actions
        with ui.element("section").classes("tb-card").props("aria-label=Map"):
            ui.label("Map").classes("tb-heading").props("role=heading aria-level=2")
            self._body = ui.element("div").props("data-testid=map")

    def show(self, tables: Sequence[TableLine], more: int) -> None:
        """Replace the content. `more` is the number of tables that are not shown."""
        self._body.clear()
        with self._body:
            for place in dict.fromkeys((one.agent, one.connection, one.database) for one in tables):
                agent, connection, database = place
                with ui.element("details").props("open data-testid=database"):
                    with ui.element("summary").classes("tb-fleet-place"):
                        ui.label(f"{database}   ·   {connection} at {agent}")
                    with ui.element("table").classes("tb-fleet-table"):
                        _head("Table", "Rows, about", "Columns", "Captured", "")
                        with ui.element("tbody"):
                            for one in tables:
                                if (one.agent, one.connection, one.database) == place:
                                    self._line(one)
            if more:
                ui.label(f"{more:,} more: search for them").classes("tb-note").props("data-testid=map-more")
            if not tables:
                ui.label("No agent has reported a table with that name.").classes("tb-note")

    def _line(self, one: TableLine) -> None:
        with _row("table", one.full):
            _cell(one.name)
            _cell("?" if one.rows is None else f"{one.rows:,}")
            with _cell(), ui.element("details"):
                with ui.element("summary"):
                    ui.label(str(len(one.columns)))
                for name, kind in one.columns:
                    ui.label(f"{name} {kind}").classes("tb-note")
            with _cell(testid="captured"):
                ui.label(f"by {one.captured}" if one.captured else "no").classes("" if one.captured else "tb-note")
                if one.captured:
                    _progress(one)
            with _cell():
                if one.captured is None:
                    button("Sync this table", "sync", partial(self._actions.sync, one), one.full)


def _progress(one: TableLine) -> None:
    if one.progress is None:
        return
    bar = ui.element("progress").props("max=1 data-testid=progress")
    bar.props["value"] = f"{one.progress:.3f}"
    bar.props["aria-label"] = f"snapshot of {one.full}"
    text = "snapshot done" if one.done else f"{one.read or 0:,} rows read of about {one.rows or 0:,}"
    ui.label(text).classes("tb-note")


class SourcesPart:
    """The part of the page with one line per source: its configuration, its state, and its commands."""

    def __init__(self, actions: FleetActions) -> None:
        self._actions = actions
        with ui.element("section").classes("tb-card").props("aria-label=Sources"):
            ui.label("Sources").classes("tb-heading").props("role=heading aria-level=2")
            self._body = ui.element("table").classes("tb-fleet-table").props("data-testid=sources")

    def show(self, sources: Sequence[SourceLine]) -> None:
        """Replace the content."""
        self._body.clear()
        with self._body:
            _head("Source", "Health", "Tables", "Position", "")
            with ui.element("tbody"):
                for one in sources:
                    self._line(one)
        if not sources:
            with self._body:
                ui.label("Nothing is captured yet: choose a table in the map.").classes("tb-note")

    def _line(self, one: SourceLine) -> None:
        with _row("source", one.name):
            with _cell():
                ui.label(one.name)
                ui.label(f"version {one.version}, {one.connection} at {one.holder or 'no agent'}").classes("tb-note")
            with _cell():
                _pill(one.health, "source-health")
                ui.label(one.why).classes("tb-note")
            with _cell(), ui.element("div").classes("tb-chips"):
                for table in one.tables:
                    chip = ui.element("button").classes("tb-chip").props("type=button data-testid=stop-table")
                    chip.props["aria-label"] = f"stop {table}"
                    with chip.on("click", partial(self._actions.stop_table, one, table)):
                        ui.label(table)
            with _cell(testid="position"):
                ui.label(one.position or "none yet")
                if one.lag_ms is not None:
                    ui.label(f"{one.lag_ms / 1000:.1f} s lag").classes("tb-note")
            with _cell(), ui.element("div").classes("tb-chips"):
                run = partial(self._actions.run, one, not one.running)
                button("Stop" if one.running else "Start", "run", run, one.name)
                button("Configure", "configure", partial(self._actions.configure, one), one.name)
                button("Positions", "positions", partial(self._actions.place, one), one.name)
                button("Dump", "dump", partial(self._actions.dump, one), one.name)


def refusal(error: Any) -> str:
    """Return, as text, the reason why the gateway or agent rejected a request."""
    return f"{error.message}. {error.hint}" if getattr(error, "hint", "") else str(error)

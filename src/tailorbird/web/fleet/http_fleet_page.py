"""The fleet's page in one browser: login with a token, refresh, and the user's commands.

The page calls a gateway's REST API with the user's token. So it has the rights of the token, and the audit log names
the user. The server keeps a token in memory, for one browser tab."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from nicegui import app, run, ui
from nicegui.client import Client

from cdc.model.errors import TailorbirdError, UsageError
from tailorbird.web.fleet.http_fleet import FleetApi, name_in_path
from tailorbird.web.fleet.http_fleet_parts import AgentsPart, GatewaysPart, MapPart, SourcesPart, button, refusal
from tailorbird.web.fleet.view import (
    AgentLine,
    GatewayLine,
    SourceLine,
    TableLine,
    agents_of,
    found,
    gateways_of,
    new_source,
    source_for,
    sources_of,
    tables_of,
)

_REFRESH = 1.0  # seconds
_TOKEN = "fleet token"


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The state of the fleet at one moment."""

    agents: list[AgentLine]
    gateways: list[GatewayLine]
    sources: list[SourceLine]
    tables: list[TableLine]


class FleetPage:
    """The page of one browser. `api` returns a client of the gateway's API for a token."""

    def __init__(self, api: Callable[[str], FleetApi], client: Client) -> None:
        self._make, self._client = api, client
        self._api: FleetApi | None = None
        self._words, self._shown = "", dict[str, Any]()
        self._sight: FleetSnapshot | None = None
        self._lock = asyncio.Lock()
        with ui.element("header").classes("tb-top"):
            with ui.element("h1"):
                ui.label("Fleet")
            self._pill = ui.label("No token").classes("tb-pill bad").props("data-testid=status role=status")
            self._search = ui.input(placeholder="Search tables and columns", on_change=self._searched)
            self._search.classes("tb-search").props("outlined dense clearable debounce=250 type=search")
            self._search.props('data-testid=search aria-label="Search tables and columns"')
        self._banner = ui.label().classes("tb-banner").props("data-testid=banner role=alert")
        self._banner.set_visibility(False)
        self._body = ui.element("main").classes("tb-fleet")
        self._room = ui.element("div")  # for dialogs
        self._login()

    async def begin(self) -> None:
        """Continue with the token that this browser tab has used before."""
        if token := app.storage.tab.get(_TOKEN):
            await self._enter(str(token))

    # login

    def _login(self) -> None:
        with self._body, ui.element("form").classes("tb-card tb-fleet-login") as form:
            ui.label("Your token, as printed by `tailorbird fleet token issue`").classes("tb-heading")
            token = ui.input(password=True).props("outlined dense data-testid=token aria-label=Token autocomplete=off")
            button("Open", "enter", lambda: self._enter(token.value or ""))
            form.on("submit.prevent", lambda: self._enter(token.value or ""))

    async def _enter(self, token: str) -> None:
        try:
            if not token.strip():
                raise UsageError("no token", "tailorbird fleet token issue NAME --role operate")
            api = self._make(token.strip())
            await run.io_bound(api.ask, "GET", "agents")
        except TailorbirdError as error:
            self._say(refusal(error))
            return
        app.storage.tab[_TOKEN] = token.strip()
        self._api = api
        self._shown.clear()
        self._body.clear()
        self._say("")
        with self._body:
            self._agents, self._map, self._sources = AgentsPart(self), MapPart(self), SourcesPart(self)
            self._gateways = GatewaysPart(self)
            ui.timer(_REFRESH, self.refresh)

    # refresh loop

    async def refresh(self) -> None:
        """Query the gateway and show what has changed."""
        if self._api is None or not self._client.has_socket_connection or self._lock.locked():
            return
        async with self._lock:
            try:
                self._sight = await run.io_bound(_seen, self._api)
            except TailorbirdError as error:
                self._pill.set_text("Unavailable")
                self._pill.classes(add="bad")
                self._say(refusal(error))
                return
            if self._pill.text == "Unavailable":
                self._say("")
            self._pill.set_text("Live")
            self._pill.classes(remove="bad")
            self._show()

    def _searched(self, event: Any) -> None:
        self._words = event.value or ""
        self._show()

    def _show(self) -> None:
        """Update only parts that changed, so that an element that the user is about to click stays in place."""
        sight = self._sight
        if sight is None:
            return
        tables = found(sight.tables, self._words)
        self._news("agents", sight.agents, lambda: self._agents.show(sight.agents))
        self._news("map", tables, lambda: self._map.show(*tables))
        self._news("sources", sight.sources, lambda: self._sources.show(sight.sources))
        self._news("gateways", sight.gateways, lambda: self._gateways.show(sight.gateways))

    def _news(self, part: str, what: Any, show: Callable[[], None]) -> None:
        if self._shown.get(part) != what:
            self._shown[part] = what
            show()

    def _say(self, text: str) -> None:
        self._banner.set_text(text)
        self._banner.set_visibility(bool(text))

    # commands; implements `http_fleet_parts.FleetActions`

    async def sync(self, table: TableLine) -> None:
        """Ask for a source and start capturing a table with it."""
        sources = self._sight.sources if self._sight else []
        name = source_for(table, sources)
        if name is None:
            name, spec = new_source(table, sources)
            await self._ask("POST", f"sources/{name_in_path(name)}", spec)
        else:
            await self._ask("POST", f"sources/{name_in_path(name)}/start", {"tables": {table.full: {}}})

    async def stop_table(self, source: SourceLine, table: str) -> None:
        """Stop capturing a table."""
        if await self._sure(f"Stop capturing {table}? Its topic is kept."):
            await self._ask("POST", f"sources/{name_in_path(source.name)}/stop", {"tables": [table]})

    async def run(self, source: SourceLine, running: bool) -> None:
        """Start or stop a source."""
        await self._ask("PATCH", f"sources/{name_in_path(source.name)}", {"running": running})

    async def drain(self, one: AgentLine | GatewayLine) -> None:
        """Drain an agent (its sources move to other agents) or a gateway (its agents move), or end its drain."""
        role = "agents" if isinstance(one, AgentLine) else "gateways"
        await self._ask("POST", "drain", {"role": role, "name": one.name, "drained": not one.drained})

    async def configure(self, source: SourceLine) -> None:
        """Show a source's configuration and its versions. The user can write a new version or restore an older one."""
        path = f"sources/{name_in_path(source.name)}"
        reported = await self._ask("GET", f"{path}/config")
        if reported is None:
            return
        with self._dialog(f"Configuration of {source.name}") as dialog:
            text = ui.textarea(value=json.dumps(reported["spec"], indent=2)).props(
                "outlined autogrow data-testid=config aria-label=Configuration"
            )
            button("Write it", "config-write", lambda: self._write(dialog, path, text.value or ""))
            for one in reversed(reported["versions"]):
                again = f", same as version {one['of']}" if one["of"] else ""
                with ui.element("div").classes("tb-headline").props("data-testid=version"):
                    ui.label(f"version {one['version']}, {_when(one['at_ms'])}, {one['by']}{again}").classes("tb-note")
                    if one["version"] != reported["version"]:
                        back = partial(
                            self._close_and_ask, dialog, "POST", f"{path}/rollback", {"version": one["version"]}
                        )
                        button("Roll back to this version", "rollback", back, f"version {one['version']}")

    async def _write(self, dialog: ui.dialog, path: str, text: str) -> None:
        try:
            spec = json.loads(text)
        except ValueError as error:
            self._say(f"Not valid JSON: {error}.")
            return
        await self._close_and_ask(dialog, "PUT", f"{path}/config", spec)

    async def place(self, source: SourceLine) -> None:
        """Show the positions to which a source can be reset."""
        path = f"sources/{name_in_path(source.name)}/positions"
        reported = await self._ask("GET", path)
        if reported is None:
            return
        with self._dialog(f"Positions of {source.name}") as dialog:
            for one in reversed(reported[-50:]):
                with ui.element("div").classes("tb-headline").props("data-testid=place"):
                    ui.label(f"{one['sequence']}: {one['file']}:{one['pos']}, {_when(one['ts_ms'])}").classes("tb-note")
                    back = partial(self._close_and_ask, dialog, "POST", path, {"sequence": one["sequence"]})
                    button("Reset to this position", "set-back", back, f"sequence {one['sequence']}")
            if not reported:
                ui.label("No position is stored yet.").classes("tb-note")

    async def dump(self, source: SourceLine) -> None:
        """Ask for a table and request a snapshot of it."""
        path = f"sources/{name_in_path(source.name)}/dump"
        with self._dialog(f"Snapshot of {source.name}") as dialog:
            table = ui.select(list(source.tables), value=next(iter(source.tables), None))
            table.props("outlined dense data-testid=dump-table aria-label=Table")
            where = ui.input(placeholder="all rows, or a condition: status = 'open'").props(
                "outlined dense data-testid=dump-where aria-label=Condition"
            )

            async def read() -> None:
                body = {"tables": [str(table.value)], "where": where.value or ""}
                await self._close_and_ask(dialog, "POST", path, body)

            button("Read again", "dump-read", read)

    def _dialog(self, title: str) -> _Inside:
        """Open a dialog. It is not a child of the calling element, which a refresh may replace."""
        with self._room, ui.dialog() as dialog, ui.card().classes("tb-fleet-dialog").props("data-testid=dialog"):
            ui.label(title).classes("tb-heading")
            content = ui.element("div").classes("tb-fleet-dialog-body")
        dialog.on("hide", dialog.delete)
        dialog.open()
        return _Inside(dialog, content)

    async def _sure(self, question: str) -> bool:
        with self._dialog(question) as dialog, ui.element("div").classes("tb-chips"):
            button("Yes", "yes", partial(_submit, dialog, True))
            button("No", "no", partial(_submit, dialog, False))
        return bool(await dialog)

    async def _close_and_ask(self, dialog: ui.dialog, method: str, path: str, body: Any) -> None:
        dialog.close()
        await self._ask(method, path, body)

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the gateway and return the JSON. If it is rejected, show the reason and return None."""
        assert self._api is not None, "a command needs a token"
        try:
            answer = await run.io_bound(self._api.ask, method, path, body)
        except TailorbirdError as error:
            self._say(refusal(error))
            return None
        self._say("")
        if method != "GET":
            await self.refresh()
        return answer


def _seen(api: FleetApi) -> FleetSnapshot:
    now_ms = time.time() * 1000
    sources = sources_of(api.ask("GET", "sources"), now_ms)
    gateways = gateways_of(api.ask("GET", "gateways"), now_ms)
    return FleetSnapshot(
        agents_of(api.ask("GET", "agents")), gateways, sources, tables_of(api.ask("GET", "map"), sources)
    )


class _Inside:
    """Context manager that adds new elements to a dialog."""

    def __init__(self, dialog: ui.dialog, content: Any) -> None:
        self._dialog, self._content = dialog, content

    def __enter__(self) -> ui.dialog:
        self._content.__enter__()
        return self._dialog

    def __exit__(self, *error: Any) -> None:
        self._content.__exit__(*error)


async def _submit(dialog: ui.dialog, answer: bool) -> None:
    dialog.submit(answer)


def _when(ms: float | None) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="seconds") if ms else "never"

"""A topology that the API serves: who may do what in it, its audit log, and what its dashboards answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cdc.model.errors import TailorbirdError
from ingest.gateway.commands import FleetOperator
from tailorbird.web.api.changes import IndexChanges
from tailorbird.web.api.output import Operation
from tailorbird.web.mcp.protocol import Tool, ToolRefusal


class AuditLog(Protocol):
    """The audit log of a topology (`ingest.gateway.kafka_audit`)."""

    def line(self, entry: Mapping[str, Any]) -> None: ...
    def sure(self, entry: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTopology:
    """A topology of the API. `tools` read its dashboards (`tailorbird.web.mcp.tools`), `feed` returns the changes of a
    dashboard's index."""

    name: str
    file: str
    audit: AuditLog
    tools: Mapping[str, Tool]
    dashboards: tuple[str, ...]
    feed: Callable[[str], IndexChanges]

    def ask(self, who: FleetOperator, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a tool answers, and audit that it was asked, without words, filters and keys.

        Raises ToolRefusal for arguments that do not fit, and the errors of the tool."""
        line = {"what": f"api {tool}", "who": who.name, "from": who.address, "on": arguments.get("dashboard", "")[:80]}
        try:
            found = self.tools[tool].answer(arguments)
        except (ToolRefusal, TailorbirdError):
            self.audit.line({**line, "outcome": "refused"})
            raise
        self.audit.line({**line, "outcome": "done"})
        return found

    def begin(self, who: FleetOperator, what: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Audit that a command begins, and return its line. Raises Retriable if it is not stored; the command must then
        not begin."""
        line = {"what": f"api {what}", "who": who.name, "from": who.address, "on": self.name, "options": dict(options)}
        self.audit.sure({**line, "outcome": "begun"})
        return line

    def end(self, line: Mapping[str, Any] | None, operation: Operation) -> None:
        """Audit how an operation ended: its exit code, not its output. Without a line of its begin, nothing."""
        if line is None:
            return
        outcome = (
            operation.state if operation.state == "cancelled" else "done" if operation.exit_code == 0 else "failed"
        )
        self.audit.line({**line, "outcome": outcome, "exit_code": operation.exit_code, "operation": operation.id})

"""A client of the Model Context Protocol that starts a server and speaks with it over its standard streams."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any


class McpClient:
    """One session with `tailorbird mcp`. A context manager."""

    def __init__(self, *arguments: str, environ: Mapping[str, str] | None = None) -> None:
        command = [str(Path(sys.executable).parent / "tailorbird"), "mcp", *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environ and dict(environ),
        )  # fmt: skip
        self._next = 0

    def __enter__(self) -> McpClient:
        found = self.request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t"})
        assert found["result"]["protocolVersion"] == "2025-06-18"
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _, said = self.process.communicate(timeout=60)  # the end of its input ends it
        assert (self.process.returncode, "Traceback" in said) == (0, False), said

    def send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return the reply to it."""
        assert self.process.stdout is not None
        self._next += 1
        self.send({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})
        line = self.process.stdout.readline()
        assert line, self.process.stderr and self.process.stderr.read()
        reply: dict[str, Any] = json.loads(line)
        assert (reply["jsonrpc"], reply["id"]) == ("2.0", self._next)
        return reply

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the structured result of a tool. Fails if it is an error."""
        result = self.request("tools/call", name=tool, arguments=arguments)["result"]
        assert not result["isError"], result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        found: dict[str, Any] = result["structuredContent"]
        return found

    def refused(self, tool: str, **arguments: Any) -> str:
        """Return the text of a tool's error."""
        result = self.request("tools/call", name=tool, arguments=arguments)["result"]
        assert result["isError"], result
        text: str = result["content"][0]["text"]
        return text

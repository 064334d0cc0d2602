"""The Model Context Protocol over lines of JSON-RPC 2.0: one message per line, in and out.

Only what a server of tools needs: `initialize`, `ping`, `tools/list` and `tools/call`. An error of a tool is a result
with `isError`, which clients show; a message that is not understood gets a JSON-RPC error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.model.errors import TailorbirdError

VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")  # the newest first
PARSE, REQUEST, METHOD, PARAMS = -32700, -32600, -32601, -32602


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool: its name, its description, the JSON Schema of its arguments, and the function that answers.

    The function raises TailorbirdError or ToolRefusal."""

    name: str
    about: str
    arguments: Mapping[str, Any]
    answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ToolRefusal(ValueError):
    """Raised by a tool for arguments that it does not accept. `str` says why, and what it accepts."""


class McpError(Exception):
    """A JSON-RPC error with its code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class McpServer:
    """Answers the messages of one client. `instructions` explain how to use the tools."""

    def __init__(self, tools: Sequence[Tool], *, version: str, instructions: str) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._version, self._instructions = version, instructions

    def answer(self, line: str) -> str | None:
        """Return the reply to a line, or None for a notification."""
        id_: Any = None
        try:
            message = _message(line)
            id_ = message.get("id")
            if "id" not in message or "method" not in message:
                return None  # a notification, or a reply to a request that this server never makes
            reply: dict[str, Any] = {"result": self._result(message)}
        except McpError as error:
            reply = {"error": {"code": error.code, "message": str(error)}}
        return json.dumps({"jsonrpc": "2.0", "id": id_, **reply}, ensure_ascii=False)

    def _result(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        params = message.get("params", {})
        if not isinstance(params, dict):
            raise McpError(PARAMS, "params must be an object")
        match message["method"]:
            case "initialize":
                asked = params.get("protocolVersion")
                return {
                    "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "tailorbird", "version": self._version},
                    "instructions": self._instructions,
                }
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [_described(tool) for tool in self._tools.values()]}
            case "tools/call":
                return self._called(params)
        raise McpError(METHOD, f"unknown method {str(message['method'])[:100]}")

    def _called(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        tool = self._tools.get(str(params.get("name")))
        if tool is None:
            raise McpError(PARAMS, f"unknown tool {str(params.get('name'))[:100]}")
        arguments = params.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise McpError(PARAMS, "arguments must be an object")
        try:
            known = tool.arguments["properties"]
            if unknown := sorted(arguments.keys() - known.keys()):
                raise ToolRefusal(f"unknown argument {unknown[0][:100]}; one of {', '.join(known)}")
            found = tool.answer(arguments)
        except (ToolRefusal, TailorbirdError) as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}
        text = json.dumps(found, ensure_ascii=False)
        return {"content": [{"type": "text", "text": text}], "structuredContent": found, "isError": False}


def _message(line: str) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise McpError(PARSE, "not JSON") from error
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise McpError(REQUEST, "not a JSON-RPC 2.0 message")
    return message


def _described(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.about,
        "inputSchema": tool.arguments,
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }

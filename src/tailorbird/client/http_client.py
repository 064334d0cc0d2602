"""Client of the API over HTTP, with the standard library alone."""

from __future__ import annotations

import ipaddress
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException, HTTPResponse
from typing import Any

from cdc.model.errors import Retriable, UsageError
from tailorbird.client.http_redirects import NoRedirect
from tailorbird.client.results import (
    Answer,
    ApiError,
    FoundRows,
    OperationOutcome,
    OperationState,
    StreamEvent,
    StreamLine,
    known_fields,
)

_TIMEOUT = 150.0  # seconds: commands that only read have two minutes
_POLL = 20.0  # seconds that a request waits for further output
_RETRY = 30.0  # seconds for which a lost connection is tried again
_REMEDY = "is `tailorbird api` running there, and does its certificate name that host?"


class Client:
    """The API at `url`, with the token of an operator. `ca` is a file of authorities that its certificate may have.

    Every method raises `ApiError` if the request is refused, and `Retriable` while the API cannot be reached."""

    def __init__(self, url: str, *, token: str, ca: str | None = None, timeout: float = _TIMEOUT) -> None:
        self.url, self._token, self._timeout = _checked(url), token, timeout
        try:
            context = ssl.create_default_context(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"{ca}: {error}", "name a file of certificates (PEM)") from error
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirect)

    def topologies(self) -> list[str]:
        """Return the names of the topologies that the token may see."""
        found: list[str] = self._json("GET", "topologies")[0]
        return found

    def status(self, topology: str, *, search: str = "", offset: int = 0, limit: int = 100) -> Answer:
        """Return processes, indexes and missing rows. Exit code 1: something is not well."""
        return self._answer(topology, "status", search=search, offset=offset, limit=limit)

    def plan(self, topology: str, *, search: str = "", offset: int = 0, limit: int = 100) -> Answer:
        """Return what an apply would do."""
        return self._answer(topology, "plan", search=search, offset=offset, limit=limit)

    def dead_letters(self, topology: str, *, settled: bool = False, offset: int = 0, limit: int = 100) -> Answer:
        """Return dead-letter records, the newest first."""
        return self._answer(topology, "dead-letters", settled=settled, offset=offset, limit=limit)

    def explain(self, topology: str, table: str, key: str, columns: Sequence[str] = ()) -> dict[str, Any]:
        """Return the source events of a joined row's cells. Needs the role `admin`."""
        query = {"table": table, "key": key, "column": list(columns)}
        found: dict[str, Any] = self._json("GET", f"topologies/{_part(topology)}/explain", query=query)[0]
        return found

    def search(self, topology: str, dashboard: str, **arguments: Any) -> FoundRows:
        """Return rows of an index: `words`, `filter`, `column` (lists), `sort`, `offset` and `limit`."""
        path = f"topologies/{_part(topology)}/dashboards/{_part(dashboard)}/rows"
        return FoundRows(**known_fields(FoundRows, self._json("GET", path, query=arguments)[0]))

    def start(self, topology: str, command: str, *, text: bool = False, **options: Any) -> OperationState:
        """Start a command such as `apply` or `dead-letters replay`, and return its operation. Options are those of the
        command line."""
        path = f"topologies/{_part(topology)}/operations/{'/'.join(map(_part, command.split()))}"
        return _state(self._json("POST", path, {**options, "text": text})[0])

    def operation(self, topology: str, id_: str) -> OperationState:
        """Return the state of an operation."""
        return _state(self._json("GET", f"topologies/{_part(topology)}/operations/{_part(id_)}")[0])

    def cancel(self, topology: str, id_: str) -> OperationState:
        """Cancel an operation."""
        return _state(self._json("DELETE", f"topologies/{_part(topology)}/operations/{_part(id_)}")[0])

    def follow(self, operation: OperationState) -> Iterator[StreamLine | OperationState]:
        """Yield the lines of an operation as it prints them, then its last state. Lost connections are tried again."""
        path = f"topologies/{_part(operation.topology)}/operations/{_part(operation.id)}/output"
        after, since = 0, time.monotonic()
        while True:
            try:
                found = self._json("GET", path, query={"after": after, "wait": _POLL})[0]
            except Retriable:
                if time.monotonic() - since > _RETRY:
                    raise
                time.sleep(1.0)
                continue
            since = time.monotonic()
            for line in found["lines"]:
                after = line["number"]
                yield StreamLine(**known_fields(StreamLine, line))
            if found["over"] and not found["lines"]:
                yield _state(found["operation"])
                return

    def run(
        self,
        topology: str,
        command: str,
        *,
        text: bool = False,
        printed: Callable[[StreamLine], None] = lambda _: None,
        **options: Any,
    ) -> OperationOutcome:
        """Run a command and wait for its end. `printed` is called with each line.

        If the wait is interrupted, the operation is cancelled."""
        state = self.start(topology, command, text=text, **options)
        lines = list[StreamLine]()
        try:
            for one in self.follow(state):
                if isinstance(one, OperationState):
                    state = one
                else:
                    lines.append(one)
                    printed(one)
        except BaseException:
            self._cancel(state)
            raise
        written = [line.text for line in lines if line.stream == "out" and line.text]
        return OperationOutcome(operation=state, lines=lines, entries=[] if text else _values(written))

    def events(self, path: str, last_id: str = "") -> Iterator[StreamEvent]:
        """Yield the events of a stream, such as `topologies/shop/status/events`, until the API ends it.

        To resume, give the id of the last event that had one."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
        kind, data, id_ = "message", list[str](), ""
        with self._open("GET", path, headers=headers) as answer:
            for raw in answer:
                line = raw.decode().rstrip("\r\n")
                if not line:
                    if data:
                        yield StreamEvent(kind=kind, data=json.loads("\n".join(data)), id=id_)
                    kind, data, id_ = "message", [], ""
                    continue
                field, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if field == "data":
                    data.append(value)
                elif field == "event":
                    kind = value
                elif field == "id":
                    id_ = value

    def _cancel(self, state: OperationState) -> None:
        """Cancel an operation as far as the API can be reached; it ends by itself otherwise."""
        try:
            self.cancel(state.topology, state.id)
        except (ApiError, Retriable):
            return

    def _answer(self, topology: str, what: str, **query: Any) -> Answer:
        found, total = self._json("GET", f"topologies/{_part(topology)}/{what}", query=query)
        return Answer(total=total, **known_fields(Answer, found))

    def _json(self, method: str, path: str, body: Any = None, query: dict[str, Any] | None = None) -> tuple[Any, int]:
        with self._open(method, path, body, query) as answer:
            try:
                content = answer.read()
            except (OSError, HTTPException) as error:
                raise Retriable(f"the API at {self.url} ended its answer early: {error}", "try again") from error
            return json.loads(content), int(answer.headers.get("X-Total-Count") or 0)

    def _open(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> HTTPResponse:
        asked = {name: value for name, value in (query or {}).items() if value not in (None, "", [])}
        asked = {name: str(value).lower() if isinstance(value, bool) else value for name, value in asked.items()}
        url = f"{self.url}/v1/{path}" + (f"?{urllib.parse.urlencode(asked, doseq=True)}" if asked else "")
        content = None if body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **(headers or {})}
        try:
            request = urllib.request.Request(url, content, sent, method=method)
            found: HTTPResponse = self._opener.open(request, timeout=self._timeout)
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, _problem(error.read(1024 * 1024), error.code)) from error
        except ValueError as error:
            raise UsageError(f"{self.url}: {error}", "use an address such as https://ops.example.org:7450") from error
        except (OSError, HTTPException) as error:
            raise Retriable(f"the API at {self.url}: {getattr(error, 'reason', error)}", _REMEDY) from error
        return found


def _state(found: Any) -> OperationState:
    return OperationState(**known_fields(OperationState, found))


def _values(texts: list[str]) -> list[Any]:
    try:
        return [json.loads(text) for text in texts]
    except json.JSONDecodeError:
        return [json.loads("\n".join(texts))]


def _part(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _problem(body: bytes, code: int) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"detail": f"HTTP {code}"}


def _checked(url: str) -> str:
    """Return the URL without its last slash. Raises UsageError if a token would pass a network without TLS."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise UsageError(f"{url} is not the address of an API", "use one such as https://ops.example.org:7450")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise UsageError(f"{url} would send the token without TLS", "use https://, or a tunnel to 127.0.0.1")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

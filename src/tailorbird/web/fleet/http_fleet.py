"""Client of a gateway's REST API for operators, over TLS and with a token."""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from cdc.model.errors import Fatal, Retriable, TailorbirdError, UsageError
from tailorbird.client.http_redirects import NoRedirect

TOKEN = "TAILORBIRD_FLEET_TOKEN"
_PART = 1000  # entries of a list in one response
_TIMEOUT = 60.0  # seconds: the gateway itself waits for Kafka
_REMEDIES = {
    401: f"export {TOKEN}=… with the output of `tailorbird fleet token issue`",
    403: "ask for a token whose role covers it",
}


class FleetApi:
    """The API of a gateway at `address` (host:port). The authority in the file `ca` must have signed its
    certificate."""

    def __init__(self, address: str, ca: Path, token: str) -> None:
        self._address, self._token = address.removeprefix("https://").rstrip("/"), token
        try:
            context = ssl.create_default_context(cafile=str(ca))
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"{ca}: {error}", "--ca with the ca.pem of `tailorbird fleet ca init`") from error
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirect)

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send a request and return the JSON of the response.

        Raises UsageError if the request is rejected, Retriable if the gateway or Kafka is unavailable."""
        return self._answer(method, path, body, query)[0]

    def page(self, path: str, **query: Any) -> tuple[list[Any], int]:
        """Return a page of a list, and the number of all entries that match. Raises the errors of `ask`."""
        found, total = self._answer("GET", path, None, query)
        return found, len(found) if total is None else int(total)  # an older gateway returns all

    def every(self, path: str, **query: Any) -> Iterator[Any]:
        """Yield all entries of a list, read in parts. Raises the errors of `ask`."""
        offset, total = 0, 1
        while offset < total:
            found, total = self.page(path, **query, offset=offset, limit=_PART)
            yield from found
            if not found:
                return
            offset += len(found)

    def _answer(self, method: str, path: str, body: Any, query: Mapping[str, Any]) -> tuple[Any, str | None]:
        asked = {name: value for name, value in query.items() if value is not None}
        url = f"https://{self._address}/v1/{path}" + (f"?{urllib.parse.urlencode(asked)}" if asked else "")
        content = None if body is None and method in ("GET", "DELETE") else json.dumps(body or {}).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            request = urllib.request.Request(url, content, headers, method=method)
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                return orjson.loads(answer.read()), answer.headers.get("X-Total-Count")
        except urllib.error.HTTPError as error:
            raise _refused(error.code, error.read(65536)) from error
        except ValueError as error:
            raise UsageError(f"{self._address}: {error}", "--api HOST:PORT of a gateway's --api") from error
        except OSError as error:
            why = getattr(error, "reason", error)
            remedy = "does a gateway serve --api there, and does its certificate name that host?"
            raise Retriable(f"the gateway's API at {self._address}: {why}", remedy) from error

    def settled(self, source: str, version: int, seconds: float) -> Mapping[str, Any]:
        """Wait until an agent runs a version of a source's configuration, or a later one. Return what the agent
        reports.

        Raises Fatal if the version failed, Retriable if no report arrives within `seconds`."""
        deadline, last = time.monotonic() + seconds, "no agent has the source"
        while True:
            found = next((one for one in self.every("sources", search=source) if one["source"] == source), None)
            reported = found and found["reported"]
            if reported and reported["version"] >= version:
                if reported["status"] == "applied":
                    return dict(reported)
                last = f"{reported['status']}: {reported['reason']}"
                if reported["status"] == "failed":
                    raise Fatal(
                        f"source {source}, version {version}: {reported['reason']}", "tailorbird fleet config show"
                    )
            if time.monotonic() > deadline:
                raise Retriable(
                    f"source {source}, version {version} does not run yet ({last})", "tailorbird fleet agents"
                )
            time.sleep(0.2)


def name_in_path(text: str) -> str:
    """Encode a name for use as one part of a URL path."""
    return urllib.parse.quote(text, safe="")


def _refused(code: int, body: bytes) -> TailorbirdError:
    try:
        reported = orjson.loads(body)
        error, remedy = str(reported["error"]), str(reported["remedy"])
    except (ValueError, KeyError, TypeError):
        error, remedy = f"HTTP {code}", ""
    remedy = remedy or _REMEDIES.get(code, "")
    if code in (429, 503):
        return Retriable(error, remedy or "try again later")
    return UsageError(error, remedy) if code < 500 else Fatal(error, remedy)


def api_of(address: str, ca: Path, token_file: Path | None) -> FleetApi:
    """Return the API client with the token from the environment or a file.

    A token is no command-line option, because other users of the machine could see it. Raises UsageError if there is no
    token, or its file cannot be read."""
    try:
        token = token_file.read_text().strip() if token_file else os.environ.get(TOKEN, "")
    except OSError as error:
        raise UsageError(f"{token_file}: {error.strerror}", "--token-file FILE with a token in it") from error
    if not token:
        raise UsageError("no token", f"{_REMEDIES[401]}, or --token-file FILE")
    return FleetApi(address, ca, token)

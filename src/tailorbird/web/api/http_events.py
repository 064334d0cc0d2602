"""Server-sent events of the API: bounded in number and time, with positions from which a client resumes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from cdc.model.errors import Retriable, TailorbirdError
from ingest.gateway.commands import FleetOperator
from tailorbird.web.api.changes import IndexChanges, IndexEvent
from tailorbird.web.api.http_app import MOST_LINES, Api
from tailorbird.web.api.output import Operation

MOST_STREAMS = 50
LONGEST = 600.0  # seconds: then the client connects again, and its token is checked again
_EVERY, _STATUS_EVERY, _ALIVE_EVERY = 1.0, 5.0, 15.0


class TooManyStreams(Retriable):
    """So many streams of events are open that no further one is accepted."""


class EventStreams:
    """The open streams of one API, and the status that they share."""

    def __init__(self, most: int = MOST_STREAMS, longest: float = LONGEST) -> None:
        self._most, self._open, self._longest = most, 0, longest
        self._status: dict[tuple[str, str], tuple[float, Any]] = {}
        self._reading = asyncio.Lock()

    def bounded(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        """Return a stream that ends after some minutes. Raises TooManyStreams."""
        if self._open >= self._most:
            raise TooManyStreams(f"{self._open} streams are open", "close some, or try again later", retry_after=5.0)
        self._open += 1
        return self._counted(events)

    async def _counted(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        ends = time.monotonic() + self._longest
        try:
            yield "retry: 1000\n\n"
            async for event in events:
                yield event
                if time.monotonic() > ends:
                    return
        finally:
            self._open -= 1

    async def status(self, api: Api, who: FleetOperator, topology: str) -> Any:
        """Return the status of a topology. All streams of a role share one command per `_STATUS_EVERY` seconds."""
        shared = topology, who.role
        async with self._reading:
            at, found = self._status.get(shared, (0.0, None))
            if found is None or time.monotonic() - at >= _STATUS_EVERY:
                found = await asyncio.to_thread(api.read, who, topology, "status", {})
                self._status[shared] = time.monotonic(), found
            return found


def event(kind: str, data: Any, id_: int | None = None) -> str:
    """Return the text of an event."""
    head = "" if id_ is None else f"id: {id_}\n"
    return f"{head}event: {kind}\ndata: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def index_events(changes: IndexChanges, position: int | None) -> AsyncIterator[str]:
    """Yield the changes of an index after a position, or from now on."""
    spoken = time.monotonic()
    while True:
        try:
            found = changes.since(position)
            while (one := await asyncio.to_thread(_next, found)) is not None:
                position = position if one.id is None else one.id
                spoken = time.monotonic()
                yield event(one.kind, one.data, one.id)
        except Retriable as error:
            yield event("unavailable", {"detail": str(error)})
            spoken = time.monotonic()
            await asyncio.sleep(error.retry_after)
        if time.monotonic() - spoken >= _ALIVE_EVERY:
            spoken = time.monotonic()
            yield ": alive\n\n"
        await asyncio.sleep(_EVERY)


def _next(found: Iterator[IndexEvent]) -> IndexEvent | None:
    return next(found, None)


async def status_events(api: Api, streams: EventStreams, who: FleetOperator, topology: str) -> AsyncIterator[str]:
    """Yield the status, and again after each change."""
    last, spoken = None, time.monotonic()
    while True:
        try:
            found = await streams.status(api, who, topology)
            if found != last:
                last, spoken = found, time.monotonic()
                yield event("status", found)
        except TailorbirdError as error:
            yield event("unavailable", {"detail": str(error)})
            spoken = time.monotonic()
        if time.monotonic() - spoken >= _ALIVE_EVERY:
            spoken = time.monotonic()
            yield ": alive\n\n"
        await asyncio.sleep(_STATUS_EVERY)


async def output_events(api: Api, operation: Operation, after: int) -> AsyncIterator[str]:
    """Yield the lines of an operation after the one with number `after`, and how it ended."""
    spoken = time.monotonic()
    while True:
        over = operation.over
        lines = api.operations.lines(operation, after, MOST_LINES)
        for line in lines:
            after, spoken = line.number, time.monotonic()
            yield event("line", line.to_json(), line.number)
        if over and not lines:
            yield event("ended", operation.shown())
            return
        if time.monotonic() - spoken >= _ALIVE_EVERY:
            spoken = time.monotonic()
            yield ": alive\n\n"
        await asyncio.sleep(0 if lines else 0.1)

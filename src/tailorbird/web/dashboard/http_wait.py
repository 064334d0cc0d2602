"""Serve `GET /wait`: a program that has written to a source waits until its change can be read.

    /wait?source=shop&gtid=SET[&until=log|table|index][&table=NAME][&timeout=SECONDS]

The response is 200 with `{"reached": true, …}`, or 504 with `{"reached": false, "lacks": …}` after the timeout. It
is 400 for an invalid request, and 503 if too many requests are waiting. Without `gtid`, the current position of the
source is used."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

from fastapi import FastAPI
from starlette.responses import JSONResponse

from cdc.model.errors import Retriable, TailorbirdError, UsageError
from cdc.topology.topology import Topology
from tailorbird.operate.wait.goal import UNTIL, NotYet, Until

_AT_ONCE = 16
LONGEST = 60.0  # seconds: the longest timeout that a request may ask for


def serve_wait(app: FastAPI, topology: Topology) -> None:
    """Answer `GET /wait` next to the pages."""
    places = threading.BoundedSemaphore(_AT_ONCE)

    # not a coroutine: each request waits in its own thread
    @app.get("/wait")
    def wait(source: str, gtid: str = "", until: str = "index", table: str = "", timeout: str = "10") -> JSONResponse:
        if not places.acquire(blocking=False):
            return JSONResponse({"reached": False, "error": f"{_AT_ONCE} are waiting; ask again"}, 503)
        try:
            return JSONResponse(*answer(topology, source, gtid, until=until, table=table, timeout=timeout))
        finally:
            places.release()


def answer(
    topology: Topology, source: str, gtid: str, *, until: str, table: str, timeout: str
) -> tuple[dict[str, Any], int]:
    """Return the JSON and the HTTP status for a request."""
    # imported here: a server of pages alone may lack the clients of the log and the tables
    from tailorbird.operate.wait.run_wait import Waiter

    try:
        stage, seconds = _stage(until), _seconds(timeout)
        with Waiter(topology) as waiter:
            goal = waiter.goal(source, gtid) if gtid else waiter.now(source)
            reached = waiter.wait(goal, until=stage, table=table or None, timeout=seconds)
    except NotYet as late:
        return {"reached": False, "lacks": late.message}, 504
    except UsageError as error:
        return {"reached": False, "error": str(error)}, 400
    except Retriable as error:
        return {"reached": False, "error": str(error)}, 504
    except TailorbirdError as error:
        return {"reached": False, "error": str(error)}, 500
    return {"reached": True, **dataclasses.asdict(reached), "gtid_set": goal.position.gtid_set}, 200


def _stage(text: str) -> Until:
    for one in UNTIL:
        if text == one:
            return one
    raise UsageError(f"until={text}", "one of " + ", ".join(UNTIL))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
        if not 0 <= seconds <= LONGEST:
            raise ValueError(text)
    except ValueError as error:
        raise UsageError(f"timeout={text}", f"seconds, at most {LONGEST:g}") from error
    return seconds

"""The API closes connections that send no request."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ingest.gateway import http_api
from ingest.gateway.http_api import serve_api
from tests.ingest.fleet.test_commands import SessionHandler
from tests.support.gateways import certificates
from tests.support.ports import free_port
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of an API that waits half a second for a request."""
    monkeypatch.setattr(http_api, "LIMITS", replace(http_api.LIMITS, idle=0.5))
    port, stopped, loops = free_port(), asyncio.Event(), list[Any]()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await serve_api([SessionHandler().commands], f"127.0.0.1:{port}", folder / "gateway", stopped)

    serving = threading.Thread(target=lambda: asyncio.run(serve()), name="api")
    serving.start()
    yield port
    loops[0].call_soon_threadsafe(stopped.set)
    serving.join(20)


def trusted(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "gateway" / "ca.pem"))


async def ended(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


def answers(port: int, folder: Path) -> int:
    """Return the status of a request without a token; 0 if there is no answer."""
    try:
        return httpx.get(f"https://127.0.0.1:{port}/v1/agents", verify=trusted(folder), timeout=10).status_code
    except httpx.TransportError:
        return 0


def test_a_client_without_a_request_is_disconnected(port: int, folder: Path) -> None:
    """Clients send nothing, an incomplete request or an incomplete body. 200 of them would block all others."""
    wait_for(lambda: answers(port, folder) == 401, "the API does not serve", seconds=20)

    body = b"POST /v1/tokens HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"
    begun = [b"", b"GET /v1/agents HTTP/1.1\r\nhost: x\r\n", body]

    async def held(said: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted(folder))
        writer.write(said)
        await reader.read()  # until it is closed
        await ended(writer)

    async def hold() -> None:
        async with asyncio.timeout(20):
            await asyncio.gather(*(held(said) for said in begun))

    asyncio.run(hold())
    assert answers(port, folder) == 401


@pytest.mark.long
def test_a_client_with_regular_requests_keeps_its_connection(port: int, folder: Path) -> None:
    """A page sends a request every second. A client may be idle after an answer."""
    wait_for(lambda: answers(port, folder) == 401, "the API does not serve", seconds=20)

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted(folder))
        for _ in range(2):
            writer.write(b"GET /v1/agents HTTP/1.1\r\nhost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 1.6)  # it would notice the connection's end
        await ended(writer)

    asyncio.run(ask())

"""Serve MaxScale's protocol from a log in memory, in an event loop of its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from ssl import SSLContext

from ingest.changes.feed_interfaces import ChangeTables
from ingest.maxscale.tcp_batches import SharedReads
from ingest.maxscale.tcp_server import CdcServer, ServerLimits
from ingest.maxscale.users import check_of
from tests.support.cdc_client import CdcClient


class MaxScaleServer:
    """A server that listens at `address`; `notify` notifies it of a commit."""

    def __init__(self, log: ChangeTables, limits: ServerLimits, tls: SSLContext | None) -> None:
        self._log, self._limits, self._tls = log, limits, tls
        self.users = {"foobar": check_of("foobar", "foopasswd"), "anna": check_of("anna", "secret")}
        self.address = ("", 0)
        self._ready, self._loop, self._end = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    def run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self.reads = SharedReads(self._log)
        server = CdcServer(self.reads, lambda: self.users, self._limits)
        async with server.listening("127.0.0.1", 0, self._tls) as self.address:
            self._ready.set()
            await self._end.wait()
        await asyncio.sleep(0)
        self.reads.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def notify(self) -> None:
        self._loop.call_soon_threadsafe(self.reads.notify)

    def client(self) -> CdcClient:
        return CdcClient(self.address)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)


@contextlib.contextmanager
def served(
    log: ChangeTables, limits: ServerLimits | None = None, tls: SSLContext | None = None
) -> Iterator[MaxScaleServer]:
    """Serve a log while the block runs."""
    one = MaxScaleServer(log, limits or ServerLimits(), tls)
    thread = threading.Thread(target=one.run, name="served")
    thread.start()
    assert one._ready.wait(10)
    try:
        yield one
    finally:
        one.end()
        thread.join(20)
        assert not thread.is_alive()

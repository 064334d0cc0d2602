"""HTTP connections of uvicorn's servers, bounded in number and time. It needs uvicorn, which not every process has."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from cdc.process.tcp_bounded import BoundedListener

HEADERS = 32 * 1024  # maximum bytes of a request without its body


def bounded_protocol(listener: BoundedListener) -> type[H11Protocol]:
    """Return the protocol for uvicorn's `http` setting, to use with `listener` as its only socket.

    A client must finish each request, and read each answer, within `listener.limits.idle` seconds. Between two requests
    it may be idle for uvicorn's `timeout_keep_alive`. A connection is busy while its request is processed."""

    class BoundedProtocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._seen: tuple[object, ...] = ()
            self._upgraded = False
            self._peer = transport.get_extra_info("peername")[:2]
            self._look()

        def handle_events(self) -> None:
            super().handle_events()
            if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
                listener.occupy(self._peer)

        def handle_websocket_upgrade(self, event: Any) -> None:
            self._upgraded = True  # websockets have limits of their own
            listener.occupy(self._peer)
            super().handle_websocket_upgrade(event)

        def on_response_complete(self) -> None:
            listener.use(self._peer)  # first, because the base class may begin the next request
            super().on_response_complete()

        def _look(self) -> None:
            """Close the connection if nothing has changed since the last call and the client is to blame."""
            if self._upgraded or self.transport.is_closing():
                return
            cycle, unread = self.cycle, self.transport.get_write_buffer_size()
            if cycle is None:
                awaited = True  # the first request
            elif cycle.response_complete:
                awaited = self.timeout_keep_alive_task is None  # the next request has begun
            else:
                awaited = cycle.more_body
            now = (cycle, awaited, unread)
            if now == self._seen and (awaited or unread):
                self.transport.abort()
                return
            self._seen = now
            self.loop.call_later(listener.limits.idle, self._look)

    return BoundedProtocol

"""Reads any transport in a thread of its own, so that a slow consumer does not slow the network, within a bound.

The queue is bounded in packets and bytes: when it is full, the thread waits, and so does the server. Errors of the
thread are raised where the packets are consumed, behind everything that was read before them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Final

from ingest.binlog.reading.position import BinlogPosition
from ingest.binlog.reading.reader import Transport
from ingest.binlog.reading.stream import Packet

_PACKETS: Final = 4096
_BYTES: Final = 64 << 20
_END: Final = None


class BackgroundTransport:
    """A transport whose packets come from a thread; one `packets` call at a time."""

    buffer = None  # the buffer belongs to the thread

    def __init__(self, inner: Transport, *, packets: int = _PACKETS, size: int = _BYTES) -> None:
        self._inner = inner
        self._limit, self._size = packets, size
        self._stop = threading.Event()

    @property
    def checksum(self) -> int:
        return self._inner.checksum

    @property
    def reconnects(self) -> bool:
        return self._inner.reconnects

    @property
    def selects_gtids(self) -> bool:
        return self._inner.selects_gtids

    def wait(self, attempt: int) -> None:
        """As the inner transport waits."""
        self._inner.wait(attempt)

    def packets(self, start: BinlogPosition) -> Iterator[Packet]:
        """The inner transport's packets, and its error at their end."""
        found: queue.Queue[Packet | BaseException | None] = queue.Queue(self._limit)
        room = _Room(self._size)
        self._stop = stop = threading.Event()

        def put(item: Packet | BaseException | None) -> bool:
            while not stop.is_set():
                try:
                    found.put(item, timeout=0.2)
                    return True
                except queue.Full:
                    continue
            return False

        def work() -> None:
            try:
                for packet in self._inner.packets(start):
                    if not room.take(len(packet[0]), stop) or not put(packet):
                        return
                put(_END)
            except BaseException as error:  # noqa: BLE001  # handed over to the consumer, who raises it
                put(error)

        thread = threading.Thread(target=work, name="binlog-reader", daemon=True)
        thread.start()
        try:
            while (item := found.get()) is not _END:
                if isinstance(item, BaseException):
                    raise item
                room.give(len(item[0]))
                yield item
        finally:
            stop.set()
            self._inner.close()
            thread.join(timeout=5)

    def close(self) -> None:
        """End the thread and the inner transport."""
        self._stop.set()
        self._inner.close()


class _Room:
    """A count of bytes under a limit; one packet of any size always fits an empty room."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._changed = threading.Condition()

    def take(self, size: int, stop: threading.Event) -> bool:
        with self._changed:
            while self._used and self._used + size > self._limit and not stop.is_set():
                self._changed.wait(0.2)
            self._used += size
            return not stop.is_set()

    def give(self, size: int) -> None:
        with self._changed:
            self._used -= size
            self._changed.notify()

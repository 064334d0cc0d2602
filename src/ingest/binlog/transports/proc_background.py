"""Read any transport in a background thread, so that the network does not wait for a slow consumer.

The queue is limited in packets and bytes. If it is full, the thread waits, and so does the server. An error of the
thread is raised in the consumer, after all packets that were read before it.
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
    """A transport whose packets come from a thread; at most one `packets` iterator at a time."""

    buffer = None  # none, because the thread uses the buffer

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
        """Wait like the inner transport."""
        self._inner.wait(attempt)

    def packets(self, start: BinlogPosition) -> Iterator[Packet]:
        """Yield the packets of the inner transport, then raise its error, if any."""
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
            except BaseException as error:  # noqa: BLE001  # raised in the consumer
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
        """Stop the thread and close the inner transport."""
        self._stop.set()
        self._inner.close()


class _Room:
    """Limit for bytes in the queue. If the queue is empty, a packet of any size fits."""

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

"""Events that a signal sets, such as SIGTERM: the main loop of a process ends when it is set."""

from __future__ import annotations

import signal
import threading
from queue import SimpleQueue


def stop_event() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set, in place of their usual effect. Call it in the main thread."""
    return set_by(signal.SIGTERM, signal.SIGINT)


def set_by(*numbers: signal.Signals) -> threading.Event:
    """Return an event that is set whenever one of these signals arrives. Call it in the main thread.

    A handler may not set an event itself: Python runs it in the main thread between any two steps, also while this
    thread has the event's lock because it waits for the event. The handler would wait for the lock for ever. So it only
    puts the signal into a queue, which is always allowed, and another thread sets the event.
    """
    event, arrived = threading.Event(), SimpleQueue[int]()

    def follow() -> None:
        while True:
            arrived.get()
            event.set()

    threading.Thread(target=follow, name="signals", daemon=True).start()
    for number in numbers:
        signal.signal(number, lambda number, _: arrived.put(number))
    return event

"""Signals set events at any moment of the main thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import os, signal, threading
from cdc.lifetime.proc_signals import set_by, stop_event
stop = {event}
with stop._cond:  # as in `wait`
    for _ in range(3):
        os.kill(os.getpid(), signal.{signal})
assert stop.wait(10)
stop.clear()
os.kill(os.getpid(), signal.{signal})
assert stop.wait(10), "a second signal"
print("ended")
"""


@pytest.mark.parametrize(
    ("event", "signal"),
    [("stop_event()", "SIGTERM"), ("stop_event()", "SIGINT"), ("set_by(signal.SIGHUP)", "SIGHUP")],
)
def test_a_signal_arrives_while_the_main_thread_has_the_lock(event: str, signal: str) -> None:
    """An indexer once waited for ever: its SIGTERM arrived while the main thread had the lock of the event."""
    script = _SCRIPT.format(event=event, signal=signal)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("ended\n", "")

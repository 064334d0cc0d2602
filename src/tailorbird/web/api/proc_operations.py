"""Run the commands of operations in processes of their own: some at once, more in a bounded queue."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import IO, Literal

from cdc.model.errors import Retriable, UsageError
from tailorbird.web.api.output import Operation, OutputLine

Command = Callable[[Sequence[str]], Sequence[str]]
MOST_RUNNING, MOST_WAITING, MOST_KEPT = 4, 16, 100
_GRACE = 5.0  # seconds between two signals to a process that does not end
_LEAVE_OUT = ("TAILORBIRD_API", "TAILORBIRD_API_TOKEN", "TAILORBIRD_API_TOKEN_FILE", "TAILORBIRD_API_CA")


class QueueFull(Retriable):
    """So many operations wait that no further one is accepted."""


def tailorbird_command(arguments: Sequence[str]) -> Sequence[str]:
    """Return the command line of a process that runs `tailorbird` with arguments."""
    return [sys.executable, "-m", "tailorbird", *arguments]


class Operations:
    """The operations of one API. `command` returns the command line of a process. Thread-safe.

    Of long operations `running` run at a time and `waiting` wait, and as many of the others.
    The newest `MOST_KEPT` that have ended are kept. `close` ends all processes."""

    def __init__(
        self,
        command: Command = tailorbird_command,
        *,
        running: int = MOST_RUNNING,
        waiting: int = MOST_WAITING,
        kept: int = MOST_KEPT,
    ) -> None:
        self._command, self._most, self._kept = command, waiting, kept
        self._changed = threading.Condition()
        self._known: OrderedDict[str, Operation] = OrderedDict()
        self._queues: dict[bool, deque[Operation]] = {True: deque(), False: deque()}  # long operations, and others
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._closed = False
        for queue in [*self._queues.values()] * running:
            threading.Thread(target=self._work, args=(queue,), name="operation", daemon=True).start()

    def start(self, operation: Operation) -> Operation:
        """Queue an operation. Raises QueueFull if too many wait."""
        with self._changed:
            queue = self._queues[operation.long]
            if len(queue) >= self._most or self._closed:
                what = f"{len(queue)} operations wait already"
                raise QueueFull(what, "try again later, or cancel some", retry_after=5.0)
            self._known[operation.id] = operation
            queue.append(operation)
            over = [one.id for one in self._known.values() if one.over]
            for old in over[: max(0, len(over) - self._kept)]:
                del self._known[old]
            self._changed.notify_all()
        return operation

    def of(self, topology: str) -> list[Operation]:
        """Return the operations of a topology, the newest first."""
        with self._changed:
            return [one for one in reversed(self._known.values()) if one.topology == topology]

    def get(self, topology: str, id_: str) -> Operation | None:
        """Return an operation of a topology, None if it is not known."""
        with self._changed:
            found = self._known.get(id_)
            return found if found is not None and found.topology == topology else None

    def lines(self, operation: Operation, after: int, most: int) -> list[OutputLine]:
        """Return at most `most` lines of output after the line with number `after`."""
        with self._changed:
            return operation.lines[after : after + most]

    def wait(self, operation: Operation, seconds: float) -> bool:
        """Wait until an operation has ended. Return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: operation.over, seconds)

    def cancel(self, operation: Operation) -> None:
        """End an operation: its process gets SIGINT like from Ctrl-C, and is killed if it does not end."""
        with self._changed:
            if operation.over:
                raise UsageError(f"operation {operation.id} has ended", "there is nothing to cancel")
            queue = self._queues[operation.long]
            waited = operation in queue
            if waited:
                queue.remove(operation)
                operation.ended_ms = _now_ms()
            operation.state = "cancelled"
            process = self._processes.get(operation.id)
            self._changed.notify_all()
        if waited:
            operation.ended(operation)
        elif process is not None:
            threading.Thread(target=_end, args=(process,), name="cancel", daemon=True).start()

    def close(self) -> None:
        """End all operations, and wait until their processes have ended."""
        with self._changed:
            self._closed = True
            left = list(self._processes.values())
            for queue in self._queues.values():
                for operation in queue:
                    operation.state, operation.ended_ms = "cancelled", _now_ms()
                queue.clear()
            self._changed.notify_all()
        threads = [threading.Thread(target=_end, args=(process,)) for process in left]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, queue: deque[Operation]) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: queue or self._closed)
                if self._closed:
                    return
                operation = queue.popleft()
                operation.state, operation.began_ms = "running", _now_ms()
            self._run(operation)

    def _run(self, operation: Operation) -> None:
        environ = {name: value for name, value in os.environ.items() if name not in _LEAVE_OUT}
        try:
            process = subprocess.Popen(
                self._command(operation.arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, errors="replace", env={**environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._over(operation, 1, f"tailorbird: no process can be started: {error.strerror}; try again later")
            return
        with self._changed:
            self._processes[operation.id] = process
            ends = operation.state == "cancelled" or self._closed
        if ends:
            _end(process)
        assert process.stdout is not None
        assert process.stderr is not None
        errors = threading.Thread(target=self._read, args=(operation, "err", process.stderr), daemon=True)
        errors.start()
        self._read(operation, "out", process.stdout)
        errors.join()
        code = process.wait()
        self._over(operation, code if code >= 0 else 128 - code)

    def _read(self, operation: Operation, stream: Literal["out", "err"], lines: IO[str]) -> None:
        with lines:
            for line in lines:
                with self._changed:
                    operation.add(stream, line.rstrip("\n"))
                    self._changed.notify_all()

    def _over(self, operation: Operation, exit_code: int, error: str = "") -> None:
        with self._changed:
            if error:
                operation.add("err", error)
            self._processes.pop(operation.id, None)
            operation.exit_code, operation.ended_ms = exit_code, _now_ms()
            if operation.state != "cancelled":
                operation.state = "ended"
        operation.ended(operation)
        with self._changed:
            self._changed.notify_all()


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and its children: politely first."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
            return


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""Define the parts of a capture that its loop and its commits use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from ingest.capture.groups import Limits
from ingest.capture.observer import Observer
from ingest.capture.signals import Signals
from ingest.records.capture_interfaces import ChangeLog, SourceServer
from ingest.records.chunk_requests import ChunkReader
from ingest.records.records import Recorder


class ReadableSource(SourceServer, Protocol):
    """A source whose tables can be read while its log is read."""

    def chunks(self) -> AbstractContextManager[ChunkReader]:
        """Open a chunk reader for one session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureParts:
    """A source, the log of its changes, and the settings of the capture between them.

    `clock` returns seconds since 1970; `pause` waits so many seconds. The capture ends when `stopped` returns True.
    `dumps`: whether a table that is added to the topology gets a snapshot. `rereads`: whether tables can be read again,
    by a signal or after a loss of log. It is False for sources without tables, where an empty snapshot would delete all
    rows.
    """

    source: ReadableSource
    log: ChangeLog
    recorder: Recorder
    clock: Callable[[], float]
    stopped: Callable[[], bool]
    observer: Observer
    limits: Limits = field(default_factory=Limits)
    signals: Signals | None = None
    dumps: bool = True
    rereads: bool = True
    pause: Callable[[float], None] = lambda _: None

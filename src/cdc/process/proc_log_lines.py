"""Log configuration of every process: one line per event on standard error, with a time, a level and an event."""

from __future__ import annotations

import sys
from typing import Literal, TextIO

import structlog

from cdc.process.file_private import FULL


def log_lines(form: Literal["json", "logfmt"]) -> None:
    """Configure logging once per process: JSON lines for machines (`json`), or `key=value` lines for people
    (`logfmt`)."""
    in_logfmt: list[structlog.typing.Processor] = [
        structlog.processors.format_exc_info,
        structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
    ]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.JSONRenderer()] if form == "json" else in_logfmt),
        ],
        logger_factory=structlog.WriteLoggerFactory(
            file=_LogStream(sys.stderr)  # type: ignore[arg-type]  # it calls only these two methods
        ),  # a line is one write, so that threads do not interleave lines
    )


class _LogStream:
    """A stream for log lines. While its disk is full, lines are dropped, because a log that cannot be written must not
    end a process. Once there is space, a line reports how many are missing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._dropped = stream, 0

    def write(self, line: str) -> None:
        """Write and flush one line."""
        try:
            self._stream.write(line)
            self._stream.flush()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._dropped += 1
            return
        if dropped := self._dropped:
            self._dropped = 0
            structlog.get_logger().warning(
                "log lines are missing", lines=dropped, reason="the disk of the log was full"
            )

    def flush(self) -> None:
        """Do nothing: `write` has flushed."""

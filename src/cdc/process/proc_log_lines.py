"""Log configuration of every process: one line per event on standard error, with a time, a level and an event."""

from __future__ import annotations

import sys
from typing import Literal

import structlog


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
            file=sys.stderr
        ),  # a line is one write, so that threads do not interleave lines
    )

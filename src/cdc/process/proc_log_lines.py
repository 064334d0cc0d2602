"""How every process of ours writes its log: a line an event on standard error, a time, a level and an event in each."""

from __future__ import annotations

import sys
from typing import Literal

import structlog


def log_lines(form: Literal["json", "logfmt"]) -> None:
    """Set the log up, once per process: `json` is read by machines (capture's), `logfmt` by people too."""
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
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),  # a line is one write: threads do not mix theirs
    )

"""Parse the place in a binary log that an operator chooses: a GTID set, a file and position, or a time."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cdc.model.errors import UsageError
from ingest.binlog.format.errors import BinlogError
from ingest.binlog.format.gtid import AnyGtidSet, MariaGtidSet
from ingest.binlog.reading.position import parse_position

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_FORMS = "write a GTID set, FILE:POSITION such as binlog.000003:4711, or a time such as 2026-03-01T12:00:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """A place in a log: after the transactions `gtids`, at `file` and `pos`, or from the commit time `micros` on (µs
    since 1970). Exactly one of the three is set. `text` is what the operator wrote."""

    gtids: AnyGtidSet | None = None
    file: str = ""
    pos: int = 0
    micros: int | None = None
    text: str = field(default="", compare=False)


def parse_place(text: str, *, maria: bool | None = None) -> LogPlace:
    """Parse a place; a time without a zone is UTC. `maria` is the kind of server, if it is known.

    Raises UsageError, also for a GTID set of another kind of server.
    """
    if _TIME.fullmatch(text):
        try:
            return LogPlace(micros=parse_time(text), text=text)
        except ValueError as error:
            raise UsageError(f"{text!r} is not a position in a binary log: {error}", _FORMS) from error
    try:
        found = parse_position(text)
    except (ValueError, BinlogError) as error:
        raise UsageError(f"{text!r} is not a position in a binary log", _FORMS) from error
    if found.gtids and maria is not None and isinstance(found.gtids, MariaGtidSet) != maria:
        raise UsageError(f"{text!r} is a GTID set of another kind of server", "take it from the source's own server")
    if found.gtids:
        return LogPlace(gtids=found.gtids, text=text)
    if not found.file:
        raise UsageError(f"{text!r} is not a position in a binary log", _FORMS)
    return LogPlace(file=found.file, pos=found.position, text=text)


def parse_time(text: str) -> int:
    """Return a time (ISO 8601, UTC unless it has a zone) in µs since 1970. Raises ValueError."""
    time = datetime.fromisoformat(text)
    return round((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def time_text(micros: int) -> str:
    """Return a time (µs since 1970) as messages show it: `2026-03-01T12:00:00Z`."""
    return datetime.fromtimestamp(micros // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

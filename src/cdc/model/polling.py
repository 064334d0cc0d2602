"""Settings of polled sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PollMode = Literal["updated_at", "feed"]
BACKLOG_LIMIT = 10_000  # maximum rows that a count of the backlog reads


@dataclass(frozen=True, slots=True, kw_only=True)
class PollAlarms:
    """Thresholds of a polled source; None: no alarm.

    `since_success`: seconds since all tables were polled without an error. `backlog`: rows after the last published
    one. `behind`: how far the last published cursor is behind the greatest one: in seconds, or with
    `mode: feed` as a difference of numbers. `unassigned`: rows of a feed without a number.
    """

    since_success: float | None = None
    backlog: int | None = None
    behind: float | None = None
    unassigned: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """Polling of a source: the column (`cursor`), the number of rows per query (`limit`), and the `interval` in
    seconds.

    `mode` says what the column contains. `updated_at`: a timestamp that is set whenever a row changes. Rows younger
    than `lag` seconds are read again at each poll, so that transactions of that duration are not missed. `feed`: an
    increasing number, unique per row, that is assigned after the commit.
    """

    cursor: str
    mode: PollMode
    limit: int
    interval: float
    lag: float
    alarms: PollAlarms = PollAlarms()

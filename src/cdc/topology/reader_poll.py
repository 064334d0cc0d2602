"""Read the options of polling, and refuse those that a polled source does not support; part of
`cdc.topology.reader`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cdc.grammar.keys import Section
from cdc.grammar.values import Value
from cdc.model.filters import TableRule
from cdc.model.polling import Poll, PollAlarms, PollMode
from cdc.model.schema import TableId

URL = r"[a-z][a-z0-9_]*(\+[a-z0-9_]+)?://"


def read_poll(s: Section) -> Poll:
    """Read the keys of a source with `capture: poll`."""
    mode: PollMode = s.take("mode")
    return Poll(
        cursor=s.take("cursor", "updated_at" if mode == "updated_at" else "feed_sync_id"),
        mode=mode,
        limit=s.take("limit"),
        interval=s.take("interval", read=_interval),
        lag=s.take("lag", read=_lag) if mode == "updated_at" else 0.0,
        alarms=_alarms(s),
    )


def _alarms(s: Section) -> PollAlarms:
    """Read the thresholds of alarms. A backlog is counted up to `BACKLOG_LIMIT` rows."""
    behind = s.take("alarm_behind")
    return PollAlarms(
        since_success=s.take("alarm_since_success"),
        backlog=s.take("alarm_backlog"),
        behind=None if behind is None else float(behind),
        unassigned=s.take("alarm_unassigned"),
    )


def read_url(value: Value) -> str:
    """Read a database URL as SQLAlchemy writes it."""
    text = value.text()
    if not re.match(URL, text):
        value.fail("no database URL", "dialect://user:password@host/database, as SQLAlchemy writes it")
    return text


def refuse_filters(s: Section, policy: str, rules: Mapping[TableId, TableRule]) -> None:
    """Refuse filters: polling reads exactly the listed tables, with all their rows."""
    if policy != "drop":
        s.pairs["filter_policy"].fail("filter_policy accept of a polled source", "drop: list the tables to poll")
    if any(rule.where for rule in rules.values()):
        s.pairs["tables"].fail("`where` for a polled table", "no condition: every row is polled")


def check_capture(s: Section, kind: str, *, polled: bool) -> None:
    """Check `capture:` of a source: databases without a readable log need `capture: poll`, and pure streams do not
    allow it."""
    if polled and kind == "postgresql":
        s.pairs["capture"].fail("a source of type postgresql that is polled", "type: sql, url: postgresql+psycopg://…")
    if polled and kind in ("kafka", "syslog", "maxscale"):
        s.pairs["capture"].fail(f"a source of type {kind} that is polled", "no `capture:`: the source is a log")
    if not polled and kind == "sql":
        where = s.pairs.get("capture") or s.pairs.get("type") or s.value
        where.fail(f"the log of a source of type {kind} is not read", "capture: poll, or type: mysql")


def _interval(value: Value) -> float:
    seconds = value.duration()
    if not 0.01 <= seconds <= 86_400:
        value.fail(value.text(), "10ms to 1d")
    return seconds


def _lag(value: Value) -> float:
    seconds = value.duration()
    if seconds > 86_400:
        value.fail(value.text(), "1d at most: rows younger than that are read again at every poll")
    return seconds

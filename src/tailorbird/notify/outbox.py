"""Decide which events to send, and remember which webhooks still lack them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc.topology.hooks.webhook import Webhook
from tailorbird.notify.cloud_events import cloud_event
from tailorbird.notify.conditions import NotifyCondition

MOST = 1000  # events that wait; the oldest are dropped
_FORMAT = 1


@dataclass(slots=True, kw_only=True)
class WaitingEvent:
    """An event, its kind, and the webhooks that have not accepted it."""

    kind: str
    event: Mapping[str, Any]
    lack: list[str]


@dataclass(slots=True)
class Outbox:
    """The conditions that hold, by key, and the events that wait. `to_json` is stored, so that a restart neither
    repeats nor forgets an event."""

    topology: str
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    waiting: list[WaitingEvent] = field(default_factory=list)
    dropped: int = 0

    def observe(
        self, found: Iterable[NotifyCondition], looked: Iterable[str], hooks: Mapping[str, Webhook], now_ms: int
    ) -> bool:
        """Add an event for each condition that began or ended. Return whether there is one.

        `looked` are the kinds that could be determined: conditions of another kind keep their state."""
        current, before = {one.key: one for one in found}, len(self.waiting)
        for key, one in current.items():
            if key not in self.known:
                self.known[key] = {"kind": one.kind, "subject": one.subject, "since_ms": now_ms}
                self._add(key, hooks, now_ms, dict(one.data), ended=False)
        for key in [key for key, one in self.known.items() if one["kind"] in looked and key not in current]:
            self._add(key, hooks, now_ms, {}, ended=True)
            del self.known[key]
        return len(self.waiting) != before

    def _add(self, key: str, hooks: Mapping[str, Webhook], now_ms: int, data: Any, *, ended: bool) -> None:
        one = self.known[key]
        lack = [name for name, hook in hooks.items() if one["kind"] in hook.events]
        if lack:
            event = cloud_event(
                self.topology, one["kind"], one["subject"],
                ended=ended, since_ms=one["since_ms"], at_ms=now_ms, data=data,
            )  # fmt: skip
            self.waiting.append(WaitingEvent(kind=one["kind"], event=event, lack=lack))
        while len(self.waiting) > MOST:
            del self.waiting[0]
            self.dropped += 1

    def next_of(self, hook: str) -> Mapping[str, Any] | None:
        """Return the oldest event that a webhook lacks."""
        return next((one.event for one in self.waiting if hook in one.lack), None)

    def done(self, hook: str, event_id: str) -> None:
        """Note that a webhook has accepted an event, or rejected it for good."""
        for one in self.waiting:
            if one.event["id"] == event_id and hook in one.lack:
                one.lack.remove(hook)
        self.waiting = [one for one in self.waiting if one.lack]

    def lacking(self, hook: str) -> int:
        """Return how many events wait for a webhook."""
        return sum(hook in one.lack for one in self.waiting)

    def to_json(self) -> dict[str, Any]:
        """Return what is stored."""
        waiting = [{"kind": one.kind, "event": one.event, "lack": one.lack} for one in self.waiting]
        return {"format": _FORMAT, "known": self.known, "waiting": waiting}


def outbox_of(topology: str, stored: Mapping[str, Any] | None, hooks: Iterable[str]) -> Outbox:
    """Return the stored outbox, without events for webhooks that are no longer declared. None: an empty one.

    Raises KeyError, TypeError or ValueError for content in another form."""
    if stored is None:
        return Outbox(topology)
    if stored["format"] != _FORMAT:
        raise ValueError(f"format {stored['format']}")
    declared = set(hooks)
    waiting = [
        WaitingEvent(kind=one["kind"], event=one["event"], lack=[hook for hook in one["lack"] if hook in declared])
        for one in stored["waiting"]
    ]
    return Outbox(topology, dict(stored["known"]), [one for one in waiting if one.lack])

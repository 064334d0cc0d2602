"""Conditions that webhooks report: each has a kind, the thing that has it, and details without values of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc.topology.hooks.webhook import WebhookEvent
from tailorbird.operate.status.dead_letters import LEFT_OUT, WAITING, OpenDeadLetters
from tailorbird.operate.status.full_reread import RereadSource
from tailorbird.operate.status.part_status import PartStatus
from tailorbird.verify.checks.runs import CheckRun

# states in which a capture needs help; `elsewhere` is no sign of a fault
_STOPPED = frozenset({"down", "stopped", "stuck", "away", "silent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyCondition:
    """Something that is wrong now. `subject` says where, such as `source/shop`; `data` is for people and programs."""

    kind: WebhookEvent
    subject: str
    data: Mapping[str, Any] = field(compare=False)

    @property
    def key(self) -> str:
        """Return the condition's identity: while it lasts, `data` may change."""
        return f"{self.kind} {self.subject}"


class SteadyConditions:
    """Lets conditions pass that have held for `patience` seconds without a break."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[str, float] = {}

    def steady(self, found: Iterable[NotifyCondition], now: float) -> list[NotifyCondition]:
        """Return those of the conditions found at `now` that have held for long enough."""
        listed = list(found)
        self._since = {one.key: self._since.get(one.key, now) for one in listed}
        return [one for one in listed if now - self._since[one.key] >= self._patience]


def stopped_sources(parts: Iterable[PartStatus]) -> Iterator[NotifyCondition]:
    """Yield the sources whose capture on this machine makes no progress."""
    for part in parts:
        stage, _, name = part.part.partition(" ")
        if stage == "capture" and part.state in _STOPPED:
            data = {"source": name, "state": part.state, "reason": part.reason, "remedy": part.remedy}
            yield NotifyCondition(kind="source_stopped", subject=f"source/{name}", data=data)


def incomplete_tables(waiting: Iterable[OpenDeadLetters], rereads: Iterable[RereadSource]) -> Iterator[NotifyCondition]:
    """Yield the tables and indexes that lack rows. Reasons of dead letters may contain values, so they are omitted."""
    for one in waiting:
        data = {"stage": one.stage, "of": one.of, "records": one.dead_letters}
        if one.stage in (LEFT_OUT, WAITING):
            data["reason"] = one.reason
        yield NotifyCondition(kind="table_incomplete", subject=f"{one.stage.replace(' ', '-')}/{one.of}", data=data)
    for source in rereads:
        data = {"stage": "reread", "of": source.source, "tables": source.tables, "reason": source.why}
        yield NotifyCondition(kind="table_incomplete", subject=f"reread/{source.source}", data=data)


def differences(runs: Iterable[CheckRun]) -> Iterator[NotifyCondition]:
    """Yield the tables whose last comparison found a difference."""
    for run in runs:
        for one in run.checked:
            if one.outcome == "different":
                data = {
                    "check": run.check, "stage": one.stage, "table": one.table,
                    "rows": one.rows, "differing_rows": one.differing, "compared_ms": one.at_ms,
                }  # fmt: skip
                subject = f"check/{run.check}/{one.stage}/{one.table}"
                yield NotifyCondition(kind="verify_different", subject=subject, data=data)


def exceeded_slot(source: str, kept: int, most: int) -> Iterator[NotifyCondition]:
    """Yield a condition if the server keeps more log for a source's slot than its `alarm_slot`."""
    if kept > most:
        data = {"source": source, "kept_bytes": kept, "alarm_bytes": most}
        yield NotifyCondition(kind="slot_exceeded", subject=f"source/{source}", data=data)

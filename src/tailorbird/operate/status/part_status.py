"""Status of a topology's processes for `tailorbird status` and `run`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc.process.file_running import PartEnd, RunningPart
from cdc.topology.topology import Topology

WIDE = 11  # width of the column of states, the longest of which is INCOMPLETE
# commands that start the parts, by stage
_STARTS = {
    "capture": "tailorbird capture {file} --source {name}",
    "join": "tailorbird join {file} --table {name}",
    "index": "tailorbird index {file} --index {name}",
    "dashboard": "tailorbird dashboard {file} --dashboard {name}",
    "ledger": "tailorbird ledger {file}",
    "checks": "tailorbird checks {file}",
    "notify": "tailorbird notify {file}",
    "maxscale": "tailorbird serve maxscale {file}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStatus:
    """Status of one process (part) that a topology needs.

    - `moving`, `starting`, `stuck`, `away`: as its `/health` reports.
    - `silent`: it runs and does not answer. `unknown`: it runs without a health port.
    - `stopped`: a signal has stopped it. `down`: it ran on this machine, and does not run now.
    - `elsewhere`: it does not run on this machine, and there is no sign that it should.

    `reason` explains the state. `seconds` is how long it has run (None: it does not run). `error` is the last one
    that ended it, `remedy` a command. `more` has other values of its health and metrics, such as position, restarts
    and lag."""

    part: str
    state: str
    reason: str
    pid: int | None
    seconds: float | None
    error: str
    remedy: str
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def moves(self) -> bool:
        """Return whether the process needs no action.

        True also for `unknown` and `elsewhere`; False for a process that starts again after an error, and while an
        alarm of a polled source is on."""
        return not self.more.get("alarm") and self._runs

    @property
    def _runs(self) -> bool:
        return self.state in ("moving", "unknown", "elsewhere") or (self.state == "starting" and not self.error)


def parts_of(topology: Topology) -> list[str]:
    """Return the names of the processes that a topology needs, in the order of the data flow."""
    captures = [f"capture {name}" for name, source in topology.sources.items() if source.agent is None]
    proving = ["ledger"] * topology.keeps_ledger + ["checks"] * bool(topology.checks)
    proving += ["notify"] * bool(topology.webhooks)
    joins = [f"join {name}" for name in topology.tables]
    return [*captures, *joins, *(f"index {name}" for name in topology.indexes), *proving]


def part_statuses(
    topology: Topology,
    running: Sequence[RunningPart],
    ended: Mapping[str, PartEnd],
    health: Mapping[int, Mapping[str, Any]],
    figures: Mapping[int, Mapping[str, float]],
    *,
    now_ms: int,
) -> list[PartStatus]:
    """Return the status of each process. A needed process that does not run has a status, too.

    `health` and `figures` are the answers of `/health` and `/metrics` by port. A dashboard is optional, so it is
    reported only if it runs or was killed here. The same holds for a ledger that no check reads, and for servers of
    external clients."""
    found = []
    more = [
        one.part
        for one in running
        if one.part.partition(" ")[0] in ("dashboard", "ledger", "checks", "notify", "maxscale")
    ]
    by_part: dict[str, list[RunningPart]] = {}
    for one in running:
        by_part.setdefault(one.part, []).append(one)
    for part in dict.fromkeys((*parts_of(topology), *more)):
        here = by_part.get(part, [])
        processes = [one for one in here if not one.dead]
        for one in processes:
            answers = health.get(one.port), figures.get(one.port, {})
            found.append(_of_process(one, ended.get(part), *answers, now_ms))
        if not processes:
            found.append(_down(topology, part, here, ended.get(part), now_ms))
    return found


def _down(topology: Topology, part: str, here: Sequence[RunningPart], end: PartEnd | None, now_ms: int) -> PartStatus:
    stage, _, name = part.partition(" ")
    start = _STARTS[stage].format(file=topology.file, name=name)
    killed = [one.pid for one in here]
    state, remedy = "down", start if stage == "maxscale" else f"{start}, or tailorbird run {topology.file}"
    if killed:
        reason = f"process {killed[-1]} was killed"
    elif end is not None:
        reason = f"it ended {_ago(now_ms - end.at_ms)} ago"
    else:
        state, reason, remedy = "elsewhere", "it does not run on this machine and has not failed here", ""
    error = "" if end is None or killed else end.message
    return PartStatus(part=part, state=state, reason=reason, pid=None, seconds=None, error=error, remedy=remedy)


def _of_process(
    one: RunningPart,
    end: PartEnd | None,
    health: Mapping[str, Any] | None,
    figures: Mapping[str, float],
    now_ms: int,
) -> PartStatus:
    remedy = ""
    if one.stopped:
        what = "it" if one.pid in one.stopped else f"process {one.stopped[0]}, which it has started"
        state, reason, remedy = (
            "stopped",
            f"a signal has stopped {what}",
            f"kill -CONT {' '.join(map(str, one.stopped))}",
        )
    elif not one.port:
        state, reason = "unknown", "it was started without --metrics-port, so its health is unknown"
    elif health is None:
        state, reason = "silent", f"it does not answer on port {one.port}"
        remedy = f"see its log; `kill {one.pid}` restarts it from its last position"
    else:
        state, reason = str(health.get("status", "silent")), str(health.get("reason", ""))
    more = {name: value for name, value in (health or {}).items() if name not in ("status", "reason")}
    for name, figure in _FIGURES.items():
        if name in figures and (figures[name] or figure in _ALWAYS):
            more[figure] = figures[name]
    seconds = max(0.0, (now_ms - one.began_ms) / 1000)
    recent = end is not None and now_ms - end.at_ms < _RECENT_MS
    error = end.message if end is not None and recent else ""
    return PartStatus(
        part=one.part, state=state, reason=reason, pid=one.pid, seconds=seconds, error=error, remedy=remedy, more=more
    )


_RECENT_MS = 600_000
_ALWAYS = ("lag_seconds",)
_FIGURES = {
    "tailorbird_capture_restarts_total": "restarts",
    "tailorbird_quarantined_total": "quarantined",
    "tailorbird_dead_letters_total": "dead_letters",
    "debezium_metrics_SnapshotRunning": "snapshot_running",
    "tailorbird_join_batch": "batch",
    "tailorbird_joined_rows_total": "rows",
    "tailorbird_indexed_documents_total": "documents",
    "tailorbird_join_lag_changes": "lag_changes",
    "tailorbird_join_lag_seconds": "lag_seconds",
    "tailorbird_join_late_rows_total": "late_rows",
    "tailorbird_join_watermark_seconds": "watermark",
}


def _ago(milliseconds: float) -> str:
    seconds = max(0.0, milliseconds / 1000)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def lines_of(one: PartStatus) -> list[str]:
    """Format a status as text: one line, followed by the last error and the remedy, if any."""
    since = "" if one.seconds is None else f" (for {_ago(1000 * one.seconds)})"
    reported = [(name.replace("_", " "), _shown(name, value)) for name, value in one.more.items() if name != "head"]
    more = "".join(f", {name} {value}" for name, value in reported)
    lines = [f"{one.state:<{WIDE}}{one.part}{since}: {one.reason}{more}"]
    if one.error:
        lines.append(f"{'':<{WIDE}}last error: {one.error}")
    if one.remedy:
        lines.append(f"{'':<{WIDE}}{one.remedy}")
    return lines


def _shown(name: str, value: Any) -> str:
    if name == "watermark":
        return dt.datetime.fromtimestamp(value, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    if isinstance(value, Mapping):
        return ":".join(str(each) for name, each in value.items() if name in ("file", "pos")) or str(dict(value))
    return str(value)

"""What agents say of what they run; pure."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import orjson

from cdc.topology.topology import Source

Applied = Literal["applied", "applying", "failed"]
APPLIED: tuple[Applied, ...] = get_args(Applied)
_REASON = 2000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Of one source, by the agent that has it: which version of which epoch, how far, and what truly runs by its hash.

    `hash` is of the effective configuration: what is left of the desired one behind the host's policy; empty where
    nothing runs. `narrowed`: the policy took something away. `position` as `/health` shows it.
    """

    agent: str
    source: str
    epoch: int
    version: int
    status: Applied
    reason: str = ""
    hash: str = ""
    narrowed: bool = False
    position: Mapping[str, Any] | None = None
    at_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """As it is stored; inverse of `reported_of`."""
        return dataclasses.asdict(self)


def reported_of(reported: Mapping[str, Any]) -> Reported:
    """Read a record; KeyError, TypeError or ValueError when it is none."""
    if reported["status"] not in APPLIED:
        raise ValueError(f"status {reported['status']!r}")
    known = {field.name: reported[field.name] for field in dataclasses.fields(Reported) if field.name in reported}
    return Reported(**{**known, "reason": str(reported.get("reason", ""))[:_REASON]})


def effective_hash(source: Source) -> str:
    """Of all that says what leaves a source; never of its address or password."""
    said = {
        "database": source.database,
        "tables": sorted(map(str, source.tables)),
        "filter_policy": source.filter_policy,
        "rules": sorted((str(table), dataclasses.asdict(rule)) for table, rule in source.rules.items()),
        "snapshot_mode": source.snapshot_mode,
        "position_lost": source.position_lost,
        "cascades": source.cascades,
        "snapshot_max_threads": source.snapshot_max_threads,
        "snapshot_locking_mode": source.snapshot_locking_mode,
        "heartbeat_interval_ms": source.heartbeat_interval_ms,
        "server_id": source.server_id,
        "dumps": source.dumps,
        **({} if source.unrepresentable == "null" else {"unrepresentable": source.unrepresentable}),
    }
    return hashlib.sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]

"""Status reports of agents about the sources that they capture."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import orjson

from cdc.topology.topology import Mirror, Source

Applied = Literal["applied", "applying", "failed"]
APPLIED: tuple[Applied, ...] = get_args(Applied)
_REASON = 2000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """Status of one source as its agent reports it: version, epoch and progress.

    The effective configuration is the desired one as the agent's policy restricts it. `hash` identifies it; empty if
    nothing runs. `narrowed`: the policy does restrict it. `position` has the form that `/health` shows.
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
        """Return the JSON form for the topic; inverse of `reported_of`."""
        return dataclasses.asdict(self)


def reported_of(value: Mapping[str, Any]) -> SourceReport:
    """Decode a stored report. Raises KeyError, TypeError or ValueError if it is malformed."""
    if value["status"] not in APPLIED:
        raise ValueError(f"status {value['status']!r}")
    known = {field.name: value[field.name] for field in dataclasses.fields(SourceReport) if field.name in value}
    return SourceReport(**{**known, "reason": str(value.get("reason", ""))[:_REASON]})


def effective_hash(source: Source, key: bytes, accepted: Sequence[Any] = ()) -> str:
    """Return an HMAC of all settings that decide which data leaves the host, without address and password.

    `accepted` are the policies of databases of which every table is captured, so that the rules list only some.
    `key` is secret: the settings contain the salts of masks, which a reader of a plain hash could guess.
    """
    settings = {
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
        "replica_identity": source.replica_identity,
        "dumps": source.dumps,
        **({"accepted": accepted} if accepted else {}),
        **({} if source.unrepresentable == "null" else {"unrepresentable": source.unrepresentable}),
        **({} if source.poll is None else {"poll": dataclasses.asdict(source.poll)}),
        **({} if source.mirror is None else {"mirror": _mirror(source.mirror)}),
    }
    return hmac.new(key, orjson.dumps(settings, option=orjson.OPT_SORT_KEYS), hashlib.sha256).hexdigest()[:16]


def _mirror(mirror: Mirror) -> list[Any]:
    by_table = sorted(
        (str(table), topic, dict(mirror.columns.get(table, {}))) for table, topic in mirror.topics.items()
    )
    return [mirror.form, mirror.decimals, by_table, *([sorted(mirror.shared)] if mirror.shared else [])]

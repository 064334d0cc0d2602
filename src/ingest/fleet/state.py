"""The fleet's topic `<topology>.fleet`, record by record, as one state; pure.

One partition, compacted. A key is a JSON list, its first word the kind; of a kind that is not known nothing is read, so
that gateways of two versions can read one topic. Leases and versions are claims: no two are written under one key,
so that compaction keeps each, and the first of a number counts. All other kinds: the newest record counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import orjson

from ingest.fleet.catalog import DatabaseSeen, database_of
from ingest.fleet.certificate import Revoked
from ingest.fleet.desired import Desired, SourceSpec
from ingest.fleet.leases import Lease, Presence, counts
from ingest.fleet.reported import Reported, reported_of
from ingest.fleet.tokens import AGENT, ROLES, Token

StateRecord = tuple[bytes, bytes | None]
_SPEC = {"agents", "connection", "running"}
VERSIONS = 100  # of a source's configuration that are known, and can be rolled back to


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """All that the topic says up to a place; never changed, `folded` makes the next one.

    `desired`: versions by source, oldest first. `reported` by agent and source, `maps` by agent, connection and
    database. `revoked`: certificates by number. `beats`: the last sign of life of each gateway. `strange` counts
    records that could not be read.
    """

    desired: Mapping[str, tuple[Desired, ...]] = field(default_factory=dict)
    leases: Mapping[str, Lease] = field(default_factory=dict)
    presences: Mapping[str, Presence] = field(default_factory=dict)
    reported: Mapping[tuple[str, str], Reported] = field(default_factory=dict)
    maps: Mapping[tuple[str, str, str], DatabaseSeen] = field(default_factory=dict)
    drained: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    tokens: Mapping[str, Token] = field(default_factory=dict)
    revoked: Mapping[str, Revoked] = field(default_factory=dict)
    beats: Mapping[str, int] = field(default_factory=dict)
    strange: int = 0

    def newest(self) -> dict[str, Desired]:
        """The version that holds, by source; also of sources that are no more."""
        return {source: versions[-1] for source, versions in self.desired.items()}

    def spec(self, source: str) -> SourceSpec | None:
        """The configuration that holds; None where the fleet has no such source, or no more."""
        versions = self.desired.get(source, ())
        return versions[-1].spec if versions else None

    def is_drained(self, role: str, name: str) -> bool:
        """Whether an agent (`agents`) shall have no sources, or a gateway (`gateways`) no agents."""
        return self.drained.get((role, name), False)

    def captured(self, agent: str, connection: str) -> dict[str, SourceSpec]:
        """Sources over a connection that an agent may have."""
        found = ((name, newest.spec) for name, newest in self.newest().items())
        return {
            name: spec for name, spec in found if spec and spec.connection == connection and agent in spec.agents
        }  # fmt: skip


def folded(state: FleetState, records: Iterable[StateRecord]) -> FleetState:
    """What holds behind further records, in the topic's order."""
    made: dict[str, Any] = {}

    def of(name: str) -> dict[Any, Any]:
        if name not in made:
            made[name] = dict(getattr(state, name))
        found: dict[Any, Any] = made[name]
        return found

    strange = state.strange
    for key, value in records:
        try:
            _fold(of, orjson.loads(key), None if value is None else orjson.loads(value))
        except (AttributeError, LookupError, TypeError, ValueError):  # counted: whoever reads the topic says so
            strange += 1
    return replace(state, **made, strange=strange)


def _fold(of: Any, key: Any, value: Any) -> None:
    kind, names = key[0], key[1:]
    if kind == "lease":
        if value is not None:  # only claims are forgotten that count no more
            reported_now = _lease_of(names, value)
            of("leases")[reported_now.source] = counts(of("leases").get(reported_now.source), reported_now)
    elif kind == "desired":
        if value is not None:
            _next_version(of("desired"), _desired_of(names, value))
    elif kind in _SIMPLE:
        name, place, read = _SIMPLE[kind]
        if value is None:
            of(name).pop(place(names), None)
        else:
            of(name)[place(names)] = read(names, value)


def _lease_of(names: list[Any], value: Any) -> Lease:
    source, epoch, claim = names
    return Lease(source=source, epoch=int(epoch), agent=str(value["agent"]), gateway=value["gateway"], claim=claim)


def _next_version(versions: dict[str, tuple[Desired, ...]], reported_now: Desired) -> None:
    before = versions.get(reported_now.source, ())
    if not before or reported_now.version > before[-1].version:
        versions[reported_now.source] = (*before, reported_now)[-VERSIONS:]


def _desired_of(names: list[Any], value: Any) -> Desired:
    spec = value["spec"]
    if spec is not None:
        keys = {key: said for key, said in spec.items() if key not in _SPEC}
        agents = tuple(str(agent) for agent in spec["agents"])
        spec = SourceSpec(agents=agents, connection=spec["connection"], running=bool(spec["running"]), keys=keys)
    return Desired(
        source=names[0], version=int(names[1]), spec=spec, by=str(value.get("by", "")),
        at_ms=int(value.get("at_ms", 0)), of=value.get("of"), writer=str(names[2]),
    )  # fmt: skip


def _token_of(names: list[Any], value: Any) -> Token:
    if value["role"] not in (*ROLES, AGENT):
        raise ValueError(f"role {value['role']!r}")
    return Token(**{"id": names[0], **_known(Token, value)})


def _known(kind: Any, value: Any) -> dict[str, Any]:
    return {field.name: value[field.name] for field in fields(kind) if field.name in value}


def _first(names: list[Any]) -> str:
    return str(names[0])


_SIMPLE: dict[str, tuple[str, Any, Any]] = {
    "agent": ("presences", _first, lambda names, value: Presence(**{**_known(Presence, value), "agent": names[0]})),
    "reported": ("reported", lambda names: (names[0], names[1]), lambda names, value: reported_of(value)),
    "map": ("maps", lambda names: (names[0], names[1], names[2]), lambda n, value: database_of(value, n[0], n[1])),
    "drained": ("drained", lambda names: (names[0], names[1]), lambda names, value: bool(value)),
    "token": ("tokens", _first, _token_of),
    "revoked": ("revoked", _first, lambda names, value: Revoked(**{**_known(Revoked, value), "serial": names[0]})),
    "gateway": ("beats", _first, lambda names, value: int(value["beat"])),
}


def _key(*names: Any) -> bytes:
    return orjson.dumps(names)


def lease_record(lease: Lease) -> StateRecord:
    """A claim; it may lose: read the topic behind it."""
    return _lease_key(lease), orjson.dumps({"agent": lease.agent, "gateway": lease.gateway})


def lease_over(lease: Lease) -> StateRecord:
    """A claim that counts no more is forgotten."""
    return _lease_key(lease), None


def _lease_key(lease: Lease) -> bytes:
    return _key("lease", lease.source, lease.epoch, lease.claim)


def desired_record(desired: Desired, writer: str) -> StateRecord:
    """A version; it may lose: read the topic behind it. `writer` is unlike that of any other record."""
    spec = None if desired.spec is None else desired.spec.to_json()
    value = {"spec": spec, "by": desired.by, "at_ms": desired.at_ms, "of": desired.of}
    return _key("desired", desired.source, desired.version, writer), orjson.dumps(value)


def desired_over(desired: Desired) -> StateRecord:
    """A version, as it was read, is forgotten."""
    return _key("desired", desired.source, desired.version, desired.writer), None


def presence_record(presence: Presence) -> StateRecord:
    """Where an agent is."""
    return _key("agent", presence.agent), orjson.dumps(asdict(presence))


def reported_record(reported: Reported) -> StateRecord:
    """What an agent runs."""
    return _key("reported", reported.agent, reported.source), orjson.dumps(reported.to_json())


def map_record(seen: DatabaseSeen) -> StateRecord:
    """What an agent sees of a database."""
    return _key("map", seen.agent, seen.connection, seen.database), orjson.dumps(seen.to_json())


def map_over(agent: str, connection: str, database: str) -> StateRecord:
    """An agent sees a database no more."""
    return _key("map", agent, connection, database), None


def drained_record(role: str, name: str, drained: bool) -> StateRecord:
    """Whether an agent or a gateway is drained."""
    return _key("drained", role, name), orjson.dumps(True) if drained else None


def token_record(token: Token) -> StateRecord:
    """A token; one that is revoked stays, so that its use is told apart from a guess."""
    value = {name: said for name, said in asdict(token).items() if name != "id"}
    return _key("token", token.id), orjson.dumps(value)


def revoked_record(revoked: Revoked) -> StateRecord:
    """A certificate that counts no more; it stays so."""
    return _key("revoked", revoked.serial), orjson.dumps({"by": revoked.by, "at_ms": revoked.at_ms})


def beat_record(gateway: str, beat: int) -> StateRecord:
    """A gateway's sign of life."""
    return _key("gateway", gateway), orjson.dumps({"beat": beat})

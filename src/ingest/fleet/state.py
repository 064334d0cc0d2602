"""State of the fleet, computed from the records of the topic `<topology>.fleet`.

The topic has one partition and is compacted. A key is a JSON list that begins with the kind of record. Unknown kinds
are ignored, so that gateways of two versions can share the topic. Leases and versions are claims: each record has its
own key, so compaction keeps all of them, and the first claim of a number wins. Of all other kinds the newest record per
key wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import orjson

from cdc.oidc.claims import ROLES
from ingest.fleet.catalog import DatabaseSeen, database_of
from ingest.fleet.certificate import RevokedCertificate
from ingest.fleet.desired import DesiredSource, SourceSpec
from ingest.fleet.leases import Lease, Presence, winning_claim
from ingest.fleet.reported import SourceReport, reported_of
from ingest.fleet.tokens import AGENT, Token

StateRecord = tuple[bytes, bytes | None]
_SPEC = {"agents", "connection", "running"}
VERSIONS = 100  # versions per source that are kept for rollbacks


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """Content of the fleet's topic up to an offset. Immutable; `folded` returns the next state.

    `desired` are the versions of each source, oldest first. `reported` is by (agent, source), `maps` by (agent,
    connection, database), `drained` by (role, name), `revoked` by serial number. `beats` is the last heartbeat of each
    gateway. `strange` is the number of records that could not be read.
    """

    desired: Mapping[str, tuple[DesiredSource, ...]] = field(default_factory=dict)
    leases: Mapping[str, Lease] = field(default_factory=dict)
    presences: Mapping[str, Presence] = field(default_factory=dict)
    reported: Mapping[tuple[str, str], SourceReport] = field(default_factory=dict)
    maps: Mapping[tuple[str, str, str], DatabaseSeen] = field(default_factory=dict)
    drained: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    tokens: Mapping[str, Token] = field(default_factory=dict)
    revoked: Mapping[str, RevokedCertificate] = field(default_factory=dict)
    beats: Mapping[str, int] = field(default_factory=dict)
    strange: int = 0

    def newest(self) -> dict[str, DesiredSource]:
        """Return the newest version of each source, also of removed sources."""
        return {source: versions[-1] for source, versions in self.desired.items()}

    def spec(self, source: str) -> SourceSpec | None:
        """Return the current configuration of a source; None if it does not exist or was removed."""
        versions = self.desired.get(source, ())
        return versions[-1].spec if versions else None

    def is_drained(self, role: str, name: str) -> bool:
        """Return whether an agent (role `agents`) must have no sources, or a gateway (role `gateways`) no agents."""
        return self.drained.get((role, name), False)

    def captured(self, agent: str, connection: str) -> dict[str, SourceSpec]:
        """Return the configurations of the sources that an agent may capture on one connection."""
        found = ((name, newest.spec) for name, newest in self.newest().items())
        return {
            name: spec for name, spec in found if spec and spec.connection == connection and agent in spec.agents
        }  # fmt: skip


def folded(state: FleetState, records: Iterable[StateRecord]) -> FleetState:
    """Return the state after more records, which must be in the topic's order."""
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
        # not an error: the reader of the topic logs how many there are
        except (AttributeError, LookupError, TypeError, ValueError):
            strange += 1
    return replace(state, **made, strange=strange)


def _fold(of: Any, key: Any, value: Any) -> None:
    kind, names = key[0], key[1:]
    if kind == "lease":
        if value is not None:  # a tombstone changes nothing: it belongs to a claim that is not in force
            claim = _lease_of(names, value)
            of("leases")[claim.source] = winning_claim(of("leases").get(claim.source), claim)
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


def _next_version(versions: dict[str, tuple[DesiredSource, ...]], desired: DesiredSource) -> None:
    before = versions.get(desired.source, ())
    if not before or desired.version > before[-1].version:
        versions[desired.source] = (*before, desired)[-VERSIONS:]


def _desired_of(names: list[Any], value: Any) -> DesiredSource:
    spec = value["spec"]
    if spec is not None:
        keys = {key: content for key, content in spec.items() if key not in _SPEC}
        agents = tuple(str(agent) for agent in spec["agents"])
        spec = SourceSpec(agents=agents, connection=spec["connection"], running=bool(spec["running"]), keys=keys)
    return DesiredSource(
        source=names[0], version=int(names[1]), spec=spec, by=str(value.get("by", "")),
        at_ms=int(value.get("at_ms", 0)), of=value.get("of"), writer=str(names[2]),
    )  # fmt: skip


def _token_of(names: list[Any], value: Any) -> Token:
    if value["role"] not in (*ROLES, AGENT):
        raise ValueError(f"role {value['role']!r}")
    return Token(**{"id": names[0], **_known(Token, value)})


_TYPES: dict[str, Any] = {"str": str, "int": int, "bool": bool, "Mapping[str, str] | None": dict | None}


def _known(kind: Any, value: Any) -> dict[str, Any]:
    """Return the fields of a stored value. Raises TypeError for a field of a wrong type, as in a foreign record."""
    found = {}
    for one in fields(kind):
        if one.name in value:
            if not isinstance(value[one.name], _TYPES.get(str(one.type), object)):
                raise TypeError(f"{one.name} has a wrong type")
            found[one.name] = value[one.name]
    return found


def _first(names: list[Any]) -> str:
    return str(names[0])


_SIMPLE: dict[str, tuple[str, Any, Any]] = {
    "agent": ("presences", _first, lambda names, value: Presence(**{**_known(Presence, value), "agent": names[0]})),
    "reported": ("reported", lambda names: (names[0], names[1]), lambda names, value: reported_of(value)),
    "map": ("maps", lambda names: (names[0], names[1], names[2]), lambda n, value: database_of(value, n[0], n[1])),
    "drained": ("drained", lambda names: (names[0], names[1]), lambda names, value: bool(value)),
    "token": ("tokens", _first, _token_of),
    "revoked": (
        "revoked",
        _first,
        lambda names, value: RevokedCertificate(**{**_known(RevokedCertificate, value), "serial": names[0]}),
    ),
    "gateway": ("beats", _first, lambda names, value: int(value["beat"])),
}


def _key(*names: Any) -> bytes:
    return orjson.dumps(names)


def lease_record(lease: Lease) -> StateRecord:
    """Return the record of a claim. An earlier claim may win, so read the topic after writing."""
    return _lease_key(lease), orjson.dumps({"agent": lease.agent, "gateway": lease.gateway})


def lease_over(lease: Lease) -> StateRecord:
    """Return the tombstone of a claim that is no longer in force."""
    return _lease_key(lease), None


def _lease_key(lease: Lease) -> bytes:
    return _key("lease", lease.source, lease.epoch, lease.claim)


def desired_record(desired: DesiredSource, writer: str) -> StateRecord:
    """Return the record of a new version. Another writer may win, so read the topic after writing. `writer` must be
    unique."""
    spec = None if desired.spec is None else desired.spec.to_json()
    value = {"spec": spec, "by": desired.by, "at_ms": desired.at_ms, "of": desired.of}
    return _key("desired", desired.source, desired.version, writer), orjson.dumps(value)


def desired_over(desired: DesiredSource) -> StateRecord:
    """Return the tombstone of an old version, as it was read from the topic."""
    return _key("desired", desired.source, desired.version, desired.writer), None


def presence_record(presence: Presence) -> StateRecord:
    """Return the record of an agent's presence."""
    return _key("agent", presence.agent), orjson.dumps(asdict(presence))


def reported_record(reported: SourceReport) -> StateRecord:
    """Return the record of an agent's status report."""
    return _key("reported", reported.agent, reported.source), orjson.dumps(reported.to_json())


def map_record(seen: DatabaseSeen) -> StateRecord:
    """Return the record of one database of an agent's catalog."""
    return _key("map", seen.agent, seen.connection, seen.database), orjson.dumps(seen.to_json())


def map_over(agent: str, connection: str, database: str) -> StateRecord:
    """Return the tombstone of a database that an agent no longer sees."""
    return _key("map", agent, connection, database), None


def drained_record(role: str, name: str, drained: bool) -> StateRecord:
    """Return the record that starts (`drained` True) or ends the draining of an agent or gateway."""
    return _key("drained", role, name), orjson.dumps(True) if drained else None


def token_record(token: Token) -> StateRecord:
    """Return the record of a token. Revoked tokens are kept, to distinguish their use from guessed ones."""
    value = {name: content for name, content in asdict(token).items() if name != "id"}
    return _key("token", token.id), orjson.dumps(value)


def revoked_record(revoked: RevokedCertificate) -> StateRecord:
    """Return the record of a revoked certificate, which is never removed."""
    return _key("revoked", revoked.serial), orjson.dumps({"by": revoked.by, "at_ms": revoked.at_ms})


def beat_record(gateway: str, beat: int) -> StateRecord:
    """Return the record of a gateway's heartbeat; `beat` is its number."""
    return _key("gateway", gateway), orjson.dumps({"beat": beat})

"""What operators command, each with one line of audit, done or refused; pure.

A command writes what shall be into the fleet's topic; stewards and agents do it. Of two commands that write one version
at once the first counts, and the other one is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypeVar

import orjson

from cdc.model.errors import TailorbirdError, UsageError
from cdc.model.schema import TableId
from ingest.fleet.certificate import Revoked, serial_of
from ingest.fleet.desired import Desired, SourceSpec, source_of, spec_of, table_named, tables_named, with_tables
from ingest.fleet.identity import identity
from ingest.fleet.state import (
    VERSIONS,
    FleetState,
    desired_over,
    desired_record,
    drained_record,
    lease_record,
    revoked_record,
    token_record,
)
from ingest.fleet.tokens import AGENT, ROLES, Token, checked, hashed, written
from ingest.gateway.coordinator import claim_again, plain
from ingest.gateway.gateway_interfaces import Audit, StateTopic

T = TypeVar("T")
SOURCES = 2000  # of a tenant: gateways have all of them in memory
_LINE = 600 * 1024  # bytes of a command's words that its line of audit holds
_DAY_MS = 24 * 3600 * 1000


class NotThere(UsageError):
    """What a command is about is not there."""


class Overtaken(UsageError):
    """Another command of the same moment stands before this one."""


@dataclass(frozen=True, slots=True)
class FleetOperator:
    """Who commands: the name of a token, and the address that it came from."""

    name: str
    address: str = ""


class FleetSources(Protocol):
    """What lies in Kafka of a source that is captured; every method raises Retriable while it is away."""

    def positions(self, source: str, spec: SourceSpec) -> Sequence[Mapping[str, Any]]:
        """Positions that it can be set back to, oldest first."""

    def set_back(self, source: str, spec: SourceSpec, sequence: int | None, ts_ms: float | None) -> Mapping[str, Any]:
        """Set it back: where it goes on from. UsageError where no position is so old."""

    def signal(self, source: str, kind: str, tables: Sequence[str], where: str) -> None:
        """Send a signal to its capture."""


class FleetCommands:
    """Of one gateway. `secret` makes 43 characters of URL-safe base64, `number` 16 digits of hex."""

    def __init__(
        self,
        topic: StateTopic,
        audit: Audit,
        topology: str,
        sources: FleetSources,
        *,
        now_ms: Callable[[], int],
        number: Callable[[], str],
        secret: Callable[[], str],
    ) -> None:
        self._topic, self._audit, self._topology, self._sources = topic, audit, topology, sources
        self._now_ms, self._number, self._secret = now_ms, number, secret

    @property
    def tokens(self) -> dict[str, Token]:
        """Those that were ever issued, by id."""
        return dict(self._topic.state.tokens)

    def token(self, shown: str) -> Token | str:
        """The token that somebody shows, or why it is none."""
        return checked(shown, self.tokens, self._now_ms())

    # what is looked at

    def agents(self) -> list[dict[str, Any]]:
        """Each agent that ever dialled: where it is, and what it has."""
        state = self._topic.state
        found = []
        for name, one in sorted(state.presences.items()):
            held = {source: lease.epoch for source, lease in state.leases.items() if lease.agent == name}
            found.append(
                {
                    "agent": name, "connected": one.connected, "gateway": one.gateway, "version": one.version,
                    "labels": dict(one.labels or {}), "since_ms": one.at_ms,
                    "drained": state.is_drained("agents", name),
                    "sources": [_running(state, source, name, epoch) for source, epoch in sorted(held.items())],
                }
            )  # fmt: skip
        return found

    def gateways(self) -> list[dict[str, Any]]:
        """Each gateway that was heard of: its last sign of life, how many agents it has, whether it is drained."""
        state = self._topic.state
        beats = dict[str, int]()
        for gateway, beat in state.beats.items():
            beats[plain(gateway)] = max(beat, beats.get(plain(gateway), 0))
        here = [plain(one.gateway) for one in state.presences.values() if one.connected]
        return [
            {
                "gateway": name, "heard_ms": beat, "agents": here.count(name),
                "drained": state.is_drained("gateways", name),
            }
            for name, beat in sorted(beats.items())
        ]  # fmt: skip

    def sources(self) -> list[dict[str, Any]]:
        """Each source that the fleet has: what shall be, who has it, what it says."""
        state = self._topic.state
        return [self._shown(state, name, newest) for name, newest in sorted(state.newest().items()) if newest.spec]

    def map(self, agent: str | None = None) -> list[dict[str, Any]]:
        """Each table that agents see: its columns, about how many rows it has, and the source that captures it."""
        state, found = self._topic.state, []
        for (name, connection, database), seen in sorted(state.maps.items()):
            if agent not in (None, name):
                continue
            over = {
                source: source_of(spec, self._topology, source)
                for source, spec in state.captured(name, connection).items()
            }
            for table in seen.tables:
                by = [
                    source for source, one in over.items()
                    if one.captures(TableId(source=source, database=database, table=table.name))
                ]  # fmt: skip
                found.append(
                    {
                        "agent": name, "connection": connection, "database": database, "table": table.name,
                        "rows": table.rows, "columns": [list(column) for column in table.columns],
                        "captured": by[0] if by else None,
                    }
                )  # fmt: skip
        return found

    def config(self, source: str, version: int | None = None) -> dict[str, Any]:
        """A version of a source's configuration, the newest one by default, with the numbers of all."""
        versions = self._topic.state.desired.get(source, ())
        found = [one for one in versions if version in (None, one.version)]
        if not found:
            raise NotThere(f"source {source[:80]} has no version {version}" if versions else f"no source {source[:80]}")
        return {**_version(found[-1]), "versions": [_version(one, short=True) for one in versions]}

    def positions(self, source: str) -> Sequence[Mapping[str, Any]]:
        """Where a source stands, and what it can be set back to."""
        return self._sources.positions(source, self._spec(source))

    def revoked(self) -> list[dict[str, Any]]:
        """Certificates that count no more."""
        return [asdict(one) for _, one in sorted(self._topic.state.revoked.items())]

    def audited(self, count: int) -> Sequence[Mapping[str, Any]]:
        """The last lines of audit."""
        return self._audit.newest(count)

    # what is commanded

    def add(self, who: FleetOperator, source: str, reported_now: Any) -> dict[str, Any]:
        """A source that is not there yet."""

        def do() -> dict[str, Any]:
            if self._topic.fresh().spec(source) is not None:
                raise UsageError(f"there is a source {source}", "tailorbird fleet config set")
            return self._next(who, source, spec_of(reported_now, self._topology, source))

        return self._done(who, "source add", source, {"spec": reported_now}, do)

    def configure(self, who: FleetOperator, source: str, reported_now: Any, change: bool = False) -> dict[str, Any]:
        """Another configuration of a source; `change`: only the keys that are told, null takes one away."""

        def do() -> dict[str, Any]:
            before = self._spec(source, fresh=True)
            whole = reported_now
            if change and isinstance(reported_now, Mapping):
                both = {**before.to_json(), **reported_now}
                whole = {key: value for key, value in both.items() if value is not None}
            return self._next(who, source, spec_of(whole, self._topology, source))

        return self._done(who, "source set" if change else "config set", source, {"spec": reported_now}, do)

    def remove(self, who: FleetOperator, source: str) -> dict[str, Any]:
        """A source is no more; its topics and its positions stay."""

        def do() -> dict[str, Any]:
            self._spec(source, fresh=True)
            return self._next(who, source, None)

        return self._done(who, "source rm", source, {}, do)

    def roll_back(self, who: FleetOperator, source: str, version: int) -> dict[str, Any]:
        """Write an older version's words again."""

        def do() -> dict[str, Any]:
            versions = self._topic.fresh().desired.get(source, ())
            older = next((one for one in versions if one.version == version), None)
            if older is None:
                raise NotThere(f"source {source[:80]} has no version {version}", "tailorbird fleet config show")
            return self._next(who, source, older.spec, of=version)

        return self._done(who, "config rollback", source, {"version": version}, do)

    def start(self, who: FleetOperator, source: str, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Capture tables; each with what a topology says of a table. One that is new is read whole first."""

        def do() -> dict[str, Any]:
            spec = self._spec(source, fresh=True)
            made = tables_named(source_of(spec, self._topology, source), {**spec.tables, **tables})
            return self._next(who, source, spec_of(with_tables(spec, made).to_json(), self._topology, source))

        return self._done(who, "sync start", source, {"tables": dict(tables)}, do)

    def stop(self, who: FleetOperator, source: str, tables: Sequence[str]) -> dict[str, Any]:
        """Capture tables no more."""

        def do() -> dict[str, Any]:
            spec = self._spec(source, fresh=True)
            one = source_of(spec, self._topology, source)
            if one.filter_policy == "accept":
                raise UsageError(f"source {source} captures every table that is not excluded", "config set")
            gone = {table_named(one, table) for table in tables}
            if missing := [str(table) for table in gone if table not in one.rules]:
                raise NotThere(f"{', '.join(sorted(missing))[:200]} is not captured")
            kept = {name: said for name, said in spec.tables.items() if table_named(one, name) not in gone}
            return self._next(who, source, with_tables(spec, kept))

        return self._done(who, "sync stop", source, {"tables": list(tables)}, do)

    def dump(self, who: FleetOperator, source: str, tables: Sequence[str], where: str) -> dict[str, Any]:
        """Have captured tables read again beside the log; where the host's policy lets them be read."""

        def do() -> dict[str, Any]:
            one = source_of(self._spec(source, fresh=True), self._topology, source)
            found = [table_named(one, table) for table in tables]
            if missing := [str(table) for table in found if not one.captures(table)]:
                raise NotThere(f"{missing[0][:200]} is not captured", "tailorbird fleet sync start")
            names = [table.name for table in found]
            self._sources.signal(source, "execute-snapshot", names, where)
            return {"source": source, "tables": names}

        return self._done(who, "dump", source, {"tables": list(tables), "where": where}, do)

    def set_position(
        self, who: FleetOperator, source: str, sequence: int | None, ts_ms: float | None
    ) -> dict[str, Any]:
        """Set a source back; its agent begins a session anew, from there."""

        def do() -> dict[str, Any]:
            spec = self._spec(source, fresh=True)
            mark = self._sources.set_back(source, spec, sequence, ts_ms)
            lease = self._topic.fresh().leases.get(source)
            if lease is not None and lease.agent:
                self._topic.write(lease_record(claim_again(lease, self._number())))
            return dict(mark)

        return self._done(who, "positions set", source, {"sequence": sequence, "before_ms": ts_ms}, do)

    def drain(self, who: FleetOperator, role: str, name: str, drained: bool) -> dict[str, Any]:
        """Take an agent's sources, or send a gateway's agents elsewhere; or let them come back."""

        def do() -> dict[str, Any]:
            identity("any", role, name)
            state = self._topic.fresh()
            gateways = {plain(gateway) for gateway in state.beats}
            if name not in (state.presences if role == "agents" else gateways):
                raise NotThere(f"no {role[:-1]} {name}", "tailorbird fleet agents")
            self._topic.write(drained_record(role, name, drained))
            return {"role": role, "name": name, "drained": drained}

        return self._done(who, "drain" if drained else "drain off", f"{role}/{name[:80]}", {}, do)

    def issue(self, who: FleetOperator, name: str, role: str, days: int) -> dict[str, Any]:
        """A token; it is told here and never again."""

        def do() -> dict[str, Any]:
            found = next((one for one in (*ROLES, AGENT) if one == role), None)
            if found is None or not 1 <= days <= 3650:
                raise UsageError(f"role {role[:80]!r} for {days} days", f"{', '.join(ROLES)}, {AGENT}; 1 to 3650 days")
            identity("any", "agents", name)
            now, number, secret = self._now_ms(), self._number(), self._secret()
            token = Token(
                id=number, name=name, role=found, sha256=hashed(secret), issued_ms=now, expires_ms=now + days * _DAY_MS
            )
            self._topic.write(token_record(token))
            return {**token.shown(), "token": written(number, secret)}

        return self._done(who, "token issue", name[:80], {"role": role, "days": days}, do)

    def revoke(self, who: FleetOperator, number: str) -> dict[str, Any]:
        """A token is heard no more."""

        def do() -> dict[str, Any]:
            token = self._topic.fresh().tokens.get(number)
            if token is None:
                raise NotThere(f"no token {number[:80]}", "tailorbird fleet token list")
            self._topic.write(token_record(replace(token, revoked=True)))
            return replace(token, revoked=True).shown()

        return self._done(who, "token revoke", number[:80], {}, do)

    def revoke_certificate(self, who: FleetOperator, serial: str) -> dict[str, Any]:
        """Whoever shows a certificate is turned away from now on, and its streams are cut; for good."""

        def do() -> dict[str, Any]:
            made = Revoked(serial=serial_of(serial), by=who.name, at_ms=self._now_ms())
            held = self._topic.fresh().revoked.get(made.serial)
            if held is None:
                self._topic.write(revoked_record(made))
            return asdict(held or made)

        return self._done(who, "certificate revoke", serial[:80], {}, do)

    def refused(self, who: FleetOperator, what: str, why: str) -> None:
        """A command that came to nothing before it began."""
        self._audit.line({"what": what, "who": who.name, "from": who.address, "outcome": "refused", "why": why})

    def _done(
        self, who: FleetOperator, what: str, on: str, reported_now: Mapping[str, Any], do: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        line = {"what": what, "who": who.name, "from": who.address, "on": on[:80]}
        try:
            line |= _kept(reported_now)
            found = do()
        except TailorbirdError as error:
            outcome = "refused" if isinstance(error, UsageError) or error.exit_code == 2 else "failed"
            self._audit.line({**line, "outcome": outcome, "why": str(error)[:2000]})
            raise
        self._audit.sure({**line, "outcome": "done", "version": found.get("version")})
        return found

    def _next(self, who: FleetOperator, source: str, spec: SourceSpec | None, of: int | None = None) -> dict[str, Any]:
        state = self._topic.state
        if spec is not None and state.spec(source) is None:
            there = sum(one.spec is not None for one in state.newest().values())
            if there >= SOURCES:
                raise UsageError(f"there are {there} sources, and a tenant has {SOURCES} at most", "source rm others")
        versions = state.desired.get(source, ())
        number = versions[-1].version + 1 if versions else 1
        made = Desired(source=source, version=number, spec=spec, by=who.name, at_ms=self._now_ms(), of=of)
        oldest = map(desired_over, versions[: 1 - VERSIONS])
        found = self._topic.write(desired_record(made, self._number()), *oldest).desired.get(source, ())
        if next((one for one in found if one.version == number), None) != made:
            raise Overtaken(f"another command has written version {number} of source {source}", "look, and try again")
        return _version(made)

    def _spec(self, source: str, *, fresh: bool = False) -> SourceSpec:
        spec = (self._topic.fresh() if fresh else self._topic.state).spec(source)
        if spec is None:
            raise NotThere(f"the fleet has no source {source[:80]}", "tailorbird fleet source add")
        return spec

    def _shown(self, state: FleetState, name: str, newest: Desired) -> dict[str, Any]:
        lease = state.leases.get(name)
        shown = {**_version(newest), "agent": lease.agent if lease else "", "epoch": lease.epoch if lease else 0}
        reported_now = state.reported.get((lease.agent, name)) if lease else None
        current = reported_now is not None and lease is not None and reported_now.epoch == lease.epoch
        return {**shown, "reported": asdict(reported_now) if reported_now is not None and current else None}


def _kept(reported_now: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the audit keeps of a command's words, or how long they were; UsageError for what no topic could hold."""
    try:
        size = len(orjson.dumps(reported_now))
    except TypeError as error:
        raise UsageError(f"what can not be kept: {error}"[:200], "numbers of 64 bits, texts of UTF-8") from error
    return reported_now if size <= _LINE else dict.fromkeys(reported_now, f"{size} bytes")


def _running(state: FleetState, source: str, agent: str, epoch: int) -> dict[str, Any]:
    reported_now = state.reported.get((agent, source))
    if reported_now is None or reported_now.epoch != epoch:
        return {"source": source, "epoch": epoch, "status": "applying", "reason": "nothing was reported yet"}
    shown = {name: value for name, value in asdict(reported_now).items() if name not in ("agent", "source")}
    return {"source": source, **shown}


def _version(one: Desired, *, short: bool = False) -> dict[str, Any]:
    reported_now = {"source": one.source, "version": one.version, "by": one.by, "at_ms": one.at_ms, "of": one.of}
    return reported_now if short else {**reported_now, "spec": None if one.spec is None else one.spec.to_json()}

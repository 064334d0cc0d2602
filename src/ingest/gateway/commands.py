"""Commands of operators of a fleet. The audit log has a line before a command's first effect, and one for its outcome.

Without the first line there is no effect. A command writes the desired state to the fleet's topic. Coordinators and
agents then apply it. If two commands write the same version at once, the second one fails with VersionConflict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from cdc.model.errors import TailorbirdError, UsageError
from cdc.oidc.claims import ROLES, Role
from ingest.fleet.certificate import RevokedCertificate, serial_of
from ingest.fleet.desired import DesiredSource, SourceSpec, source_of, spec_of, table_named, tables_named, with_tables
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
from ingest.fleet.tokens import AGENT, Token, checked, hashed, same_name, written
from ingest.gateway.coordinator import claim_again, plain
from ingest.gateway.gateway_interfaces import Audit, StateTopic
from ingest.gateway.lists import FleetLists
from ingest.gateway.shown import audited, version_shown

Begin = Callable[[], None]  # writes that a command begins to the audit log; raises Retriable if that fails
SOURCES = 2000  # maximum number per tenant, because gateways keep all of them in memory
_DAY_MS = 24 * 3600 * 1000


class NotFound(UsageError):
    """The source, agent or token of a command does not exist."""


class VersionConflict(UsageError):
    """A concurrent command has written the same version first."""


@dataclass(frozen=True, slots=True)
class FleetOperator:
    """Operator who issues a command: the token's name and role, and the client's address."""

    name: str
    address: str = ""
    role: Role = "view"


class FleetSources(Protocol):
    """Positions and signals of sources in Kafka. Every method raises Retriable while Kafka is unavailable."""

    def positions(self, source: str, spec: SourceSpec) -> Sequence[Mapping[str, Any]]:
        """Return the older positions to which the source can be set back, oldest first, as JSON values."""

    def set_back(self, source: str, spec: SourceSpec, sequence: int | None, ts_ms: float | None) -> Mapping[str, Any]:
        """Set the source back and return where it resumes. Raises UsageError if no stored position is that old."""

    def signal(self, source: str, kind: str, tables: Sequence[str], where: str) -> None:
        """Send a signal of type `kind` to the source's capture; `where` is a condition, or empty."""


class FleetCommands:
    """Commands of one gateway and tenant. `secret` makes 43 characters of URL-safe base64, `number` 16 hex digits."""

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
        self.lists = FleetLists(topic, topology)

    @property
    def tokens(self) -> dict[str, Token]:
        """Return all tokens that were ever issued, by id."""
        return dict(self._topic.state.tokens)

    def token(self, shown: str) -> Token | str:
        """Return the token to which a text belongs, or why the text is refused."""
        return checked(shown, self.tokens, self._now_ms())

    # queries

    def config(self, source: str, version: int | None = None) -> dict[str, Any]:
        """Return a version (None: newest) of a source's configuration, and all versions. Raises NotFound if unknown."""
        versions = self._topic.state.desired.get(source, ())
        found = [one for one in versions if version in (None, one.version)]
        if not found:
            raise NotFound(f"source {source[:80]} has no version {version}" if versions else f"no source {source[:80]}")
        return {**version_shown(found[-1]), "versions": [version_shown(one, short=True) for one in versions]}

    def positions(self, source: str) -> Sequence[Mapping[str, Any]]:
        """Return the older positions to which a source can be set back."""
        return self._sources.positions(source, self._spec(source))

    def revoked(self) -> list[dict[str, Any]]:
        """Return the revoked certificates."""
        return [asdict(one) for _, one in sorted(self._topic.state.revoked.items())]

    def audited(self, count: int) -> Sequence[Mapping[str, Any]]:
        """Return the last `count` lines of the audit log."""
        return self._audit.newest(count)

    # commands

    def add(self, who: FleetOperator, source: str, content: Any) -> dict[str, Any]:
        """Add a new source."""

        def do(begin: Begin) -> dict[str, Any]:
            if self._topic.fresh().spec(source) is not None:
                raise UsageError(f"source {source} exists already", "tailorbird fleet config set")
            return self._next(begin, who, source, spec_of(content, self._topology, source))

        return self._done(who, "source add", source, {"spec": content}, do)

    def configure(self, who: FleetOperator, source: str, content: Any, change: bool = False) -> dict[str, Any]:
        """Replace the configuration of a source, or with `change` only the given keys; null removes a key."""

        def do(begin: Begin) -> dict[str, Any]:
            before = self._spec(source, fresh=True)
            whole = content
            if change and isinstance(content, Mapping):
                both = {**before.to_json(), **content}
                whole = {key: value for key, value in both.items() if value is not None}
            return self._next(begin, who, source, spec_of(whole, self._topology, source))

        return self._done(who, "source set" if change else "config set", source, {"spec": content}, do)

    def remove(self, who: FleetOperator, source: str) -> dict[str, Any]:
        """Remove a source. Its topics and positions stay."""

        def do(begin: Begin) -> dict[str, Any]:
            self._spec(source, fresh=True)
            return self._next(begin, who, source, None)

        return self._done(who, "source rm", source, {}, do)

    def roll_back(self, who: FleetOperator, source: str, version: int) -> dict[str, Any]:
        """Write the content of an older version as the next version."""

        def do(begin: Begin) -> dict[str, Any]:
            versions = self._topic.fresh().desired.get(source, ())
            older = next((one for one in versions if one.version == version), None)
            if older is None:
                raise NotFound(f"source {source[:80]} has no version {version}", "tailorbird fleet config show")
            return self._next(begin, who, source, older.spec, of=version)

        return self._done(who, "config rollback", source, {"version": version}, do)

    def start(self, who: FleetOperator, source: str, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Capture more tables; `tables` maps each to its options as in a topology. A new table begins with a
        snapshot."""

        def do(begin: Begin) -> dict[str, Any]:
            spec = self._spec(source, fresh=True)
            made = tables_named(source_of(spec, self._topology, source), {**spec.tables, **tables})
            return self._next(begin, who, source, spec_of(with_tables(spec, made).to_json(), self._topology, source))

        return self._done(who, "sync start", source, {"tables": dict(tables)}, do)

    def stop(self, who: FleetOperator, source: str, tables: Sequence[str]) -> dict[str, Any]:
        """Stop to capture tables."""

        def do(begin: Begin) -> dict[str, Any]:
            spec = self._spec(source, fresh=True)
            one = source_of(spec, self._topology, source)
            if one.filter_policy == "accept":
                raise UsageError(f"source {source} captures every table that is not excluded", "config set")
            gone = {table_named(one, table) for table in tables}
            if missing := [str(table) for table in gone if table not in one.rules]:
                raise NotFound(f"{', '.join(sorted(missing))[:200]} is not captured")
            kept = {name: settings for name, settings in spec.tables.items() if table_named(one, name) not in gone}
            return self._next(begin, who, source, with_tables(spec, kept))

        return self._done(who, "sync stop", source, {"tables": list(tables)}, do)

    def dump(self, who: FleetOperator, source: str, tables: Sequence[str], where: str) -> dict[str, Any]:
        """Request a new snapshot of captured tables while capture runs. The agent's policy must allow it."""

        def do(begin: Begin) -> dict[str, Any]:
            one = source_of(self._spec(source, fresh=True), self._topology, source)
            found = [table_named(one, table) for table in tables]
            if missing := [str(table) for table in found if not one.captures(table)]:
                raise NotFound(f"{missing[0][:200]} is not captured", "tailorbird fleet sync start")
            if one.is_only_reported:
                raise UsageError(f"source {source} is a stream: it has no tables to read", "send the rows again")
            begin()
            self._sources.signal(source, "execute-snapshot", [table.name for table in found], where)
            return {"source": source, "tables": [table.name for table in found]}

        return self._done(who, "dump", source, {"tables": list(tables), "where": where}, do)

    def set_position(
        self, who: FleetOperator, source: str, sequence: int | None, ts_ms: float | None
    ) -> dict[str, Any]:
        """Set a source back to a sequence number or a time. Its agent starts a new session from that position."""

        def do(begin: Begin) -> dict[str, Any]:
            spec = self._spec(source, fresh=True)
            begin()
            mark = self._sources.set_back(source, spec, sequence, ts_ms)
            lease = self._topic.fresh().leases.get(source)
            if lease is not None and lease.agent:
                self._topic.write(lease_record(claim_again(lease, self._number())))
            return dict(mark)

        return self._done(who, "positions set", source, {"sequence": sequence, "before_ms": ts_ms}, do)

    def drain(self, who: FleetOperator, role: str, name: str, drained: bool) -> dict[str, Any]:
        """Start or end the draining of an agent (it gets no sources) or of a gateway (it gets no agents)."""

        def do(begin: Begin) -> dict[str, Any]:
            identity("any", role, name)
            state = self._topic.fresh()
            gateways = {plain(gateway) for gateway in state.beats}
            if name not in (state.presences if role == "agents" else gateways):
                raise NotFound(f"no {role[:-1]} {name}", "tailorbird fleet agents")
            begin()
            self._topic.write(drained_record(role, name, drained))
            return {"role": role, "name": name, "drained": drained}

        return self._done(who, "drain" if drained else "drain off", f"{role}/{name[:80]}", {}, do)

    def issue(self, who: FleetOperator, name: str, role: str, days: int) -> dict[str, Any]:
        """Issue a token. Its secret is returned only this once.

        No two valid tokens of operators have one name, so that an audit line names one of them. An agent may have two,
        to replace one without an interruption.
        """

        def do(begin: Begin) -> dict[str, Any]:
            found = next((one for one in (*ROLES, AGENT) if one == role), None)
            if found is None or not 1 <= days <= 3650:
                raise UsageError(f"role {role[:80]!r} for {days} days", f"{', '.join(ROLES)}, {AGENT}; 1 to 3650 days")
            identity("any", "agents", name)
            now, number, secret = self._now_ms(), self._number(), self._secret()
            token = Token(
                id=number, name=name, role=found, sha256=hashed(secret), issued_ms=now, expires_ms=now + days * _DAY_MS
            )
            self._only_one(token, self._topic.fresh())
            begin()
            state = self._topic.write(token_record(token))
            if same_name(token, state.tokens, now):  # of two commands at once, none gets a token
                self._topic.write(token_record(replace(token, revoked=True)))
                self._only_one(token, state)
            return {**token.shown(), "token": written(number, secret)}

        return self._done(who, "token issue", name[:80], {"role": role, "days": days}, do)

    def revoke(self, who: FleetOperator, number: str) -> dict[str, Any]:
        """Revoke a token by its id."""

        def do(begin: Begin) -> dict[str, Any]:
            token = self._topic.fresh().tokens.get(number)
            if token is None:
                raise NotFound(f"no token {number[:80]}", "tailorbird fleet token list")
            begin()
            self._topic.write(token_record(replace(token, revoked=True)))
            return replace(token, revoked=True).shown()

        return self._done(who, "token revoke", number[:80], {}, do)

    def revoke_certificate(self, who: FleetOperator, serial: str) -> dict[str, Any]:
        """Revoke a certificate permanently: new streams with it are refused, and its open streams end."""

        def do(begin: Begin) -> dict[str, Any]:
            made = RevokedCertificate(serial=serial_of(serial), by=who.name, at_ms=self._now_ms())
            held = self._topic.fresh().revoked.get(made.serial)
            if held is None:
                begin()
                self._topic.write(revoked_record(made))
            return asdict(held or made)

        return self._done(who, "certificate revoke", serial[:80], {}, do)

    def refused(self, who: FleetOperator, what: str, why: str) -> None:
        """Write to the audit log that the command `what` was refused before it began, and `why`."""
        self._audit.line({"what": what, "who": who.name, "from": who.address, "outcome": "refused", "why": why})

    def _only_one(self, token: Token, state: FleetState) -> None:
        if other := same_name(token, state.tokens, token.issued_ms):
            what = f"{token.name} already has the valid token {other.id}"
            raise UsageError(what, f"choose another name, or first: tailorbird fleet token revoke {other.id}")

    def _done(
        self, who: FleetOperator, what: str, on: str, content: Mapping[str, Any], do: Callable[[Begin], dict[str, Any]]
    ) -> dict[str, Any]:
        """Execute a command and audit it. `do` calls `begin` before its first effect, and has none if that fails."""
        line = {"what": what, "who": who.name, "from": who.address, "on": on[:80]}
        try:
            line |= audited(content)
            found = do(lambda: self._audit.sure({**line, "outcome": "begun"}))
        except TailorbirdError as error:
            outcome = "refused" if isinstance(error, UsageError) or error.exit_code == 2 else "failed"
            self._audit.line({**line, "outcome": outcome, "why": str(error)[:2000]})
            raise
        self._audit.sure({**line, "outcome": "done", "version": found.get("version")})
        return found

    def _next(
        self, begin: Begin, who: FleetOperator, source: str, spec: SourceSpec | None, of: int | None = None
    ) -> dict[str, Any]:
        state = self._topic.state
        if spec is not None and state.spec(source) is None:
            count = sum(one.spec is not None for one in state.newest().values())
            if count >= SOURCES:
                raise UsageError(f"there are {count} sources, the limit is {SOURCES}", "remove others with source rm")
        versions = state.desired.get(source, ())
        number = versions[-1].version + 1 if versions else 1
        made = DesiredSource(source=source, version=number, spec=spec, by=who.name, at_ms=self._now_ms(), of=of)
        oldest = map(desired_over, versions[: 1 - VERSIONS])
        begin()
        found = self._topic.write(desired_record(made, self._number()), *oldest).desired.get(source, ())
        if next((one for one in found if one.version == number), None) != made:
            raise VersionConflict(f"another command has written version {number} of {source}", "check it and try again")
        return version_shown(made)

    def _spec(self, source: str, *, fresh: bool = False) -> SourceSpec:
        spec = (self._topic.fresh() if fresh else self._topic.state).spec(source)
        if spec is None:
            raise NotFound(f"the fleet has no source {source[:80]}", "tailorbird fleet source add")
        return spec

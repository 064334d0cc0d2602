"""Policy of an agent: which data may leave its host, and how it restricts a configuration from a gateway.

The policy takes precedence. A configuration may name what the policy allows, and exclude more. If it names anything
else, it is refused as a whole, with the reason. Excluded columns and masks of the policy are added to those of the
configuration. Only the policy contains server addresses and credentials.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from cdc.model.errors import UsageError
from cdc.model.filters import TableRule
from cdc.model.identifiers import fold_identifier
from cdc.model.schema import TableId
from cdc.model.tls import SecuredAddress, Tls
from cdc.topology.topology import Source, SourceType
from ingest.agent.kinds import NO_ENDPOINT, Endpoint, check_polled, is_plain_name
from ingest.fleet.desired import SourceSpec
from ingest.fleet.request_types import capture_key

_POSTGRES, _MYSQL = ("postgresql",), ("mysql", "mariadb")
Condition = Callable[..., str]
_CACHED = 50_000  # rules of tables
POLICY = "the owner of the host allows it in the agent's policy file"


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePolicy:
    """Policy of one table: the columns that may leave the host (None: all but `ignored`), and masks by column.

    Names match in any case, as in MySQL. With `exact_case`, as in PostgreSQL, those in `columns` match exactly; ignored
    and masked ones still match in any case, so that no spelling reveals a column.
    """

    columns: tuple[str, ...] | None = None
    ignored: tuple[str, ...] = ()
    masks: Mapping[str, str] = field(default_factory=dict)
    exact_case: bool = False

    @property
    def hides(self) -> bool:
        """Return whether any column is excluded or masked."""
        return self.columns is not None or bool(self.ignored or self.masks)

    def shows(self, column: str) -> bool:
        """Return whether a column may leave the host, masked or not."""
        low, same = fold_identifier(column), str if self.exact_case else fold_identifier
        # MySQL's second name for the column of an integer key
        if low == "_rowid" and self.hides and not self.exact_case:
            return False
        if self.columns is not None and same(column) not in map(same, self.columns):
            return False
        return low not in {fold_identifier(name) for name in self.ignored}

    def may_compare(self, column: str) -> bool:
        """Return whether a column may leave the host unmasked, so that conditions may use it."""
        return self.shows(column) and fold_identifier(column) not in self.low_masks

    def with_every(self, every: TablePolicy) -> TablePolicy:
        """Return this policy with what is hidden in every table of the database. Its own masks take precedence."""
        others = {name: mask for name, mask in every.masks.items() if fold_identifier(name) not in self.low_masks}
        ignored = tuple(dict.fromkeys((*self.ignored, *every.ignored)))
        return replace(self, ignored=ignored, masks={**self.masks, **others})

    @property
    def low_masks(self) -> frozenset[str]:
        """Return the names of the masked columns in lower case."""
        return frozenset(fold_identifier(name) for name in self.masks)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabasePolicy:
    """Policy of one database. `tables` are the listed tables; None: the table must not leave the host.

    `default` is the policy of all other tables, also of later ones; None: they must not leave the host.
    """

    tables: Mapping[str, TablePolicy | None] = field(default_factory=dict)
    default: TablePolicy | None = None

    def table(self, name: str) -> TablePolicy | None:
        """Return the policy of a table; None if the table must not leave the host. Names are case-sensitive.

        The default does not apply to a name that differs from a listed one only in case: whether both are the same
        table depends on the server, and the listed one may have exceptions.
        """
        if name in self.tables or self.default is None:
            return self.tables.get(name)
        low = fold_identifier(name)
        return None if any(fold_identifier(listed) == low for listed in self.tables) else self.default


WHOLE_TABLE = TablePolicy()
WHOLE_DATABASE = DatabasePolicy(default=WHOLE_TABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConnection:
    """A database server, its alias, and the policies of its databases. Nothing of another database leaves the host.

    With PostgreSQL they are the schemas of one database, `dbname`. Connections of other kinds may have an `endpoint`
    instead of address and login. `snapshot` is the replica from which tables are read. `repr` omits `password`, so that
    it appears in no message or log.
    """

    alias: str
    type: SourceType
    hostname: str
    port: int
    username: str
    password: str = field(repr=False)
    tls: Tls
    databases: Mapping[str, DatabasePolicy]
    dbname: str = ""
    endpoint: Endpoint = NO_ENDPOINT
    snapshot: SecuredAddress | None = None

    def table(self, database: str, table: str) -> TablePolicy | None:
        """Return the policy of a table; None if the table must not leave the host. Names are case-sensitive."""
        found = self.databases.get(database)
        allowed = None if found is None else found.table(table)
        return replace(allowed, exact_case=True) if allowed is not None and self.type not in _MYSQL else allowed

    @property
    def is_postgres(self) -> bool:
        """Return whether the server is PostgreSQL."""
        return self.type in _POSTGRES

    @property
    def is_stream(self) -> bool:
        """Return whether the connection is only a stream of changes, without a catalog of its tables."""
        return self.type in ("syslog", "kafka", "maxscale")

    def source(self) -> Source:
        """Return the connection as a Source without tables, for queries only."""
        return Source(
            name=self.alias, type=self.type, hostname=self.hostname, port=self.port, username=self.username,
            password=self.password, database=next(iter(self.databases)), tables=(), server_id=0, snapshot_mode="never",
            tls=self.tls, dbname=self.dbname, **self.endpoint.described(),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """Limits of what a gateway can make an agent do.

    - `sources`: the number of sources that the agent captures at a time. Default: 100.
    - `slots`: the number of replication slots of Tailorbird at one PostgreSQL server, with which the agent creates no
      further one. Default: 4.
    - `poll_interval_ms`: the least time between two polls of a session, in milliseconds; of n sources that poll a
      table, each waits n times as long. Default: 500.
    - `poll_lag_ms`: the longest `lag` of a polled source, whose rows each poll reads again. Default: 60,000.
    - `poll_rows`: the number of rows that one query of a polled source reads. Default: 10,000.
    - `snapshot_threads`: the number of threads that read one source's tables. Default: 4.
    - `server_ids`: the first and the last replication id that the agent may use at a database server, which disconnects
      another reader with the same id. Default: 1,000,000,000 to 2,999,999,999.
    - `answer_bytes`: the size of one answer of a gateway, in bytes. Default: 64 MiB.
    - `receive_rate`: how much the agent receives from all gateways, in bytes per second. Default: 32 MiB per second.
    - `assignments_per_minute`: the number of assignments per minute, of all sources. Default: 600.
    - `signals_per_minute`: the number of signals per minute, of each source. Default: 60.
    """

    sources: int = 100
    slots: int = 4
    poll_interval_ms: int = 500
    poll_lag_ms: int = 60_000
    poll_rows: int = 10_000
    snapshot_threads: int = 4
    server_ids: tuple[int, int] = (1_000_000_000, 2_999_999_999)
    answer_bytes: int = 64 * 1024 * 1024
    receive_rate: int = 32 * 1024 * 1024
    assignments_per_minute: int = 600
    signals_per_minute: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Policy of one agent.

    `dumps`: tables may be read by SELECT; otherwise only changes are captured. `locks`: a snapshot may lock tables.
    `labels` are the agent's labels, by which sources may choose it.
    """

    connections: Mapping[str, LocalConnection]
    dumps: bool
    locks: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: AgentLimits = field(default_factory=AgentLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowedSource:
    """A source as the policy restricts it, and sentences for people about each restriction.

    `local` and `limits` are the parts of the policy that the source's session uses.
    """

    source: Source
    restrictions: tuple[str, ...]
    local: LocalConnection
    limits: AgentLimits

    @property
    def accepted(self) -> list[Any]:
        """Return the policies of the databases of which the source captures every table that may leave. Empty with
        `filter_policy` drop."""
        if self.source.filter_policy == "drop":
            return []
        return [asdict(self.local.databases[name]) for name in sorted(self.source.databases)]


def narrowed(policy: Policy, spec: SourceSpec, source: Source, condition: Condition) -> NarrowedSource:
    """Return the source of a configuration as the policy restricts it. Raises UsageError if it names forbidden data.

    `condition(text, may_compare, dialect=…)` returns an SQL condition that is safe to run:
    `ingest.records.conditions.condition`.
    """
    local = policy.connections.get(spec.connection)
    if local is None:
        raise UsageError(f"the agent's policy has no connection {spec.connection}", POLICY)
    if capture_key(local.type) != capture_key(spec.type):
        what = f"connection {local.alias} is of type {local.type}, but the configuration is for {spec.type}"
        raise UsageError(what, f"set the type of the source to {local.type}")
    for database in sorted(source.databases):
        if database not in local.databases:
            raise UsageError(f"database {database} may not leave {local.alias}", POLICY)
        if source.filter_policy == "accept" and local.databases[database].default is None:
            raise UsageError(f"not all tables of {database} may leave {local.alias}", "name the tables that do")
    restrictions = list[str]()
    dropped = {table: rule for table, rule in source.rules.items() if source.filter_policy == "accept" and rule.empty}
    rules = dropped | {
        table: _rule(local, table, rule, condition, restrictions)
        for table, rule in source.rules.items()
        if table not in dropped
    }
    if source.filter_policy == "accept":
        for database in sorted(source.databases):
            restrictions += _exceptions(database, local.databases[database], source)
    permitted = lru_cache(_CACHED)(lambda table: _permitted(local, table))
    made = replace(
        source, rules=rules, type=local.type, hostname=local.hostname, port=local.port, username=local.username,
        password=local.password, tls=local.tls, dumps=policy.dumps,
        conditions=lambda table, where, names=None: _checked(local, table, where, condition, names),
        permitted=permitted,
        dbname=local.dbname, **local.endpoint.fields(source), snapshot=local.snapshot,
    )  # fmt: skip
    check_polled(made, dumps=policy.dumps)
    if not policy.dumps and (made.snapshot_mode, made.position_lost) != ("never", "fail"):
        made = replace(made, snapshot_mode="never", position_lost="fail")
        if not source.is_only_reported:  # such a source has no tables, and sends what it still contains
            restrictions.append("tables may not be dumped: changes are captured from now on")
    if not policy.dumps and made.cascades != "ignore":
        made = replace(made, cascades="ignore")
        restrictions.append("rows may not be read: foreign-key actions are captured only if the log contains them")
    if not policy.locks and made.snapshot_locking_mode != "none":
        made = replace(made, snapshot_locking_mode="none")
        restrictions.append("tables may not be locked")
    made = _limited(policy.limits, spec, made, restrictions)
    return NarrowedSource(source=made, restrictions=tuple(restrictions), local=local, limits=policy.limits)


def _exceptions(database: str, policy: DatabasePolicy, source: Source) -> Iterator[str]:
    """Yield the exceptions to a database of which every table is captured. Names of other tables stay on the host."""
    if policy.default is not None:
        yield from _hidden(f"every table of {database}", policy.default, TableRule())
    for name, allowed in policy.tables.items():
        if allowed is not None and TableId(source=source.name, database=database, table=name) not in source.rules:
            yield from _hidden(f"{database}.{name}", allowed, TableRule())
    if count := sum(allowed is None for allowed in policy.tables.values()):
        yield f"{database}: {count} of its tables may not leave"


def _hidden(name: str, allowed: TablePolicy, rule: TableRule) -> Iterator[str]:
    """Yield what a policy hides of a table, unless the rule of the configuration hides it anyway."""
    if allowed.columns is not None:
        yield f"{name}: only columns {', '.join(allowed.columns)} leave"
    if any(not rule.leaves_out(column) for column in allowed.ignored):
        yield f"{name}: columns {', '.join(allowed.ignored)} do not leave"
    if any(rule.mask_of(column) != mask for column, mask in allowed.masks.items()):
        yield f"{name}: columns {', '.join(allowed.masks)} leave masked"


def _limited(limits: AgentLimits, spec: SourceSpec, source: Source, restrictions: list[str]) -> Source:
    """Return the source within the policy's limits. A replication id outside is replaced by one inside."""
    if source.snapshot_max_threads > limits.snapshot_threads:
        source = replace(source, snapshot_max_threads=limits.snapshot_threads)
        restrictions.append(f"snapshots use at most {limits.snapshot_threads} threads")
    if source.type == "postgresql":
        source = replace(source, most_slots=limits.slots)
    if source.poll is not None and source.poll.interval * 1000 < limits.poll_interval_ms:
        source = replace(source, poll=replace(source.poll, interval=limits.poll_interval_ms / 1000))
        restrictions.append(f"tables are polled every {limits.poll_interval_ms} ms")
    if source.poll is not None and source.poll.lag * 1000 > limits.poll_lag_ms:  # a shorter one could miss rows
        what = f"lag {source.poll.lag:g} s is longer than {limits.poll_lag_ms} ms"
        raise UsageError(what, "use a shorter one, or raise limits: {poll_lag_ms: N} in the agent's policy")
    if source.poll is not None and source.poll.limit > limits.poll_rows:
        source = replace(source, poll=replace(source.poll, limit=limits.poll_rows))
        restrictions.append(f"a query reads at most {limits.poll_rows} rows")
    first, last = limits.server_ids
    if source.server_id and not first <= source.server_id <= last:  # PostgreSQL has no such ids
        within = first + zlib.crc32(f"{spec.connection}.{source.name}".encode()) % (last - first + 1)
        restrictions.append(f"server_id {source.server_id} is not allowed: {within} is used")
        source = replace(source, server_id=within)
    return source


def _rule(
    local: LocalConnection,
    table: TableId,
    rule: TableRule,
    condition: Condition,
    restrictions: list[str],
) -> TableRule:
    allowed = _allowed(local, table)
    name = f"{table.database}.{table.table}"
    made = rule
    if rule.where:
        made = replace(made, where=_checked(local, table, rule.where, condition))
    if not allowed.hides:
        return made
    ignored = tuple(dict.fromkeys((*rule.ignored_columns, *allowed.ignored)))
    # the policy's mask wins; names match in any case, so a mask for `Mail` is one for `mail`
    masks = {
        **{name: mask for name, mask in rule.masks.items() if fold_identifier(name) not in allowed.low_masks},
        **allowed.masks,
    }
    restrictions.extend(_hidden(name, allowed, rule))
    return replace(
        made, ignored_columns=ignored, masks=masks, only_columns=allowed.columns, exact_case=allowed.exact_case,
        hides_any_case=allowed.exact_case, by_name=True,
    )  # fmt: skip


def _checked(
    local: LocalConnection, table: TableId, where: str, condition: Condition, names: Mapping[str, str] | None = None
) -> str:
    """Return a condition on the rows of a table that is safe to run. Raises UsageError for any other.

    `names` are the table's columns, by the name in a condition, once they are known (`conditions.condition`).
    """
    allowed, polled = _allowed(local, table), local.type == "sql"
    rule = _permitted(local, table) or TableRule()
    dialect = local.endpoint.condition_dialect(table) if polled else "postgres" if local.is_postgres else "mysql"
    # in PostgreSQL, a table's name stands for all columns of a row
    whole = fold_identifier(table.table) if dialect == "postgres" and allowed.hides else None

    def may_compare(column: str) -> bool:
        plain = not polled or is_plain_name(column, rule)
        return plain and fold_identifier(column) != whole and allowed.may_compare(column)

    return condition(where, may_compare, dialect=dialect, names=names)


def _permitted(local: LocalConnection, table: TableId) -> TableRule | None:
    """Return the policy's own rule of a table; None if the table must not leave the host."""
    allowed = local.table(table.database, table.table)
    if allowed is None:
        return None
    return TableRule(
        ignored_columns=allowed.ignored, masks=allowed.masks, only_columns=allowed.columns, by_name=allowed.hides,
        exact_case=allowed.exact_case, hides_any_case=allowed.exact_case,
    )  # fmt: skip


def _allowed(local: LocalConnection, table: TableId) -> TablePolicy:
    allowed = local.table(table.database, table.table)
    if allowed is None:
        raise UsageError(f"table {table.database}.{table.table} may not leave {local.alias}", POLICY)
    return allowed


def refused_signal(
    policy: Policy, local: LocalConnection, source: Source, kind: str, tables: tuple[TableId, ...]
) -> str:
    """Return why the policy refuses a signal of type `kind` about these tables; empty if it allows the signal."""
    if kind in ("execute-snapshot", "mend-rows") and not policy.dumps:
        return "tables may not be dumped"
    for table in tables:
        allowed = local.table(table.database, table.table)
        if allowed is None:
            return f"table {table.database}.{table.table} may not leave"
        # an operator's schema could exchange the names of two columns, and so unmask one
        if kind == "schema-set" and (allowed.hides or source.rules.get(table, TableRule()).masks):
            return f"{table.database}.{table.table} hides columns, so its schema must come from the server"
    return ""

"""The policy of an agent: the data that may leave its host, and how it narrows a gateway's configuration.

The policy takes precedence over the configuration. A configuration can name what is allowed, and exclude more. If it
names anything else, it is refused as a whole, with the reason. Excluded columns and masks of the policy are added to
those of the configuration. Only the policy contains server addresses and credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from cdc.model.errors import UsageError
from cdc.model.filters import TableRule
from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.fleet.desired import SourceSpec

POLICY = "the owner of the host allows it in the agent's policy file"


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePolicy:
    """Policy of one table: the columns that may leave (None: all that are not `ignored`), and masks by column."""

    columns: tuple[str, ...] | None = None
    ignored: tuple[str, ...] = ()
    masks: Mapping[str, str] = field(default_factory=dict)

    @property
    def hides(self) -> bool:
        """True if any column is excluded or masked."""
        return self.columns is not None or bool(self.ignored or self.masks)

    def shows(self, column: str) -> bool:
        """True if a column may leave, masked or not. Column names are case-insensitive."""
        low = column.lower()
        if self.columns is not None and low not in {name.lower() for name in self.columns}:
            return False
        return low not in {name.lower() for name in self.ignored}

    def may_compare(self, column: str) -> bool:
        """True if a column may leave unmasked, so that conditions may use it."""
        return self.shows(column) and column.lower() not in self.low_masks

    @property
    def low_masks(self) -> frozenset[str]:
        """The masked columns, in lower case."""
        return frozenset(name.lower() for name in self.masks)


WHOLE_TABLE = TablePolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConnection:
    """A server and its alias. `databases` contains the tables of each database that may leave (None: all of them).

    `password` never appears in messages or logs (`repr` leaves it out).
    """

    alias: str
    type: Literal["mysql", "mariadb"]
    hostname: str
    port: int
    username: str
    password: str = field(repr=False)
    ssl_mode: Literal["preferred", "required", "disabled"]
    databases: Mapping[str, Mapping[str, TablePolicy] | None]

    def table(self, database: str, table: str) -> TablePolicy | None:
        """Return the policy of a table, or None if it must not leave. Names are compared exactly."""
        if database not in self.databases:
            return None
        tables = self.databases[database]
        return WHOLE_TABLE if tables is None else tables.get(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The policy of an agent.

    `dumps`: tables may be read, otherwise only their changes are captured. `locks`: a snapshot may lock tables.
    """

    connections: Mapping[str, LocalConnection]
    dumps: bool
    locks: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowedSource:
    """The effective source, and sentences that say how the policy restricts the configuration."""

    source: Source
    restrictions: tuple[str, ...]


def narrowed(
    policy: Policy, spec: SourceSpec, source: Source, condition: Callable[[str, Callable[[str], bool]], str]
) -> NarrowedSource:
    """Narrow a configuration by the policy. Raises UsageError if it names data that must not leave.

    `condition` returns a SQL condition that is safe to run. It raises UsageError for columns that must not be used.
    """
    local = policy.connections.get(spec.connection)
    if local is None:
        raise UsageError(f"the agent's policy has no connection {spec.connection}", POLICY)
    for database in sorted(source.databases):
        if database not in local.databases:
            raise UsageError(f"database {database} may not leave {local.alias}", POLICY)
        if source.filter_policy == "accept" and local.databases[database] is not None:
            raise UsageError(f"not all tables of {database} may leave {local.alias}", "name the tables that do")
    restrictions = list[str]()
    rules = {table: _rule(local, table, rule, condition, restrictions) for table, rule in source.rules.items()}
    made = replace(
        source, rules=rules, type=local.type, hostname=local.hostname, port=local.port, username=local.username,
        password=local.password, ssl_mode=local.ssl_mode, dumps=policy.dumps,
        conditions=lambda table, where: condition(where, _allowed(local, table).may_compare),
    )  # fmt: skip
    if not policy.dumps and (made.snapshot_mode, made.position_lost) != ("never", "fail"):
        made = replace(made, snapshot_mode="never", position_lost="fail")
        restrictions.append("tables may not be dumped: changes are captured from now on")
    if not policy.dumps and made.cascades != "ignore":
        made = replace(made, cascades="ignore")
        restrictions.append("rows may not be read: foreign-key actions are captured only if the log contains them")
    if not policy.locks and made.snapshot_locking_mode != "none":
        made = replace(made, snapshot_locking_mode="none")
        restrictions.append("tables may not be locked")
    return NarrowedSource(source=made, restrictions=tuple(restrictions))


def _rule(
    local: LocalConnection,
    table: TableId,
    rule: TableRule,
    condition: Callable[[str, Callable[[str], bool]], str],
    restrictions: list[str],
) -> TableRule:
    allowed = _allowed(local, table)
    name = f"{table.database}.{table.table}"
    made = rule
    if rule.where:
        made = replace(made, where=condition(rule.where, allowed.may_compare))
    if not allowed.hides:
        return made
    ignored = tuple(dict.fromkeys((*rule.ignored_columns, *allowed.ignored)))
    # the policy's mask wins; a mask of the configuration for `Mail` is one for `mail`
    masks = {
        **{name: mask for name, mask in rule.masks.items() if name.lower() not in allowed.low_masks},
        **allowed.masks,
    }
    if allowed.columns is not None:
        restrictions.append(f"{name}: only columns {', '.join(allowed.columns)} leave")
    if any(not rule.leaves_out(column) for column in allowed.ignored):
        restrictions.append(f"{name}: columns {', '.join(allowed.ignored)} do not leave")
    if any(rule.mask_of(column) != mask for column, mask in allowed.masks.items()):
        restrictions.append(f"{name}: columns {', '.join(allowed.masks)} leave masked")
    return replace(made, ignored_columns=ignored, masks=masks, only_columns=allowed.columns, exact_case=False)


def _allowed(local: LocalConnection, table: TableId) -> TablePolicy:
    allowed = local.table(table.database, table.table)
    if allowed is None:
        raise UsageError(f"table {table.database}.{table.table} may not leave {local.alias}", POLICY)
    return allowed


def refused_signal(
    policy: Policy, local: LocalConnection, source: Source, kind: str, tables: tuple[TableId, ...]
) -> str:
    """Return why the policy refuses a signal; empty if it allows the signal."""
    if kind in ("execute-snapshot", "mend-rows") and not policy.dumps:
        return "tables may not be dumped"
    for table in tables:
        allowed = local.table(table.database, table.table)
        if allowed is None:
            return f"table {table.database}.{table.table} may not leave"
        # a schema set by hand could give a masked column the name of another one
        if kind == "schema-set" and (allowed.hides or source.rules.get(table, TableRule()).masks):
            return f"{table.database}.{table.table} hides columns, so its schema must come from the server"
    return ""

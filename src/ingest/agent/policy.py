"""What the owner of a database's host lets leave, and how a gateway's configuration is narrowed to it; pure.

The policy has the last word. A configuration can take more away, and name what is allowed; one that names more is
refused as a whole, with the reason; columns and masks of the policy are added to its own. Where a server stands, and
who asks it, stands in the policy alone.
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
    """Of one table: the only columns that may leave (None: all that are not `ignored`), and those that leave masked."""

    columns: tuple[str, ...] | None = None
    ignored: tuple[str, ...] = ()
    masks: Mapping[str, str] = field(default_factory=dict)

    @property
    def hides(self) -> bool:
        """Whether any column of it does not leave as it is."""
        return self.columns is not None or bool(self.ignored or self.masks)

    def shows(self, column: str) -> bool:
        """Whether a column may leave, masked or not; names of columns are the same in any case."""
        low = column.lower()
        if self.columns is not None and low not in {name.lower() for name in self.columns}:
            return False
        return low not in {name.lower() for name in self.ignored}

    def reports(self, column: str) -> bool:
        """Whether a column may leave as it is, so that conditions may ask for it."""
        return self.shows(column) and column.lower() not in self.low_masks

    @property
    def low_masks(self) -> frozenset[str]:
        """The columns that are masked, in small letters."""
        return frozenset(name.lower() for name in self.masks)


ALL_OF_IT = TablePolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConnection:
    """A server under its alias; `databases`: the tables that may leave of each (None: all of them).

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
        """What is allowed of a table; None: nothing. Names are those of the server, to the letter."""
        if database not in self.databases:
            return None
        tables = self.databases[database]
        return ALL_OF_IT if tables is None else tables.get(table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`dumps`: whether tables may be read, or only what changes in them; `locks`: whether a snapshot may lock them."""

    connections: Mapping[str, LocalConnection]
    dumps: bool
    locks: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """What runs: the effective source, and in words what the policy took away of the configuration."""

    source: Source
    taken: tuple[str, ...]


def narrowed(
    policy: Policy, spec: SourceSpec, source: Source, condition: Callable[[str, Callable[[str], bool]], str]
) -> Narrowed:
    """What is left of a configuration; UsageError where it names what may not leave.

    `condition` gives a SQL condition as it is safe to ask, for columns that may be asked for; UsageError for others.
    """
    local = policy.connections.get(spec.connection)
    if local is None:
        raise UsageError(f"there is no connection {spec.connection} here", POLICY)
    for database in sorted(source.databases):
        if database not in local.databases:
            raise UsageError(f"database {database} may not leave {local.alias}", POLICY)
        if source.filter_policy == "accept" and local.databases[database] is not None:
            raise UsageError(f"not all tables of {database} may leave {local.alias}", "name the tables that do")
    taken = list[str]()
    rules = {table: _rule(local, table, rule, condition, taken) for table, rule in source.rules.items()}
    made = replace(
        source, rules=rules, type=local.type, hostname=local.hostname, port=local.port, username=local.username,
        password=local.password, ssl_mode=local.ssl_mode, dumps=policy.dumps,
        conditions=lambda table, where: condition(where, _allowed(local, table).reports),
    )  # fmt: skip
    if not policy.dumps and (made.snapshot_mode, made.position_lost) != ("never", "fail"):
        made = replace(made, snapshot_mode="never", position_lost="fail")
        taken.append("tables may not be dumped: changes are captured from now on")
    if not policy.dumps and made.cascades != "ignore":
        made = replace(made, cascades="ignore")
        taken.append("rows may not be read: those that foreign keys change are told by the log alone")
    if not policy.locks and made.snapshot_locking_mode != "none":
        made = replace(made, snapshot_locking_mode="none")
        taken.append("tables may not be locked")
    return Narrowed(source=made, taken=tuple(taken))


def _rule(
    local: LocalConnection,
    table: TableId,
    rule: TableRule,
    condition: Callable[[str, Callable[[str], bool]], str],
    taken: list[str],
) -> TableRule:
    allowed = _allowed(local, table)
    name = f"{table.database}.{table.table}"
    made = rule
    if rule.where:
        made = replace(made, where=condition(rule.where, allowed.reports))
    if not allowed.hides:
        return made
    ignored = tuple(dict.fromkeys((*rule.ignored_columns, *allowed.ignored)))
    # by the policy's names, and in its words: a mask of the gateway's for `Mail` is one for `mail`
    masks = {
        **{name: said for name, said in rule.masks.items() if name.lower() not in allowed.low_masks},
        **allowed.masks,
    }
    if allowed.columns is not None:
        taken.append(f"of {name} leave {', '.join(allowed.columns)} alone")
    if any(not rule.leaves_out(column) for column in allowed.ignored):
        taken.append(f"of {name} do not leave {', '.join(allowed.ignored)}")
    if any(rule.mask_of(column) != mask for column, mask in allowed.masks.items()):
        taken.append(f"of {name} leave masked {', '.join(allowed.masks)}")
    return replace(made, ignored_columns=ignored, masks=masks, only_columns=allowed.columns, exact_case=False)


def _allowed(local: LocalConnection, table: TableId) -> TablePolicy:
    allowed = local.table(table.database, table.table)
    if allowed is None:
        raise UsageError(f"table {table.database}.{table.table} may not leave {local.alias}", POLICY)
    return allowed


def refused_signal(
    policy: Policy, local: LocalConnection, source: Source, kind: str, tables: tuple[TableId, ...]
) -> str:
    """Why the policy does not let a signal be obeyed; empty where it does."""
    if kind in ("execute-snapshot", "mend-rows") and not policy.dumps:
        return "tables may not be dumped"
    for table in tables:
        allowed = local.table(table.database, table.table)
        if allowed is None:
            return f"table {table.database}.{table.table} may not leave"
        # whoever says what columns are called could call a masked one by another's name
        if kind == "schema-set" and (allowed.hides or source.rules.get(table, TableRule()).masks):
            return f"of {table.database}.{table.table} not all columns may leave: the server alone says what they are"
    return ""

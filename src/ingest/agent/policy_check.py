"""Explain a policy: what of each table would leave the host, what would not, and whether a request would be refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cdc.model.errors import TailorbirdError
from cdc.model.identifiers import fold_identifier
from cdc.model.schema import TableId
from ingest.agent.policy import DatabasePolicy, LocalConnection, Policy, TablePolicy, narrowed
from ingest.events.left_out import unnamed
from ingest.fleet.desired import source_of, spec_of
from ingest.records.conditions import condition

_ROWID = "_rowid"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDatabase:
    """Names of one database as its server reports them: the columns of each table; None: they are unknown.

    `names_columns`: whether the server's log names columns. None: it cannot.
    """

    name: str
    tables: Mapping[str, tuple[str, ...] | None]
    names_columns: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFinding:
    """The columns of one table: what may leave, plain or masked, and what is hidden. `why` explains an exception.

    Without `leaves`, nothing of the table leaves the host.
    """

    connection: str
    table: str
    leaves: bool
    plain: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        """Return one line for people."""
        parts = [f"{what} {', '.join(names)}" for what, names in (
            ("plain", self.plain), ("masked", self.masked), ("hidden", self.hidden)
        ) if names]  # fmt: skip
        parts = parts if self.leaves and (self.masked or self.hidden) else []
        state = "leaves" if self.leaves else "does not leave"
        return f"{self.connection} {self.table}: {'; '.join([state, *parts, *([self.why] if self.why else [])])}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for programs."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestVerdict:
    """The result for a configuration: why the policy refuses it, or sentences that say how it is restricted."""

    refused: bool
    sentences: tuple[str, ...]


def findings(local: LocalConnection, database: ServerDatabase) -> Iterator[PolicyFinding]:
    """Yield what may leave of each table that the server or the policy names, by name.

    Then yield each column that the policy hides in every table of the database, but no table has (`table` is `*`).
    """
    policy = local.databases[database.name]
    for table in sorted({*database.tables, *policy.tables}):
        name = f"{database.name}.{table}"
        if table not in database.tables:
            why = "the server has no such table: check the policy for a misspelt name"
            yield PolicyFinding(connection=local.alias, table=name, leaves=False, why=why)
            continue
        allowed = local.table(database.name, table)
        if allowed is None:
            yield PolicyFinding(connection=local.alias, table=name, leaves=False, why=_withheld(policy, table))
            continue
        if allowed.hides and not database.names_columns:
            table_id = TableId(source=local.alias, database=database.name, table=table)
            why, remedy = unnamed(table_id, supported=database.names_columns is not None)
            yield PolicyFinding(connection=local.alias, table=name, leaves=False, why=f"{why}: {remedy}")
            continue
        columns = database.tables[table]
        if columns is None:  # show those that the policy names
            columns = tuple(dict.fromkeys((*(allowed.columns or ()), *allowed.ignored, *allowed.masks)))
        yield _finding(local.alias, name, allowed, columns, policy)
    every, listed = policy.default or TablePolicy(), list(database.tables.values())
    if None in listed:
        return
    columns = tuple(name for names in listed if names is not None for name in names)
    known = {_ROWID, *map(fold_identifier, columns)}
    for column in dict.fromkeys((*every.ignored, *every.masks)):
        if fold_identifier(column) not in known:
            why = f"no table has a column {column}: check the policy for a misspelt name"
            yield PolicyFinding(connection=local.alias, table=f"{database.name}.*", leaves=True, why=why)


def _withheld(policy: DatabasePolicy, table: str) -> str:
    if table in policy.tables:
        return "the policy lists it without options under filter_policy: accept"
    low = fold_identifier(table)
    alike = next((name for name in policy.tables if fold_identifier(name) == low), None)
    if alike is not None:
        return f"the policy names it {alike}: names of tables are case-sensitive"
    return "the policy does not list it"


def _finding(
    connection: str, name: str, allowed: TablePolicy, columns: tuple[str, ...], policy: DatabasePolicy
) -> PolicyFinding:
    hidden = tuple(column for column in columns if not allowed.shows(column))
    plain = tuple(column for column in columns if allowed.may_compare(column))
    masked = tuple(column for column in columns if column not in (*hidden, *plain))
    known = {fold_identifier(column) for column in columns}
    # what is hidden in every table of the database is not expected in each
    every = policy.default or TablePolicy()
    common = {fold_identifier(column) for column in (*every.ignored, *every.masks)}
    named = dict.fromkeys((*(allowed.columns or ()), *allowed.ignored, *allowed.masks))
    missing = [one for one in named if fold_identifier(one) not in {*known, *common, _ROWID}]
    why = f"the table has no column {', '.join(missing)}: check the policy for a misspelt name" if missing else ""
    return PolicyFinding(
        connection=connection, table=name, leaves=True, plain=plain, masked=masked, hidden=hidden, why=why
    )


def request_verdict(policy: Policy, value: Mapping[str, Any]) -> RequestVerdict:
    """Return whether the policy refuses a configuration, as an agent would decide.

    `value` is a configuration, or what `tailorbird fleet config show --json` prints. Reads no database.
    """
    source = str(value.get("source", "source"))
    try:
        spec = spec_of(value.get("spec", value), "topology", source)
        found = narrowed(policy, spec, source_of(spec, "topology", source), condition)
    except TailorbirdError as error:
        return RequestVerdict(refused=True, sentences=(f"refused: {error}",))
    return RequestVerdict(refused=False, sentences=("accepted", *found.restrictions))

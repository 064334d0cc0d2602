"""Find faults that prevent a topology from running, in the answers that its servers gave. Each finding has a remedy.

The functions here contact no server: `mysql_doctor` and `pg_doctor` do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cdc.model.collations import exact_collation, folds, listed
from cdc.model.errors import Skippable, TopologyError
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source, Topology
from ingest.ddl.catalog import Key
from ingest.events.left_out import refused_kind
from ingest.events.published import published
from tailorbird.operate.doctor.validate import judged

Status = Literal["ok", "warning", "fault"]
LONG_TRANSACTION = 600  # seconds
SHORT_RETENTION = 3 * 86_400  # seconds: a weekend without an operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """The result of one check. `subject` is for example `source shop`, `check` is `binlog_format`, `found` is the
    answer.

    `remedy` is what to do, or empty."""

    subject: str
    check: str
    status: Status
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """A foreign key that changes rows of a table without logging them, such as ON DELETE CASCADE.

    `parent` is the referenced table, `database.table`; `rule` is the action."""

    name: str
    parent: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInspection:
    """State of a table that the topology captures.

    `readable` is None if the table can be read, otherwise the server's message. `absent`: the table does not exist.
    `schema` is None if it cannot be read. `indexed`: an index starts with the column by which it is polled.
    `cascades` are foreign keys that change its rows without logging."""

    name: str
    readable: str | None
    engine: str
    schema: TableSchema | None = None
    keys: tuple[Key, ...] = ()
    absent: bool = False
    view: bool = False
    sequence: bool = False
    indexed: bool = True
    cascades: tuple[Cascade, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInspection:
    """Answers of a MySQL or MariaDB server. `denied` are the privileges that were tried and refused.

    `replicas` are the server ids that are currently registered. `longest` is the age in seconds of the oldest open
    transaction of the source's user. It is 0 if there is none, or if the user may not see it (PROCESS)."""

    version: str
    variables: Mapping[str, str]
    denied: tuple[str, ...]
    replicas: tuple[int, ...]
    tables: Sequence[TableInspection] = field(default_factory=tuple)
    longest: int = 0

    @property
    def maria(self) -> bool:
        """Return whether it is MariaDB."""
        return "mariadb" in self.version.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreachableServer:
    """The reason why a server could not be inspected. `refused`: it answered, but refused the login.

    `problem` is the reason."""

    problem: str
    refused: bool


def reached(subject: str, address: str, problem: str, remedy: str) -> Checkup:
    """Return the check whether a server answers. `problem` is empty if it does, otherwise the reason."""
    if problem:
        return Checkup(subject=subject, check="reachable", status="fault", found=f"{address}: {problem}", remedy=remedy)
    return Checkup(subject=subject, check="reachable", status="ok", found=address)


def grants(source: Source) -> list[str]:
    """Return GRANT statements for the minimal privileges of a source's user."""
    who = f"'{source.username}'@'%'"
    statements = [f"GRANT SELECT ON `{t.database}`.`{t.table}` TO {who}" for t in source.tables]
    if source.filter_policy == "accept":
        statements = [f"GRANT SELECT ON `{database}`.* TO {who}" for database in sorted(source.databases)]
    for merged in source.merged:
        pattern = merged.table_id.database.replace("_", "\\_").replace("*", "%").replace("?", "_")
        statements.append(f"GRANT SELECT ON `{pattern}`.* TO {who}")
    if source.poll is None:
        more = ", RELOAD" if source.snapshot_locking_mode == "minimal" else ""
        monitor = "BINLOG MONITOR" if source.type == "mariadb" else "REPLICATION CLIENT"
        statements.append(f"GRANT REPLICATION SLAVE, {monitor}{more} ON *.* TO {who}")
    return statements


def judge(source: Source, inspection: ServerInspection) -> list[Checkup]:
    """Return all findings about a source's server, in the order in which to fix them.

    `inspection` are the answers of the server."""
    subject = f"source {source.name}"
    found = [Checkup(subject=subject, check="version", status="ok", found=inspection.version)]
    found += _privileges(subject, source, inspection)
    if source.poll is None:
        found += _settings(subject, inspection)
        found += [_retention(subject, inspection), *_server_ids(subject, source, inspection)]
    if inspection.longest >= LONG_TRANSACTION:
        found.append(_row_versions(subject, source, inspection))
    for table in inspection.tables:
        found += judge_table(subject, source, table)
    return found


def _row_versions(subject: str, source: Source, inspection: ServerInspection) -> Checkup:
    """Warn of a long snapshot, because InnoDB keeps every row version that is newer than its transaction."""
    return Checkup(
        subject=subject,
        check="row versions",
        status="warning",
        found=f"a transaction of user {source.username} has been open for {inspection.longest // 60} minutes: "
        "the server keeps all row versions since then",
        remedy="wait; tables with a key of integers or text are read in short chunks (docs/capture.md, Snapshots)",
    )


def _privileges(subject: str, source: Source, inspection: ServerInspection) -> list[Checkup]:
    absent = [t.name for t in inspection.tables if t.absent]
    found = [
        Checkup(
            subject=subject,
            check=name,
            status="fault",
            found="does not exist",
            remedy="correct `tables:` or `database:`",
        )
        for name in absent
    ]
    unreadable = [t.name for t in inspection.tables if t.readable is not None and not t.absent]
    lacking = [*inspection.denied, *(f"SELECT on {name}" for name in unreadable)]
    if not lacking:
        return [*found, Checkup(subject=subject, check="grants", status="ok", found="all required privileges")]
    refusals = [t.readable for t in inspection.tables if t.readable is not None and not t.absent]
    return [
        *found,
        Checkup(
            subject=subject,
            check="grants",
            status="fault",
            found=f"lacks {', '.join(lacking)}" + (f" ({refusals[0]})" if refusals else ""),
            remedy="; ".join(grants(source)),
        ),
    ]


def _settings(subject: str, inspection: ServerInspection) -> list[Checkup]:
    found = []
    for name, wanted, status, why in (
        ("log_bin", "ON", "fault", "nothing is logged"),
        ("binlog_format", "ROW", "fault", "statements do not contain the changed rows"),
        ("binlog_row_image", "FULL", "fault", "updates do not contain whole rows"),
        ("binlog_row_value_options", "", "fault", "JSON updates are logged as differences"),
        ("binlog_row_metadata", "FULL", "warning", "the log has no column names: capture derives them from DDL"),
        ("gtid_mode", "ON", "warning", "a fail-over cannot be followed, and snapshots need locks"),
    ):
        value = inspection.variables.get(name)
        if value is None and (inspection.maria or wanted == "" or name == "binlog_row_metadata"):
            continue  # this server does not have the variable
        shown = value if value else "empty" if value == "" else "not there"
        if (value or "").upper() == wanted:
            found.append(Checkup(subject=subject, check=name, status="ok", found=shown))
        else:
            severity: Status = "fault" if status == "fault" else "warning"
            found.append(
                Checkup(
                    subject=subject,
                    check=name,
                    status=severity,
                    found=f"{shown}: {why}",
                    remedy=_setting(name, wanted, inspection),
                )
            )
    return found


def _setting(name: str, wanted: str, inspection: ServerInspection) -> str:
    if name == "log_bin":
        return "set log_bin and server_id in my.cnf and restart the server"
    if name == "gtid_mode":
        return (
            "SET PERSIST enforce_gtid_consistency = ON; then SET PERSIST gtid_mode = OFF_PERMISSIVE, ON_PERMISSIVE, ON"
        )
    persisted = "GLOBAL" if inspection.maria or inspection.version.startswith("5.") else "PERSIST"
    also = ", and in my.cnf" if persisted == "GLOBAL" else ""
    return f"SET {persisted} {name} = {wanted or repr('')}{also}; open sessions keep the old value"


def _retention(subject: str, inspection: ServerInspection) -> Checkup:
    seconds = int(inspection.variables.get("binlog_expire_logs_seconds") or 0)
    seconds = seconds or int(float(inspection.variables.get("expire_logs_days") or 0) * 86_400)
    if seconds == 0:
        return Checkup(subject=subject, check="retention", status="ok", found="logs are kept until they are purged")
    shown = f"{seconds / 86_400:.3g} days"
    if seconds >= SHORT_RETENTION:
        return Checkup(subject=subject, check="retention", status="ok", found=shown)
    name = "binlog_expire_logs_seconds" if "binlog_expire_logs_seconds" in inspection.variables else "expire_logs_days"
    wanted = 7 * 86_400 if name.endswith("seconds") else 7
    return Checkup(
        subject=subject,
        check="retention",
        status="warning",
        found=f"{shown}: a capture that stops for longer must read all tables again",
        remedy=f"SET GLOBAL {name} = {wanted}, and in my.cnf",
    )


def _server_ids(subject: str, source: Source, inspection: ServerInspection) -> list[Checkup]:
    own, ours = inspection.variables.get("server_id"), source.server_id
    if own is not None and int(own) == ours:
        return [
            Checkup(
                subject=subject,
                check="server_id",
                status="fault",
                found=f"{ours} is the server's own",
                remedy="give the source another server_id in the topology",
            )
        ]
    if ours in inspection.replicas:
        return [
            Checkup(
                subject=subject,
                check="server_id",
                status="warning",
                found=f"{ours} is registered with the server now",
                remedy="correct if this capture is running; else give the source another server_id: two readers "
                "with one id disconnect each other",
            )
        ]
    return [Checkup(subject=subject, check="server_id", status="ok", found=f"{ours}, not used by another server")]


def judge_table(subject: str, source: Source, table: TableInspection) -> list[Checkup]:
    """Return the findings about one table. Empty if it cannot be read, because a check of the privileges reports
    that."""
    if table.readable is not None:
        return []
    if table.view:
        what = "is a view: the log contains no rows of it"
        remedy = "capture the tables that it reads, and make its SELECT a query under `tables:`"
        return [Checkup(subject=subject, check=table.name, status="fault", found=what, remedy=remedy)]
    found = []
    refused = _refused_kind(source, table)
    if refused is not None:
        what, remedy = refused.message, refused.hint
        found.append(Checkup(subject=subject, check=table.name, status="fault", found=what, remedy=remedy))
    captured: TableSchema | None = None
    try:
        captured = _published(source, table)
    except Skippable as error:
        found.append(Checkup(subject=subject, check=table.name, status="fault", found=error.message, remedy=error.hint))
    found += _left_out(subject, table.name, captured)
    for name, collation in _loose(captured):
        found.append(
            Checkup(
                subject=subject,
                check=table.name,
                status="warning",
                found=f"key {name} compares by {collation}, which folds {listed(folds(collation))}; joins do not",
                remedy=f"write keys in one form, or MODIFY {name} … COLLATE {exact_collation(collation)}",
            )
        )
    followed = source.cascades == "follow" and source.poll is None
    for one in table.cascades:
        seen = followed and any(one.parent == f"{table.database}.{table.table}" for table in source.tables)
        remedy = f"capture {one.parent} as well" if followed else "cascades: follow, and capture the parent"
        found.append(
            Checkup(
                subject=subject,
                check=table.name,
                status="ok" if seen else "warning",
                found=f"foreign key {one.name} to {one.parent} {one.rule}: the log does not contain the rows it changes"
                + (", its rows are read again (cascades: follow)" if seen else ""),
                remedy="" if seen else f"{remedy}; else rows keep old values until `tailorbird snapshot`",
            )
        )
    if source.poll is not None and not table.indexed:
        found.append(
            Checkup(
                subject=subject,
                check=table.name,
                status="warning",
                found=f"no index starts with {source.poll.cursor}: every poll reads the whole table",
                remedy=f"ALTER TABLE {table.name} ADD INDEX idx__{source.poll.cursor} ({source.poll.cursor})",
            )
        )
    return found or [Checkup(subject=subject, check=table.name, status="ok", found="readable, with a key")]


def _refused_kind(source: Source, table: TableInspection) -> Skippable | None:
    """Return the reason why capture leaves a table of this kind out; polled tables may be of any kind."""
    if source.poll is not None and not table.sequence:
        return None
    database, _, name = table.name.partition(".")
    named = TableId(source=source.name, database=database, table=name)
    return refused_kind(table.schema.table_id if table.schema else named, table.engine, sequence=table.sequence)


def _left_out(subject: str, name: str, schema: TableSchema | None) -> list[Checkup]:
    if schema is None or not schema.left_out:
        return []
    names = ", ".join(column for column, _ in schema.left_out)
    shown = ", ".join(f"{column} ({kind})" for column, kind in schema.left_out)
    what, remedy = f"left out because its type is not captured: {shown}", f"`ignored_columns: [{names}]` silences this"
    return [Checkup(subject=subject, check=name, status="warning", found=what, remedy=remedy)]


def published_schemas(source: Source, tables: Sequence[TableInspection]) -> dict[TableId, TableSchema]:
    """Return the schemas that capture would publish, without the tables that it would refuse."""
    found = {}
    for table in tables:
        try:
            schema = _published(source, table)
        except Skippable:
            continue  # `judge` reports it
        if schema is not None:
            found[schema.table_id] = schema
    return found


def _published(source: Source, table: TableInspection) -> TableSchema | None:
    if table.schema is None:
        return None
    return published(table.schema, table.keys, source.rule_of(table.schema.table_id))


def _loose(schema: TableSchema | None) -> list[tuple[str, str]]:
    """Return the text columns of the key whose collation treats different texts as equal, with the collation."""
    columns = [schema.column(name) for name in schema.primary_key] if schema else []
    reported = [(column.name, column.collation or "") for column in columns if column]
    return [(name, collation) for name, collation in reported if {"case", "accents"} & set(folds(collation))]


def judge_queries(topology: Topology, schemas: Mapping[TableId, TableSchema]) -> list[Checkup]:
    """Compile the queries with the columns of the servers.

    Return a finding for each error, and for text columns that compare otherwise here than in the source's SQL."""
    try:
        found = judged(topology, schemas)
    except TopologyError as error:
        return [Checkup(subject="queries", check="types", status="fault", found=error.message, remedy=error.hint)]
    return [
        Checkup(subject=f"table {name}", check="collation", status="warning", found=what, remedy=remedy)
        for name, warnings in found.items()
        for what, remedy in warnings
    ]

"""List the tables of streams, which have no catalog: those that the policy names. Syslog has one table, `messages`."""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from cdc.model.errors import TailorbirdError
from cdc.model.filters import TableRule
from cdc.model.schema import TableId
from ingest.agent.policy import LocalConnection
from ingest.agent.policy_check import ServerDatabase
from ingest.fleet.catalog import DatabaseSeen, TableSeen
from ingest.maxscale.tcp_upstream import UpstreamSource
from ingest.syslog.rows import COLUMNS, TABLE

log = structlog.get_logger()


def seen(local: LocalConnection, agent: str) -> Iterator[DatabaseSeen]:
    """Implements `catalogs.seen`. Columns of topics and of a MaxScale are unknown until they are captured."""
    columns = COLUMNS if local.type == "syslog" else ()
    for database in local.databases:
        tables = [
            TableSeen(name=name, rows=None, columns=tuple(one for one in columns if allowed.shows(one[0])))
            for name in _names(local, database)
            if (allowed := local.table(database, name)) is not None
        ]
        yield DatabaseSeen(
            agent=agent, connection=local.alias, database=database, tables=tuple(tables), type=local.type
        )  # fmt: skip


def databases_of(local: LocalConnection) -> Iterator[ServerDatabase]:
    """Implements `catalogs.databases_of`. A MaxScale is asked for the columns of each table."""
    for database in local.databases:
        tables = {name: _columns(local, database, name) for name in _names(local, database)}
        yield ServerDatabase(name=database, tables=tables, names_columns=True)


def _names(local: LocalConnection, database: str) -> list[str]:
    return [TABLE] if local.type == "syslog" else list(local.databases[database].tables)


def _columns(local: LocalConnection, database: str, name: str) -> tuple[str, ...] | None:
    if local.type == "syslog":
        return tuple(column for column, _ in COLUMNS)
    if local.type == "kafka":
        return None
    table = TableId(source=local.alias, database=database, table=name)
    try:
        found = UpstreamSource(local.source()).described(table, TableRule())
    except TailorbirdError as error:  # other tables are listed nevertheless
        log.warning("cannot read the columns", table=table.name, why=str(error))
        return None
    return tuple(column.name for column in found.columns)

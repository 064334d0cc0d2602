"""Read the tables and columns of a polled database that the policy allows to leave the host, over SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.agent.policy import LocalConnection
from ingest.agent.policy_check import ServerDatabase
from ingest.fleet.catalog import DatabaseSeen, TableSeen
from ingest.poll.sql_tables import sql_tables


def seen(local: LocalConnection, agent: str) -> Iterator[DatabaseSeen]:
    """Implements `catalogs.seen`. Numbers of rows are unknown: SQLAlchemy reads no estimates."""
    for schema, tables in sql_tables(local.source(), local.databases):
        found = []
        for name, columns in tables.items():
            allowed = local.table(schema, name)
            if allowed is not None:
                shown = tuple((column, kind) for column, kind in columns if allowed.shows(column))
                found.append(TableSeen(name=name, rows=None, columns=shown))
        yield DatabaseSeen(
            agent=agent, connection=local.alias, database=schema, tables=tuple(found), type=local.type
        )  # fmt: skip


def databases_of(local: LocalConnection) -> Iterator[ServerDatabase]:
    """Implements `catalogs.databases_of`. A query names its columns, as a log would."""
    for schema, tables in sql_tables(local.source(), local.databases):
        names = {name: tuple(column for column, _ in columns) for name, columns in tables.items()}
        yield ServerDatabase(name=schema, tables=names, names_columns=True)

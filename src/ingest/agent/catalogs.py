"""Read the catalogs of an agent's connections, by type. Each type imports its client only when it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cdc.model.extras import extras_named
from ingest.agent.policy import LocalConnection
from ingest.fleet.catalog import DatabaseSeen

if TYPE_CHECKING:
    from ingest.agent.policy_check import ServerDatabase  # it parses SQL, which is slow to import


def seen(local: LocalConnection, agent: str) -> Iterator[DatabaseSeen]:
    """Yield each database of a connection: its tables with estimated row counts, and the columns that may leave the
    host.

    Raises Retriable if the server is unavailable, UsageError if it refuses the login.
    """
    if local.is_postgres:
        from ingest.agent import pg_catalog

        return pg_catalog.seen(local, agent)
    if local.type == "sql":
        with extras_named("poll"):
            from ingest.agent import sql_catalog

        return sql_catalog.seen(local, agent)
    if local.is_stream:
        from ingest.agent import tcp_stream_catalog

        return tcp_stream_catalog.seen(local, agent)
    from ingest.agent import mysql_catalog

    return mysql_catalog.seen(local, agent)


def databases_of(local: LocalConnection) -> Iterator[ServerDatabase]:
    """Yield the names of tables and columns of each database of a connection, whatever the policy says of them.

    They are for the owner of the host only. Raises Retriable and UsageError as `seen`.
    """
    if local.is_postgres:
        from ingest.agent import pg_catalog

        return pg_catalog.databases_of(local)
    if local.type == "sql":
        with extras_named("poll"):
            from ingest.agent import sql_catalog

        return sql_catalog.databases_of(local)
    if local.is_stream:
        from ingest.agent import tcp_stream_catalog

        return tcp_stream_catalog.databases_of(local)
    from ingest.agent import mysql_catalog

    return mysql_catalog.databases_of(local)

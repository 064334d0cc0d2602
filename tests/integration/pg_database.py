"""`CapturedDatabase` for PostgreSQL: a database of a test, and capture processes that write to Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from ingest.postgres.messages import lsn_of
from tests.integration.conftest import CapturedDatabase, Row, servers
from tests.support.pg_captured import topology_text
from tests.support.pg_servers import PgServer
from tests.support.waiting import wait_for


@dataclass
class PgDatabase(CapturedDatabase):
    """A PostgreSQL database of a test; `sql` and `connection` log in as the owner of the data."""

    server: PgServer = field(kw_only=True)

    def connection(self) -> Any:
        return self.server.session(self.name)

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Lock nothing: a lock that delays a SELECT also delays the publication, without which a capture cannot
        begin."""
        yield

    @staticmethod
    def by_hand(connected: Any) -> None:
        connected.autocommit = False

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with self.server.session(self.name) as connected:
            for statement in statements:
                cursor = connected.execute(statement)
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def topic(self, table: str) -> str:
        return change_topic(self.name, TableId(source="shop", database="public", table=table))

    def caught_up(self) -> None:
        ((end,),) = self.sql("SELECT pg_current_wal_insert_lsn()::text")
        self.sql("SELECT pg_logical_emit_message(true, 'test', '')")

        def covered() -> bool:
            position: Row | None = self.position()
            if position is None or position["snapshot"] != "done" or position.get("state", {}).get("snapshots"):
                return False
            return "open" not in position and bool(position["position"]["pos"] >= lsn_of(end))

        wait_for(covered, "the capture does not catch up", seconds=180)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for consumer in self._consumers.values():
            consumer.close()
        with self.server.session() as connected:
            connected.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


def make(server: PgServer, name: str, file: Any, *tables: str, extra: str = "") -> PgDatabase:
    """Create an empty database and the topology that captures it into Kafka."""
    with server.session() as connected:
        connected.execute(f"CREATE DATABASE {name} OWNER app")
    text = topology_text(server, name, f"[{', '.join(tables)}]", extra)
    file.write_text(text.replace("tables:\n  wide", f"log: {{bootstrap_servers: '{servers()}'}}\ntables:\n  wide"))
    return PgDatabase(name, file, tables, server=server)

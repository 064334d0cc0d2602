"""A PostgreSQL server for random databases: its sessions, its rows, and the log position a capture must reach."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.postgres.messages import lsn_of
from ingest.records.capture_interfaces import Checkpoint
from tests.databases.cases import Line
from tests.databases.known import avoided
from tests.databases.mysql_shown import as_json
from tests.databases.pg_kinds import MADE
from tests.databases.pg_shown import shown
from tests.databases.pg_traffic import PgTraffic
from tests.databases.shown import Cell, ShownColumn, ShownTable
from tests.support.pg_servers import PgServer

_COPIED = re.compile(r" '@([0-9a-f]*)'$")


@dataclass
class PgDatabaseServer:
    """One running server; each run of cases has its own database there."""

    name: str
    server: PgServer
    made: int = 0

    def database(self) -> PgRandomDatabase:
        """Create a database with the types that the cases use."""
        self.made += 1
        found = PgRandomDatabase(self, f"d{self.made}")
        with self.server.session() as connected:
            connected.execute(f"CREATE DATABASE {found.name} OWNER app")
        with self.server.session(found.name) as connected:
            for statement in MADE:
                connected.execute(statement)
        return found

    def stop(self) -> None:
        """Stop the server."""
        self.server.kill()


def serve(name: str, folder: Path) -> PgDatabaseServer:
    """Start a server, given its public name, in a zone other than UTC."""
    flags = {"max_connections": "300", "max_prepared_transactions": "100", "timezone": "Asia/Kolkata"}
    server = PgServer(folder, name.removeprefix("postgresql-"), flags)
    server.start()
    return PgDatabaseServer(name, server)


@dataclass
class PgRandomDatabase:
    """A database, and the sessions of the cases in it."""

    at: PgDatabaseServer
    name: str
    _sessions: dict[tuple[str, int], Any] = field(default_factory=dict)

    @property
    def refuses(self) -> bool:
        """Return whether rows with odd values become dead letters."""
        return "odd values" in avoided(self.at.name)

    def traffic(self, random: Random, prefix: str) -> PgTraffic:
        """Return the generator of one case."""
        return PgTraffic(random, int(self.at.name.rpartition("-")[2]), prefix, avoided(self.at.name))

    def topology(self, log: str = "") -> Topology:
        """Return a topology that captures the whole database."""
        return read_topology(self.topology_text(log), file="random.yml", environ={})

    def topology_text(self, log: str = "", name: str = "") -> str:
        """Return its text; `log` is the block of the log, `name` the topology's."""
        return (
            f"name: {name or f'random_{self.name}'}\nsources:\n  s: {{type: postgresql, hostname: 127.0.0.1, "
            f"port: {self.at.server.port}, username: cdc, password: cdc, dbname: {self.name}, filter_policy: accept}}\n"
            f"{log}tables:\n  w: {{query: SELECT a.id FROM s.x a, row_key: [id]}}\n"
        )

    def run(self, case: str, line: Line) -> str:
        """Run a statement in a session of a case; return "" if the server accepted it, otherwise its error."""
        place = case, line.session
        try:
            if place not in self._sessions:
                self._sessions[place] = psycopg.connect(
                    host="127.0.0.1", port=self.at.server.port, user="app", password="app", dbname=self.name,
                    autocommit=True, options="-c lock_timeout=1000 -c statement_timeout=20000",
                )  # fmt: skip
            found = _COPIED.search(line.sql)
            if found is not None and line.sql.startswith("COPY "):
                with self._sessions[place].cursor().copy(line.sql[: found.start()]) as copy:
                    copy.write(bytes.fromhex(found[1]))
            else:
                self._sessions[place].execute(line.sql.encode())
        except psycopg.Error as error:
            if self._sessions[place].broken:
                del self._sessions[place]
            return str(error)
        return ""

    def end_case(self, case: str) -> None:
        """End all sessions of a case."""
        for place in list(self._sessions):
            if place[0] == case:
                self._sessions.pop(place).close()

    def close(self) -> None:
        """End all sessions."""
        for place in list(self._sessions):
            self._sessions.pop(place).close()

    def settle(self) -> None:
        """Roll back all prepared transactions, after all cases."""
        with self.at.server.session(self.name) as connected:
            asked = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            for (name,) in connected.execute(asked).fetchall():
                connected.execute(f"ROLLBACK PREPARED '{name}'")

    def shown(self) -> dict[str, ShownTable]:
        """Return the server's rows."""
        with self.at.server.session(self.name) as connected:
            return shown(connected)

    def drop(self) -> None:
        """Remove the database and the capture's objects."""
        with self.at.server.session() as connected:
            asked = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
            with contextlib.suppress(psycopg.Error):
                connected.execute(asked, (self.name,))
            connected.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")

    def end_of_log(self) -> Any:
        """Return the present end of the log."""
        with self.at.server.session(self.name) as connected:
            ((end,),) = connected.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
            connected.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        return lsn_of(end)

    @staticmethod
    def reached(end: Any, checkpoint: Checkpoint) -> bool:
        """Return whether a checkpoint covers an end of the log."""
        return bool(checkpoint.position.pos >= end)

    @staticmethod
    def canonical(column: ShownColumn, value: Any) -> Cell:
        """Convert a published value to the form in which the server's values are compared."""
        if value is None:
            return None
        if column.kind.endswith("[]"):
            return "json", repr(_numbers(json.loads(value)))
        if isinstance(value, dict):
            x, y = struct.unpack("<dd", base64.b64decode(value["wkb"])[5:])
            return "point", f"{x} {y}"
        if column.kind in ("json", "jsonb"):
            return as_json(value)
        if column.kind in ("real", "double precision") and isinstance(value, int | float):
            return float(value)
        found: Cell = value
        return found


def _numbers(found: Any) -> Any:
    if isinstance(found, list):
        return [_numbers(one) for one in found]
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else found

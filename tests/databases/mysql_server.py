"""A MySQL or MariaDB server for random databases: its sessions, its rows, and the log position a capture must reach."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pymysql

from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.records.capture_interfaces import Checkpoint
from tests.databases.cases import Line
from tests.databases.known import avoided
from tests.databases.mysql_shown import as_json, published_geometry, shown
from tests.databases.mysql_traffic import MySqlTraffic
from tests.databases.shown import Cell, ShownColumn, ShownTable
from tests.ingest.binlog.binlog_servers import Server, start

FLAVOURS = {
    "mysql-5.7": "mysql57", "mysql-8.0": "mysql80", "mysql-9": "mysql9",
    "mariadb-10.11": "maria10", "mariadb-11.4": "maria11",
}  # fmt: skip
_INIT = "SET innodb_lock_wait_timeout = 1, lock_wait_timeout = 2"
_LOADED = re.compile(r"'@([0-9a-f]*)'")


@dataclass
class MySqlServer:
    """One running server; each run of cases has its own database there."""

    name: str
    server: Server
    made: int = 0

    def database(self) -> MySqlDatabase:
        """Create a new, empty database."""
        self.made += 1
        found = MySqlDatabase(self, f"d{self.made}")
        with self.server.session() as connected, connected.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {found.name} CHARACTER SET utf8mb4")
            cursor.execute("CREATE DATABASE IF NOT EXISTS elsewhere")
        return found

    def stop(self) -> None:
        """Stop the server."""
        self.server.stop()


def serve(name: str, folder: Path, *more: str) -> MySqlServer:
    """Start a server, given its public name, in a zone other than UTC, with more flags."""
    flags = ["--max-connections=1000", "--local-infile=ON", "--default-time-zone=+02:00", "--table-open-cache=4000"]
    if not FLAVOURS[name].startswith("maria"):
        flags += ["--log-bin-trust-function-creators=ON"]
    if FLAVOURS[name] == "mysql57":
        flags += ["--explicit-defaults-for-timestamp=ON"]
    return MySqlServer(name, start(FLAVOURS[name], folder, *flags, *more))


@dataclass
class MySqlDatabase:
    """A database, and the sessions of the cases in it."""

    at: MySqlServer
    name: str
    user: str = "cdc"  # of the captures
    _sessions: dict[tuple[str, int], Any] = field(default_factory=dict)

    @property
    def refuses(self) -> bool:
        """Return whether rows with odd values become dead letters."""
        return "odd dates" in avoided(self.at.name)

    def traffic(self, random: Random, prefix: str) -> MySqlTraffic:
        """Return the generator of one case."""
        return MySqlTraffic(random, FLAVOURS[self.at.name], prefix, avoided(self.at.name))

    def topology(self, log: str = "") -> Topology:
        """Return a topology that captures the whole database."""
        return read_topology(self.topology_text(log), file="random.yml", environ={})

    def topology_text(self, log: str = "", name: str = "") -> str:
        """Return its text; `log` is the block of the log, `name` the topology's."""
        server = self.at.server
        kind = "mariadb" if server.maria else "mysql"
        return (
            f"name: {name or f'random_{self.name}'}\nsources:\n"
            f"  s: {{type: {kind}, hostname: 127.0.0.1, port: {server.port}, "
            f"username: {self.user}, password: cdc, database: {self.name}, filter_policy: accept, ssl_mode: disabled, "
            f"server_id: {900 + self.at.made}}}\n"
            f"{log}tables:\n  w: {{query: SELECT a.id FROM s.x a, row_key: [id]}}\n"
        )

    def demote(self) -> None:
        """Let captures log in as a new user, who has no privileges yet."""
        self.user = f"least_{self.name}"
        self.execute(f"CREATE USER {self.user}@'%' IDENTIFIED BY 'cdc'")

    def execute(self, sql: str) -> None:
        """Run a statement as the administrator."""
        with self.at.server.session() as connected, connected.cursor() as cursor:
            cursor.execute(sql)

    def run(self, case: str, line: Line) -> str:
        """Run a statement in a session of a case; return "" if the server accepted it, otherwise its error."""
        place = case, line.session
        if line.sql == "--- new session":
            self.end(*place)
            return ""
        try:
            if place not in self._sessions:
                self._sessions[place] = self.at.server.session(
                    database=self.name, local_infile=True, init_command=_INIT, read_timeout=60, ssl_disabled=True
                )
            with self._sessions[place].cursor() as cursor, _files(line.sql) as sql:
                cursor.execute(sql)
                cursor.fetchall()
        except pymysql.err.MySQLError as error:
            if not self._sessions[place].open:
                del self._sessions[place]
            return str(error)
        return ""

    def end(self, case: str, session: int) -> None:
        """End a session at once."""
        found = self._sessions.pop((case, session), None)
        if found is not None:
            with contextlib.suppress(pymysql.err.MySQLError):
                found.close()

    def end_case(self, case: str) -> None:
        """End all sessions of a case."""
        for one, session in list(self._sessions):
            if one == case:
                self.end(one, session)

    def close(self) -> None:
        """End all sessions; the database stays for inspection."""
        for case, session in list(self._sessions):
            self.end(case, session)

    def settle(self) -> None:
        """Roll back all prepared transactions, after all cases."""
        with self.at.server.session(use_unicode=False) as connected, connected.cursor() as cursor:  # any bytes
            cursor.execute("XA RECOVER")
            for form, first, second, data in cursor.fetchall():
                with contextlib.suppress(pymysql.err.MySQLError):
                    cursor.execute(
                        f"XA ROLLBACK x'{data[:first].hex()}',x'{data[first : first + second].hex()}',{form}"
                    )

    def shown(self) -> dict[str, ShownTable]:
        """Return the server's rows."""
        with self.at.server.session() as connected, connected.cursor() as cursor:
            return shown(cursor, self.name)

    def drop(self) -> None:
        """Remove the database."""
        with self.at.server.session() as connected, connected.cursor() as cursor:
            cursor.execute("SET foreign_key_checks = 0")
            cursor.execute(f"DROP DATABASE {self.name}")

    def end_of_log(self) -> Any:
        """Return the present end of the log: GTIDs."""
        with self.at.server.session() as connected, connected.cursor() as cursor:
            cursor.execute(
                "SELECT @@GLOBAL.gtid_binlog_pos" if self.at.server.maria else "SELECT @@GLOBAL.gtid_executed"
            )
            return cursor.fetchone()[0].replace("\n", "")

    def reached(self, end: Any, checkpoint: Checkpoint) -> bool:
        """Return whether a checkpoint covers an end of the log."""
        have = checkpoint.position.gtid_set
        if self.at.server.maria:
            return all(_covers(have, gtid) for gtid in end.split(",") if gtid)
        with self.at.server.session() as connected, connected.cursor() as cursor:
            cursor.execute("SELECT GTID_SUBTRACT(%s, %s)", (end, have))
            return bool(cursor.fetchone()[0] == "")

    @staticmethod
    def canonical(column: ShownColumn, value: Any) -> Cell:
        """Convert a published value to the form in which the server's values are compared."""
        if value is None:
            return None
        if isinstance(value, dict):
            return published_geometry(value)
        if column.kind == "json":
            return as_json(value)
        if column.kind in ("float", "double") and isinstance(value, int | float):
            return float(value)
        if column.kind == "decimal" and "zerofill" in column.column_type:
            return str(value).lstrip("0") if str(value).lstrip("0")[:1].isdigit() else "0" + str(value).lstrip("0")
        found: Cell = value
        return found


def _covers(have: str, gtid: str) -> bool:
    domain, _, number = gtid.split("-")
    for one in have.split(","):
        there, _, reached = one.partition("-")
        if there == domain and int(reached.rpartition("-")[2]) >= int(number):
            return True
    return False


@contextlib.contextmanager
def _files(sql: str) -> Iterator[str]:
    """Create the file that a statement needs, given by its bytes."""
    found = _LOADED.search(sql)
    if found is None or not sql.startswith("LOAD DATA"):
        yield sql
        return
    with tempfile.NamedTemporaryFile(suffix=".tsv") as file:
        file.write(bytes.fromhex(found[1]))
        file.flush()
        yield sql.replace(found[0], f"'{file.name}'")

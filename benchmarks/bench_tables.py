"""Measure how long many tables take to show their rows, and how much memory, in one process or one per table.

    make bench-tables
    make bench-tables ARGS="--tables 20 --isolation shared"

Needs the servers (`tailorbird stack up`). Creates a database with that many small tables; each is joined with the first
and written to HBase. The pipeline of `run` captures and joins them. Prints the time from the joins' start until the
last table has written all its rows, the memory (PSS) of all join processes, their CPU usage while idle, and the time of
a second start, after which a changed row of every table must be written.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pymysql

from benchmarks.decode.proc_peers import machine
from benchmarks.ending import end
from cdc.process.file_topology import load_topology
from tailorbird.cli.change.cli_apply import provision
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tailorbird.operate.pipeline.proc_pipeline import Part, Pipeline
from tailorbird.operate.probes.proc_steal import CpuSteal
from tailorbird.operate.status.http_metrics import read_metrics

_ROWS = 500
_TIMEOUT = 900.0
_IDLE = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--isolation", choices=("shared", "process"), default="shared")
    options = parser.parse_args(arguments)
    print(machine())
    cpu_steal = CpuSteal()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.tables, options.isolation)
        try:
            bench.run()
        finally:
            bench.close()
    print(f"- CPU steal during the run: {100 * cpu_steal.share():.1f}%")
    return 0


class Bench:
    """The benchmark with its database, a topology over it, and the pipeline."""

    def __init__(self, folder: Path, tables: int, isolation: str) -> None:
        self.name = f"tables_{uuid.uuid4().hex[:8]}"
        self.tables = [f"t{number}" for number in range(tables)]
        port = os.environ.get
        self.server = pymysql.connect(
            host="127.0.0.1",
            port=int(port("TAILORBIRD_PORT_MYSQL_SHOP", "3307")),
            user=LOAD_LOGIN.user,
            password=LOAD_LOGIN.password,
            autocommit=True,
        )
        self._fill()
        file = folder / "tables.yml"
        queries = "".join(
            f"  {table}:\n    query: SELECT a.id, a.name, b.name AS other FROM s.{table} a"
            f" LEFT JOIN s.t0 b ON b.id = a.other\n    row_key: [id]\n"
            for table in self.tables
        )
        server_id = 10_000 + time.time_ns() % 1_000_000_007
        file.write_text(f"""name: {self.name}
sources:
  s: {{type: mysql, hostname: 127.0.0.1, port: {self.server.port}, username: cdc, password: cdc,
      database: {self.name}, tables: [{", ".join(self.tables)}], server_id: {server_id}}}
log: {{bootstrap_servers: '127.0.0.1:{port("TAILORBIRD_PORT_KAFKA", "9092")}'}}
hbase:
  thrift: 127.0.0.1:{port("TAILORBIRD_PORT_THRIFT", "9090")}
  zookeeper: 127.0.0.1:{port("TAILORBIRD_PORT_ZOOKEEPER", "2181")}
joins: {{isolation: {isolation}}}
tables:
{queries}""")
        topology = load_topology(str(file))
        list(provision(topology))
        self.pipeline = Pipeline(topology, home=folder)
        self.joins = [part for part in self.pipeline.parts if part.stage == "join"]
        self.isolation = isolation

    def run(self) -> None:
        """Measure and print a line per figure."""
        self.pipeline.start_part("capture s")
        first = self._timed(_ROWS)
        print(f"- {len(self.tables)} tables, isolation {self.isolation}: all rows of all tables after {first:.1f} s")
        print(f"- memory of the joins: {sum(map(self._memory, self.joins)) / 1024:.0f} MiB (PSS)")
        before = sum(map(self._ticks, self.joins))
        time.sleep(_IDLE)
        ticks = sum(map(self._ticks, self.joins)) - before
        print(f"- CPU cores used while idle: {ticks / os.sysconf('SC_CLK_TCK') / _IDLE:.2f}")
        for part in self.joins:
            self.pipeline.kill(part.name)
        with self.server.cursor() as cursor:
            for table in self.tables:
                cursor.execute(f"UPDATE {self.name}.{table} SET name = 'changed' WHERE id = 3")
        print(f"- second start, after SIGKILL, until every table shows its change: {self._timed(1):.1f} s")

    def _timed(self, rows: int) -> float:
        """Start the joins; return the seconds until each table has written `rows` rows."""
        began = time.monotonic()
        for part in self.joins:
            self.pipeline.start_part(part.name)
        ports = [port for part in self.joins for port in part.serves.values()]
        _wait(lambda: all(_written(port) >= rows for port in ports), self.pipeline.must_run)
        return time.monotonic() - began

    def _fill(self) -> None:
        with self.server.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.name}")
            for table in self.tables:
                cursor.execute(f"CREATE TABLE {self.name}.{table} (id INT PRIMARY KEY, name VARCHAR(20), other INT)")
                values = [(row, f"row {row}", row % 50) for row in range(_ROWS)]
                cursor.executemany(f"INSERT INTO {self.name}.{table} VALUES (%s, %s, %s)", values)

    def _processes(self, part: Part) -> list[int]:
        """Return the process ids of a part and its children, which are one session."""
        leader = self.pipeline.pid(part.name)
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                session = int(stat.read_text().rpartition(")")[2].split()[3])
            except OSError:  # the process has ended
                continue
            if session == leader:
                found.append(int(stat.parent.name))
        return found

    def _memory(self, part: Part) -> int:
        """Return the memory in KiB; shared pages count once."""
        texts = [_read(Path(f"/proc/{pid}/smaps_rollup")) for pid in self._processes(part)]
        lines = [line for text in texts for line in text.splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))

    def _ticks(self, part: Part) -> int:
        stats = [_read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split() for pid in self._processes(part)]
        return sum(int(fields[11]) + int(fields[12]) for fields in stats if fields)

    def close(self) -> None:
        """Stop everything and drop the database."""
        self.pipeline.stop()
        with self.server.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {self.name}")
        self.server.close()


def _read(file: Path) -> str:
    """Return the text of a file in /proc; empty if the process has ended."""
    try:
        return file.read_text()
    except OSError:
        return ""


def _written(port: int) -> float:
    return read_metrics(port).get("tailorbird_joined_rows_total", 0)


def _wait(condition: Callable[[], bool], check: Callable[[], None]) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise SystemExit(f"no result within {_TIMEOUT:.0f} s; are the servers running (`tailorbird stack up`)?")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(end(main))

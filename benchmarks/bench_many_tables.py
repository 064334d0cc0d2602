"""Measure what capture costs with few and with many tables: processor seconds and memory.

    make bench-many-tables
    make bench-many-tables ARGS="--tables 10 20000 --columns 20 --policy accept"
    make bench-many-tables ARGS="--servers mysql postgresql"

Without `--servers`, no server is needed. A scripted source has that many tables, and a log in memory takes the records.
Each number of tables runs in a process of its own. The snapshots of all tables are running and never advance; so each
transaction takes the longest way. With `--servers`, see `benchmarks.capture.many_tables`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.capture.many_tables_run import DEFAULTS, PARTS, measure_servers
from benchmarks.decode.proc_peers import machine
from benchmarks.ending import end
from cdc.model.event import Position
from cdc.model.naming import change_topic, history_topic, schemas_topic
from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import dialect_of
from ingest.events.foreign_keys import ForeignKeys
from ingest.events.log_events import (
    CAUGHT_UP,
    LogEvent,
    RowsLogged,
    StatementLogged,
    TransactionBegan,
    TransactionEnded,
)
from ingest.events.tables import Tables
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.capture_interfaces import Checkpoint, ServerTables, Stream
from ingest.records.checkpoint_changes import changes_bytes
from ingest.records.chunk_requests import Chunk, ChunkRequest
from ingest.records.position_writer import PositionWriter
from ingest.records.records import Recorder, checkpoint_value
from ingest.run_capture import tables_of

_UUID = "1e4be0df-e594-11f1-ae82-02fc00000001"
_ROWS = {
    "begin": "start of capture, s",
    "begin_mib": "memory after the start, MiB",
    "transaction": "transaction during the snapshot, ms",
    "alter": "ALTER TABLE, ms",
    "grant": "GRANT, ms",
    "flush": "FLUSH PRIVILEGES, ms",
    "captures": "Source.captures, µs",
    "commit": "checkpoint for Kafka, ms",
    "commit_bytes": "the same, bytes",
    "whole": "every 501st of them, ms",
    "whole_bytes": "the same, bytes",
    "gateway": "checkpoint for a gateway, ms",
    "gateway_bytes": "the same, bytes",
    "restart": "restart, s",
    "restart_mib": "memory after the restart, MiB",
}


def _id(number: int) -> TableId:
    return TableId(source="s", database="d", table=f"table_{number}")


def catalog_of(tables: int, columns: int) -> Catalog:
    """Return a server's catalog: tables with a key and further columns, each with objects of its own."""

    def column(number: int) -> ColumnDefinition:
        return ColumnDefinition(
            name=f"column_{number}", column_type=f"varchar({100 + number})", nullable=True, charset="utf8mb4"
        )

    def table() -> TableDefinition:
        key = ColumnDefinition(name="id", column_type="int", nullable=False, charset=None)
        return TableDefinition(
            columns=(key, *map(column, range(1, columns))),
            keys=(Key(name="PRIMARY", kind="primary", columns=("id",)),),
            charset="utf8mb4",
            engine="InnoDB",
        )

    return Catalog(databases={"d": "utf8mb4"}, tables={("d", f"table_{n}"): table() for n in range(tables)})


@dataclass
class ScriptedServer:
    """A source whose log contains what is measured; `figures` are seconds per transaction, by name."""

    catalog: Catalog
    repeat: int
    measured: Mapping[str, Callable[[int], LogEvent]]
    figures: dict[str, float] = field(default_factory=dict)
    over: bool = False
    ended: int = 0

    def head(self) -> Position:
        """Return the end of the log."""
        return Position(file="f", pos=4, gtid_set="", sequence=0)

    def seen(self) -> ServerTables:
        """Return the tables."""
        return ServerTables(catalog=self.catalog, dialect=dialect_of("mysql"))

    def release(self, position: Position) -> None:
        """Keep the log."""

    def foreign_keys(self) -> ForeignKeys:
        """Return no foreign keys."""
        return ForeignKeys()

    def holds(self, position: Position) -> bool:
        """Return that the log contains everything."""
        return True

    @contextmanager
    def chunks(self) -> Iterator[ScriptedServer]:
        """Return a reader that never has read a chunk."""
        yield self

    def request(self, request: ChunkRequest) -> None:
        """Never read the chunk."""

    def ready(self) -> list[Chunk]:
        """Return no chunks."""
        return []

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        """Return the log."""
        yield self

    @property
    def place(self) -> tuple[str, int]:
        """Return the end of the log."""
        return "f", self.ended or 4

    @property
    def state(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    @property
    def gtid_set(self) -> str:
        """Return the transactions that ended."""
        return f"{_UUID}:1-{self.ended}" if self.ended else ""

    def reached(self, position: Position) -> bool:
        """Return that the log was read up to any position."""
        return True

    def __iter__(self) -> Iterator[LogEvent]:
        yield CAUGHT_UP
        self.figures["begun"] = time.process_time()
        for name, event in self.measured.items():
            began = 0.0
            for number in (-1, *range(self.repeat)):  # the first one warms up
                if number == 0:
                    began = time.process_time()
                self.ended += 1
                yield TransactionBegan(f"{_UUID}:{self.ended}", 10**15 + self.ended, 1, "f", self.ended)
                yield event(number)
                yield TransactionEnded("f", self.ended)
                yield CAUGHT_UP
            self.figures[name] = (time.process_time() - began) / self.repeat
        self.over = True
        yield CAUGHT_UP


def _run(source: Source, server: ScriptedServer, broker: Broker) -> float:
    """Run a session, and return the processor seconds until it follows the log."""
    began = time.process_time()
    Session(
        source=server, log=MemoryLog(broker, schemas_topic("top"), history_topic("top"), every=500),
        recorder=Recorder("top"), tables=tables_of(source), mode="initial", clock=time.time,
        stopped=lambda: server.over, observer=Observer(),
    ).run()  # fmt: skip
    return server.figures["begun"] - began


def measure(tables: int, columns: int, policy: str, repeat: int) -> dict[str, float]:
    """Return all figures for a number of tables."""
    listed = tuple(map(_id, range(tables))) if policy == "drop" else ()
    source = Source(
        name="s", type="mysql", hostname="localhost", port=1, username="u", password="", database="d", tables=listed,
        server_id=1, snapshot_mode="initial", filter_policy="drop" if policy == "drop" else "accept",
    )  # fmt: skip
    server = ScriptedServer(
        catalog_of(tables, columns),
        repeat,
        {
            "transaction": lambda n: RowsLogged(_id(1), "insert", [{"id": n, "column_1": "v"}], True, "f", 4),
            "alter": lambda n: StatementLogged("d", f"ALTER TABLE table_2 ADD COLUMN added_{n + 1} INT", 1, 0),
            "grant": lambda n: StatementLogged("d", "GRANT SELECT ON d.* TO u", 1, 0),
            "flush": lambda n: StatementLogged("d", "FLUSH PRIVILEGES", 1, 0),
        },
    )
    base, broker = _resident(), Broker()
    found: dict[str, float] = {"begin": _run(source, server, broker), "begin_mib": _resident() - base}
    found |= {name: 1000 * server.figures[name] for name in server.measured}
    found["captures"] = 1e6 * _timed(lambda: source.captures(_id(tables - 1)), 1000)
    before = broker.checkpoints[-1]
    name = next(iter(before.state["snapshots"]))
    progress = before.state["snapshots"].put(name, {"rows": 1})
    after = replace(before, state={**before.state, "snapshots": progress})
    ends = {change_topic("top", _id(number)): {0: 0} for number in range(tables)}
    writer = PositionWriter("s", b"top.s")
    writer.record(before, ends, (), 0)
    writer.committed(before, 0)
    encoders: dict[str, Callable[[], bytes]] = {
        "commit": lambda: writer.record(after, ends, {change_topic("top", _id(0))}, 0)[1],
        "whole": lambda: checkpoint_value(after, "s", ends),
        "gateway": lambda: changes_bytes(before, after, "s"),
    }
    for what, encode in encoders.items():
        found[what], found[f"{what}_bytes"] = 1000 * _timed(encode, 3), len(encode())
    again = ScriptedServer(server.catalog, 1, {})
    found["restart"], found["restart_mib"] = _run(source, again, broker), _resident() - base
    return found


def _timed(call: Callable[[], object], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - began) / times


def _resident() -> float:
    """Return the resident memory of this process in MiB."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-many-tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, nargs="+", help="default: 10, 1000 and 20000; with --servers by server")
    parser.add_argument("--columns", type=int, help="default: 4, and 20 with --servers")
    parser.add_argument("--policy", choices=("drop", "accept"), default="drop")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--servers", nargs="+", choices=tuple(DEFAULTS), help="measure on real servers instead")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure there")
    parser.add_argument("--own-settings", action="store_true", help="change topics have settings of their own")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.tables[0], options.columns, options.policy, options.repeat)))
        return 0
    if options.servers:
        print(f"{machine()}; {options.columns or 20} columns, processor time\n")
        counts = {kind: options.tables or numbers for kind, numbers in DEFAULTS.items()}
        defaults = not options.own_settings
        measure_servers(options.servers, counts, options.columns or 20, options.parts, defaults=defaults)
        return 0
    found: list[dict[str, float]] = []
    options.tables, options.columns = options.tables or [10, 1000, 20_000], options.columns or 4
    for count in options.tables:
        chosen = [f"--tables={count}", f"--columns={options.columns}", f"--policy={options.policy}"]
        command = [sys.executable, "-m", "benchmarks.bench_many_tables", "--one", *chosen, f"--repeat={options.repeat}"]
        found.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    print(f"{machine()}; {options.columns} columns, filter_policy {options.policy}, processor time\n")
    print("| | " + " | ".join(f"{count:,} tables" for count in options.tables) + " |")
    print("|---|" + "--:|" * len(found))
    for name, text in _ROWS.items():
        print(f"| {text} | " + " | ".join(f"{one[name]:,.{0 if 'bytes' in name else 3}f}" for one in found) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(end(main))

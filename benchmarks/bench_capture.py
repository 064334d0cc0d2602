"""Capture the same binlogs into Kafka with Tailorbird and with Debezium's engine, and print the ratios of their rates.

    make bench-capture
    make bench-capture ARGS="--rounds 1 --task oltp --json"

Each side starts where the changes begin and writes to its own topics on one broker. It is stopped when a read_committed
consumer can see all changes; each must then exist exactly once. The time is measured by the broker's clock, from the
first record to the one that completes 98 % of them. Then the same is done for a snapshot. Exit code 1: changes are
missing, or a required figure is not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.capture.kafka_topics import count, make_topic, timestamp_by_broker, wait_for_records
from benchmarks.capture.proc_captures import WatchedProcess, our_command, running, stage_costs
from benchmarks.capture.report import (
    SIDES,
    TASKS,
    Pass,
    Side,
    Stages,
    Task,
    as_json,
    document,
    missing,
    table,
    verdicts,
    where,
)
from benchmarks.decode.mysql_log import LogServer, serve_logs
from benchmarks.decode.proc_peers import check_tools, runtimes
from benchmarks.decode.workload import DATABASE, Shape, shape
from benchmarks.harness import options_of, output_of, report, run_benchmark, run_facts, warn_if_busy
from benchmarks.page import write_page
from cdc.model.artefacts import cache_folder
from cdc.model.errors import TailorbirdError
from cdc.model.event import Position
from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import make_topics
from ingest.records.capture_interfaces import Checkpoint
from tailorbird.devtools.demo.proc_debezium import debezium_command
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.proc_tools import find_java
from tailorbird.devtools.stack.progress import silent
from tailorbird.devtools.stack.settings import CAPTURE_LOGIN, Ports, StackSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The parameters of every pass of a run."""

    server: LogServer
    brokers: str
    java: list[str]
    shapes: dict[str, Shape]
    folder: Path
    idle: float

    def expected(self, task: Task, rows: int) -> dict[str, int]:
        """Return the changes by `op` that a pass must write."""
        if task == "snapshot":
            return {"r": rows}
        changes = self.shapes[task].changes
        parts = (0.5, 0.3, 0.2) if task == "bulk" else (0.5, 0.35, 0.15)
        return dict(zip("cud", (round(changes * part) for part in parts), strict=True))

    def one(self, task: Task, side: Side, turn: int) -> Pass:
        """Run one pass: prepare the topic, capture until all records exist, count them."""
        shape_name = "bulk" if task == "snapshot" else task
        rows = self.shapes["bulk"].changes * 3 // 10
        expected = self.expected(task, rows)
        prepare = self._ours if side == "tailorbird" else self._debezium
        command, topic = prepare(task, shape_name, turn)
        wanted = sum(expected.values()) + expected.get("d", 0)
        with running(side, command, self.folder / f"{side}-{task}.log") as watched:
            wait_for_records(self.brokers, topic, wanted, watched.alive, 300 + wanted / 200)
            idle = self._idle(side, task, watched)
        done = Pass(
            task=task,
            side=side,
            counted=count(self.brokers, topic),
            memory=watched.memory,
            cpu=watched.cpu,
            idle=idle,
        )
        if fault := missing(done, expected):
            raise TailorbirdError(fault)
        return done

    def _idle(self, side: Side, task: Task, watched: WatchedProcess) -> float | None:
        measured = self.idle and side == "tailorbird" and task == "oltp"
        return watched.idle(2.0, self.idle) if measured else None

    def _ours(self, task: Task, table_name: str, turn: int) -> tuple[list[str], str]:
        name = f"bench_{task}_{turn}"
        file = self.folder / f"{name}.yml"
        file.write_text(_topology(name, self.brokers, self.server.port, table_name, task))
        topology = read_topology(file.read_text(), file=str(file), environ={})
        source = topology.sources["bench"]
        topics = make_topics(topology, source)
        if task != "snapshot":
            place = self.server.places[table_name]
            position = Position(file=place.file, pos=place.position, gtid_set=place.gtids, sequence=0)
            log = KafkaLog(topology, source, topics)
            try:
                log.recover()
                log.commit(Checkpoint(position=position, snapshot="done", ts_ms=0))
            finally:
                log.close()
        topic = change_topic(name, TableId(source="bench", database=DATABASE, table=table_name))
        timestamp_by_broker(self.brokers, topic)
        return our_command(file), topic

    def _debezium(self, task: Task, table_name: str, turn: int) -> tuple[list[str], str]:
        topic = f"debezium.{DATABASE}.{table_name}"
        make_topic(self.brokers, topic)
        given: dict[str, object] = {
            "brokers": self.brokers,
            "port": self.server.port,
            "user": CAPTURE_LOGIN.user,
            "password": CAPTURE_LOGIN.password,
            "table": table_name,
        }
        if task != "snapshot":
            place = self.server.places[table_name]
            given |= {"file": place.file, "position": place.position, "gtids": place.gtids}
        return [*self.java, *(part for key, value in given.items() for part in (f"--{key}", str(value)))], topic


def _topology(name: str, brokers: str, port: int, table_name: str, task: Task) -> str:
    mode = "initial" if task == "snapshot" else "never"
    return (
        f"name: {name}\nlog: {{bootstrap_servers: '{brokers}'}}\nsources:\n"
        f"  bench: {{type: mysql, hostname: 127.0.0.1, port: {port}, username: {CAPTURE_LOGIN.user}, "
        f"password: {CAPTURE_LOGIN.password}, database: {DATABASE}, tables: [{table_name}], server_id: 9505, "
        f"snapshot_mode: {mode}, ssl_mode: disabled}}\n"
        f"tables:\n  t: {{query: SELECT t.id FROM bench.{table_name} t, row_key: [id]}}\n"
    )


def _stages(server: LogServer, shapes: tuple[Shape, ...], tasks: Sequence[Task], folder: Path) -> list[Stages]:
    """Measure the first stages of Tailorbird's capture by themselves."""
    found: list[Stages] = []
    folder.mkdir(parents=True, exist_ok=True)
    for one in (one for one in shapes if one.name in tasks):
        file = folder / f"stages_{one.name}.yml"
        file.write_text(_topology(f"stages_{one.name}", "127.0.0.1:1", server.port, one.table, one.name))
        costs = stage_costs(file, server.places[one.name], one.changes)
        report(
            f"{one.name}: {costs['decoded']:.1f} µs to decode a change, {costs['recorded']:.1f} µs with its envelope"
        )
        found.append(Stages(task=one.name, decoded=costs["decoded"], recorded=costs["recorded"]))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = options_of("bench-capture", __doc__, 2)
    parser.add_argument("--task", action="append", choices=TASKS, help="run only this task; may be repeated")
    parser.add_argument("--side", action="append", choices=SIDES, help="run only this side; may be repeated")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds of the idle measurement; 0: none")
    parser.add_argument(
        "--port", type=int, default=13500, help="port of the private MySQL; Kafka uses the next (default 13500)"
    )
    return run_benchmark(parser, arguments, _run)


def _run(options: argparse.Namespace, given: str) -> int:
    sides: list[Side] = [side for side in SIDES if not options.side or side in options.side]
    tasks: list[Task] = [task for task in TASKS if not options.task or task in options.task]
    cache = cache_folder(os.environ)
    java: list[str] = []
    if "Debezium" in sides:
        check_tools(["Debezium"])
        report("building the Debezium side")
        java = debezium_command(cache, find_java(cache, os.environ, silent))
    warn_if_busy()
    shapes = (shape("bulk", options.bulk), shape("oltp", options.oltp))
    passes: list[Pass] = []
    with serve_logs(cache, shapes, options.port, report) as server:
        versions = f"MySQL {server.version}, Kafka 4.3.1, Debezium 3.6.1, {runtimes(['Debezium'])}"
        facts = run_facts("bench-capture", given, versions)
        for turn in range(options.rounds):
            for task in tasks:
                for side in sides:
                    # a new broker for each pass, so that no side is slowed down by another's data on disk
                    with _broker(cache, options.port + 1) as (brokers, folder):
                        bench = Bench(
                            server=server,
                            brokers=brokers,
                            java=java,
                            shapes={one.name: one for one in shapes},
                            folder=folder,
                            idle=options.idle if turn == 0 else 0.0,
                        )
                        done = bench.one(task, side, turn)
                    passes.append(done)
                    report(f"{task}: round {turn + 1} of {options.rounds}, {side}: {done.counted.rate:,.0f} changes/s")
        stages = _stages(server, shapes, tasks, _home(cache)) if "tailorbird" in sides else []
    complete = (tasks, sides) == (list(TASKS), list(SIDES))
    output = output_of(options, "capture.md", full=complete and options.rounds >= 2)
    if output:
        write_page(output, document(passes, stages, facts))
    if options.json:
        print(json.dumps(as_json(passes, stages, facts), ensure_ascii=False, indent=2))
    else:
        print(*(f"{name}: {value}" for name, value in facts.items()), *table(passes), sep="\n")
        print(*where(passes, stages), sep="\n")
        print(*(line for line, _ in verdicts(passes)), sep="\n")
    return int(any(failed for _, failed in verdicts(passes)))


def _home(cache: Path) -> Path:
    return cache / "bench-capture" / "stack"


@contextmanager
def _broker(cache: Path, port: int) -> Iterator[tuple[str, Path]]:
    """Start an empty Kafka; yield its address and a folder for the files of a pass."""
    home = _home(cache)
    stack = Stack(StackSettings(home=home, cache=cache, ports=Ports(kafka=port, kafka_controller=port + 1)))
    stack.down(purge=True)
    folder = home / "passes"
    try:
        stack.up(services=["kafka"])
        folder.mkdir(parents=True, exist_ok=True)
        yield f"127.0.0.1:{port}", folder
    finally:
        stack.down()


if __name__ == "__main__":
    sys.exit(main())

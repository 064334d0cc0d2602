"""Capture the same PostgreSQL log into Kafka with Tailorbird and with Debezium's engine, both through pgoutput.

    make bench-capture-postgres
    make bench-capture-postgres ARGS="--rounds 1 --task oltp --json"

Each side reads a copy of one slot, created where the changes begin, and writes to its own topics on one broker. It is
stopped when a read_committed consumer can see all changes; each must then exist exactly once. The time is measured by
the broker's clock, as in `bench_capture`. Exit code 1: changes are missing, or a required figure is not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.capture.kafka_topics import count, make_topic, timestamp_by_broker, wait_for_records
from benchmarks.capture.postgres_load import SHAPES, ShapeName, expected, load, preparation
from benchmarks.capture.proc_captures import our_command, running
from benchmarks.capture.report import SIDES, TASKS, Pass, Side, Task, as_json, missing, rate_of, ratios_of, table
from benchmarks.decode.proc_peers import check_tools, runtimes
from benchmarks.harness import options_of, output_of, report, run_benchmark, run_facts, warn_if_busy
from benchmarks.page import bullets, page, paragraph, span, write_page
from cdc.model.artefacts import VERSIONS, cache_folder
from cdc.model.errors import TailorbirdError
from cdc.model.event import Position
from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import SourceTopics, make_topics
from ingest.postgres.messages import lsn_of
from ingest.records.capture_interfaces import Checkpoint
from tailorbird.devtools.demo.proc_debezium import debezium_command
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.proc_tools import find_java
from tailorbird.devtools.stack.progress import silent
from tailorbird.devtools.stack.settings import CAPTURE_LOGIN, LOAD_LOGIN, Ports, StackSettings

MUST, AIM = 1.3, 2.0  # times Debezium
TITLE = "# Capture of PostgreSQL compared with Debezium"
WHAT = """This page compares the throughput of capture with Debezium's, from PostgreSQL's log to records that Kafka has
acknowledged. {result}*Bulk* is large transactions, *oltp* is transactions of one row. The
columns are those of [capture.md](capture.md)."""
NOTES = (
    """One PostgreSQL 18 and one Kafka on the loopback address, no TLS, replication factor 1, two partitions. Twelve
    columns, replica identity DEFAULT, the same two kinds of transactions as for MySQL.""",
    "Tailorbird: `python -m ingest`, exactly once (Kafka transactions, acks=all, lz4), as deployed.",
    """Debezium 3.6.1: its embedded engine, configured as for MySQL ([capture.md](capture.md)), at least once.""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The parameters of every pass of a run; `changes` by shape."""

    port: int
    brokers: str
    java: list[str]
    changes: Mapping[ShapeName, int]
    folder: Path

    def one(self, task: Task, side: Side, turn: int) -> Pass:
        """Run one pass: create a slot and a topic, capture until all records exist, count them. A snapshot reads the
        rows that remain of the shape bulk."""
        shape: ShapeName = "bulk" if task == "snapshot" else task
        wanted = expected(shape, self.changes[shape])
        slot = f"{side.lower()}_{task}_{turn}"
        if task == "snapshot":
            wanted = {"r": wanted["c"] - wanted["d"]}
        else:
            with connected(self.port) as connection:
                copy = "SELECT pg_copy_logical_replication_slot(%s, %s)"
                connection.execute(copy, (f"base_{task}", slot))
        prepare = self._ours if side == "tailorbird" else self._debezium
        command, topic = prepare(shape, slot, snapshot=task == "snapshot")
        records = sum(wanted.values()) + wanted.get("d", 0)
        try:
            with running(side, command, self.folder / f"{side}-{task}.log") as watched:
                wait_for_records(self.brokers, topic, records, watched.alive, 300 + records / 200)
        finally:
            drop_slot(self.port, slot)
        found = count(self.brokers, topic)
        done = Pass(task=task, side=side, counted=found, memory=watched.memory, cpu=watched.cpu, idle=None)
        if fault := missing(done, wanted):
            raise TailorbirdError(fault)
        return done

    def _ours(self, task: ShapeName, slot: str, *, snapshot: bool) -> tuple[list[str], str]:
        name, mode = f"bench_{slot}", "initial" if snapshot else "never"
        file = self.folder / f"{name}.yml"
        file.write_text(
            f"name: {name}\nlog: {{bootstrap_servers: '{self.brokers}'}}\nsources:\n"
            f"  bench: {{type: postgresql, hostname: 127.0.0.1, port: {self.port}, username: {CAPTURE_LOGIN.user}, "
            f"password: {CAPTURE_LOGIN.password}, dbname: billing, tables: [{task}], snapshot_mode: {mode}, "
            f"slot_name: {slot}, publication_name: bench_{task}, ssl_mode: disabled}}\n"
            f"tables:\n  t: {{query: SELECT t.id FROM bench.{task} t, row_key: [id]}}\n"
        )
        topology = read_topology(file.read_text(), file=str(file), environ={})
        topics = make_topics(topology, topology.sources["bench"])
        if not snapshot:
            self._begin(topology, topics, slot)
        topic = change_topic(name, TableId(source="bench", database="public", table=task))
        timestamp_by_broker(self.brokers, topic)
        return our_command(file), topic

    def _begin(self, topology: Topology, topics: SourceTopics, slot: str) -> None:
        """Commit the begin of the slot as the position."""
        source = topology.sources["bench"]
        with connected(self.port) as connection:
            system, lsn = connection.execute(
                "SELECT system_identifier || '/1', (SELECT confirmed_flush_lsn::text FROM pg_replication_slots "
                "WHERE slot_name = %s) FROM pg_control_system()",
                (slot,),
            ).fetchone()  # type: ignore[misc]  # always one row
        log = KafkaLog(topology, source, topics)
        try:
            log.recover()
            place = Position(file=system, pos=lsn_of(lsn), gtid_set="", sequence=0)
            log.commit(Checkpoint(position=place, snapshot="done", ts_ms=0))
        finally:
            log.close()

    def _debezium(self, task: ShapeName, slot: str, *, snapshot: bool) -> tuple[list[str], str]:
        topic = f"{slot}.public.{task}"
        make_topic(self.brokers, topic)
        settings = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.dbname": "billing",
            "plugin.name": "pgoutput", "slot.name": slot, "publication.name": f"bench_{task}", "topic.prefix": slot,
            "publication.autocreate.mode": "disabled", "table.include.list": f"public.{task}",
            "snapshot.mode": "initial" if snapshot else "no_data", "database.sslmode": "disable",
        }  # fmt: skip
        given = {
            "brokers": self.brokers, "port": str(self.port), "user": CAPTURE_LOGIN.user,
            "password": CAPTURE_LOGIN.password, "table": task, **{f"set.{name}": one for name, one in settings.items()},
        }  # fmt: skip
        return [*self.java, *(word for name, one in given.items() for word in (f"--{name}", one))], topic


@contextmanager
def connected(port: int) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection of the tables' owner."""
    login = LOAD_LOGIN
    with psycopg.connect(
        host="127.0.0.1", port=port, user=login.user, password=login.password, dbname="billing", autocommit=True
    ) as connection:
        yield connection


def drop_slot(port: int, slot: str) -> None:
    """Drop a slot; terminate its reader if it is still running."""
    with connected(port) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active", (slot,)
        )
        for _ in range(50):
            try:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
                return
            except psycopg.errors.ObjectInUse:
                connection.execute("SELECT pg_sleep(0.1)")


def filled(port: int, changes: Mapping[ShapeName, int]) -> str:
    """Write the logs of both shapes, each after its own slot; return the server's version."""
    with connected(port) as connection:
        for shape in SHAPES:
            connection.execute(preparation(shape).encode())
            connection.execute(f"CREATE PUBLICATION bench_{shape} FOR TABLE {shape}".encode())
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (f"base_{shape}",))
            report(f"writing the log of {shape}")
            connection.execute("SET synchronous_commit = off")
            connection.execute(load(shape, changes[shape]).encode())
        return connection.info.parameter_status("server_version") or ""


def verdicts(passes: Sequence[Pass]) -> list[tuple[str, bool]]:
    """Return a line for each shape, and whether it misses the required ratio."""
    lines = []
    for task in TASKS:
        ours, theirs = rate_of(passes, task, "tailorbird"), rate_of(passes, task, "Debezium")
        if ours is not None and theirs is not None:
            ratio = ours / theirs
            said = [f"{word} ≥ {asked:g}: {'reached' if ratio >= asked else 'missed'}" for word, asked in
                    (("required", MUST), ("goal", AIM))]  # fmt: skip
            lines.append((f"{task}: {ratio:.2f}× Debezium ({', '.join(said)})", ratio < MUST))
    return lines


def document(passes: Sequence[Pass], facts: Mapping[str, str]) -> str:
    """Return the text of docs/results/capture-postgres.md."""
    ratios = ratios_of(passes, TASKS)
    return page(
        TITLE,
        paragraph(WHAT.format(result=f"Result: {span(ratios)} times Debezium. " if ratios else "")),
        bullets(f"{name}: {value}" for name, value in facts.items()),
        "\n".join(table(passes)),
        bullets(line for line, _ in verdicts(passes)),
        bullets(NOTES),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = options_of("bench-capture-postgres", __doc__, 2)
    parser.add_argument("--task", action="append", choices=TASKS, help="run only this task; may be repeated")
    parser.add_argument("--side", action="append", choices=SIDES, help="run only this side; may be repeated")
    parser.add_argument(
        "--port", type=int, default=13520, help="port of the private server; Kafka uses the next (default 13520)"
    )
    return run_benchmark(parser, arguments, _run)


def _run(options: argparse.Namespace, given: str) -> int:
    sides: list[Side] = [side for side in SIDES if not options.side or side in options.side]
    tasks: list[Task] = [task for task in TASKS if not options.task or task in options.task]
    cache = cache_folder(os.environ).absolute()
    java: list[str] = []
    if "Debezium" in sides:
        check_tools(["Debezium"])
        report("building the Debezium side")
        java = debezium_command(cache, find_java(cache, os.environ, silent))
    warn_if_busy()
    changes: dict[ShapeName, int] = {"bulk": options.bulk, "oltp": options.oltp}
    passes: list[Pass] = []
    port = options.port
    home = cache / "bench-capture" / "postgres"
    ports = Ports(postgres=port, kafka=port + 1, kafka_controller=port + 2)
    stack = Stack(StackSettings(home=home, cache=cache, ports=ports))
    stack.down(purge=True)
    try:
        stack.up(services=["postgres", "kafka"])
        version = filled(port, changes)
        folder = home / "passes"
        folder.mkdir(parents=True, exist_ok=True)
        versions = f"PostgreSQL {version}, Kafka {VERSIONS['kafka']}, Debezium 3.6.1, {runtimes(['Debezium'])}"
        facts = run_facts("bench-capture-postgres", given, versions)
        bench = Bench(port=port, brokers=f"127.0.0.1:{port + 1}", java=java, changes=changes, folder=folder)
        for turn in range(options.rounds):
            for task in tasks:
                for side in sides:
                    passes.append(bench.one(task, side, turn))
                    rate = passes[-1].counted.rate
                    report(f"{task}: round {turn + 1} of {options.rounds}, {side}: {rate:,.0f} changes/s")
    finally:
        stack.down(purge=True)
    complete = (tasks, sides) == (list(TASKS), list(SIDES)) and options.rounds >= 2
    if output := output_of(options, "capture-postgres.md", full=complete):
        write_page(output, document(passes, facts))
    if options.json:
        reported = {**as_json(passes, [], facts), "verdicts": [{"text": t, "failed": f} for t, f in verdicts(passes)]}
        print(json.dumps(reported, ensure_ascii=False, indent=2))
    else:
        print(*(f"{name}: {value}" for name, value in facts.items()), *table(passes), sep="\n")
        print(*(line for line, _ in verdicts(passes)), sep="\n")
    return int(any(failed for _, failed in verdicts(passes)))


if __name__ == "__main__":
    sys.exit(main())

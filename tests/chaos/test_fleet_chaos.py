"""A fleet under kill -9: three agents of two tenants, two gateways, live traffic, while every process is killed.

Afterwards a read_committed reader of either tenant must have seen each row change of the binary logs exactly once, in
order, and the rows of its records must equal the table's.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from cdc.model.errors import TailorbirdError
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.web.fleet.http_fleet import FleetApi
from tests.chaos.capture_run import DURABLE, Run, Writer, check, topology, update_all
from tests.ingest.binlog.binlog_servers import Server, start
from tests.integration.conftest import CapturedDatabase
from tests.support.dropping_proxy import DroppingProxy
from tests.support.fleet_on_servers import FleetOnServers, memory
from tests.support.gateways import TENANT

pytestmark = [pytest.mark.chaos, pytest.mark.integration, pytest.mark.kafka(), pytest.mark.timeout(1800)]
SECONDS = float(os.environ.get("TAILORBIRD_CHAOS_SECONDS", "300"))
UNAVAILABLE = 60.0  # seconds for which a network is cut, and an agent is suspended
AGENTS = {"paris": TENANT, "lyon": TENANT, "rome": "beta"}


class FleetOfTwo:
    """Two tenants with the same two gateways, whose agents reach them through a network that can be cut."""

    def __init__(self, runs: dict[str, Run], folder: Path) -> None:
        self.runs = runs
        folder.mkdir()
        self.fleet = FleetOnServers(runs[TENANT].captured, folder)
        self.tokens: dict[str, str] = {}
        self.proxies = [DroppingProxy(address) for address in self.fleet.streams.values()]
        self.policy = (
            "dumps: true\nconnections:\n  db: {hostname: 127.0.0.1, port: "
            f"{runs[TENANT].server.port}, username: cdc, password: cdc, databases: {{d: all}}}}\n"
        )

    @property
    def names(self) -> list[str]:
        return [*self.fleet.streams, *AGENTS]

    def begin(self, name: str) -> None:
        """Start one process, or restart it."""
        if name in self.fleet.streams:
            self.fleet.gateway(name, "--tenant", f"beta={self.runs['beta'].file}")
        else:
            through = (proxy.address for proxy in self.proxies)
            self.fleet.agent(name, self.policy, *through, tenant=AGENTS[name])

    def open(self) -> None:
        """Start all processes, and have each tenant's table captured by any of its agents: two have the same source."""
        for tenant, run in self.runs.items():
            issued = self.fleet.ask("token", "issue", "anna", "--role", "admin", "--topology", str(run.file))
            self.tokens[tenant] = issued.split()[0]
        self.fleet.token = self.tokens[TENANT]
        for name in self.names:
            self.begin(name)
        self.fleet.until(lambda: self.fleet.api("agents") is not None, "no gateway serves")
        for tenant, token in self.tokens.items():
            self.fleet.token = token
            agents = [word for name, of in AGENTS.items() if of == tenant for word in ("--agent", name)]
            place = ("--connection", "db", "--database", "d", "--table", "t")
            self.fleet.ask("source", "add", "shop", *agents, *place, "--wait", "90")
        self.fleet.token = self.tokens[TENANT]

    def holder(self) -> str:
        """Return the agent that has the source of the tenant with two."""
        ca = self.fleet.folder / "authority" / "ca.pem"
        for address in self.fleet.apis.values():
            with suppress(TailorbirdError):
                return str(FleetApi(address, ca, self.fleet.token).ask("GET", "sources")[0]["agent"])
        return ""

    def settle(self) -> int:
        """Wait until all catch up; check that each tenant's readers see every change once; return the number."""
        for run in self.runs.values():
            run.caught_up()
        for name in AGENTS:
            assert self.fleet.kill(name, signal.SIGTERM) == 0, self.fleet.logs()
        return sum(check(run) for run in self.runs.values())

    def kept(self) -> set[str]:
        """Return the files of agents and gateways, without their logs."""
        files = (file for file in self.fleet.folder.rglob("*") if file.is_file() and file.suffix != ".log")
        return {str(file.relative_to(self.fleet.folder)) for file in files}

    def close(self) -> None:
        self.fleet.close()
        for proxy in self.proxies:
            proxy.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = start("mysql80", tmp_path / "server", *DURABLE)
    with made.session() as connected, connected.cursor() as cursor:
        cursor.execute("CREATE DATABASE d DEFAULT CHARSET utf8mb4")
        cursor.execute("CREATE TABLE d.t (id BIGINT PRIMARY KEY, v BIGINT, w VARCHAR(20) DEFAULT 'x')")
        cursor.execute("INSERT INTO d.t (id, v) VALUES " + ",".join(f"({i},{i})" for i in range(3_000)))
    yield made
    made.stop()


@pytest.fixture
def fleet(server: Server, stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[FleetOfTwo]:
    runs = dict[str, Run]()
    for number, tenant in enumerate((TENANT, "beta")):
        name = unique(tenant)
        file = tmp_path / f"{name}.yml"
        topology(name, server, file)
        file.write_text(file.read_text().replace("server_id: 9123", f"server_id: {9123 + number}"))
        runs[tenant] = Run(server, file, CapturedDatabase(name, file, ("t",)))
    made = FleetOfTwo(runs, tmp_path / "fleet")
    yield made
    made.close()
    for run in runs.values():
        for consumer in run.captured._consumers.values():
            consumer.close()


def test_a_fleet_survives_chaos(fleet: FleetOfTwo, server: Server) -> None:
    """Kill -9 of any process every few seconds; the network is cut for a minute; the agent that has the source is
    suspended past its lease, and resumed."""
    random, processes = Random(5), fleet.fleet.processes
    fleet.open()
    writer = Writer(server, Random(6), serial=50_000_000)
    writer.start()
    begun = time.monotonic()
    cut, sleep = begun + SECONDS * 0.1, begun + SECONDS * 0.45
    asleep, slept, kills = "", False, 0
    try:
        while (now := time.monotonic()) < begun + SECONDS:
            for proxy in fleet.proxies:
                (proxy.cut.set if cut <= now < cut + UNAVAILABLE else proxy.cut.clear)()
            if not slept and now >= sleep and (asleep := fleet.holder()):
                slept = True
                processes[asleep].send_signal(signal.SIGSTOP)
            elif asleep and now >= sleep + UNAVAILABLE:
                processes[asleep].send_signal(signal.SIGCONT)
                asleep = ""
            name = random.choice([name for name in fleet.names if name != asleep])
            fleet.fleet.kill(name)
            kills += 1
            writer.enough.wait(random.uniform(0.2, 1.0))
            fleet.begin(name)
            if kills % 10 == 0:
                with writer.pause:
                    update_all(server)
            writer.enough.wait(random.uniform(2.0, 6.0))
        assert writer.failed is None
    finally:
        writer.enough.set()
        writer.join()
        for proxy in fleet.proxies:
            proxy.cut.clear()
        if asleep:
            processes[asleep].send_signal(signal.SIGCONT)
    assert slept, "no agent was suspended"
    assert kills > SECONDS / 15
    print(f"{kills} kills, {fleet.settle():,} changes")


def test_kafka_is_unavailable_for_two_minutes(fleet: FleetOfTwo, server: Server, stack: Stack) -> None:
    """During live traffic agents stay within 200 MB, gateways within 300, and no process writes a file; then all
    resume."""
    fleet.open()
    for run in fleet.runs.values():
        run.caught_up()
    writer = Writer(server, Random(8), serial=70_000_000)
    writer.start()
    held = dict[str, float]()
    try:
        writer.enough.wait(5.0)
        before = fleet.kept()
        stack.kill("kafka")
        writer.enough.wait(min(120.0, SECONDS))
        assert writer.failed is None
        for name, process in fleet.fleet.processes.items():
            assert process.poll() is None, fleet.fleet.logs()
            held[name] = memory(process.pid)
        assert fleet.kept() == before
        stack.start("kafka")
        writer.enough.wait(5.0)
    finally:
        writer.enough.set()
        writer.join()
    print({name: round(size) for name, size in held.items()}, "MB")
    assert max(held[name] for name in AGENTS) <= 200
    assert max(held[name] for name in fleet.fleet.streams) <= 300
    fleet.settle()

"""A fleet under kill -9: agents of two tenants, two gateways for each, live traffic, while whatever can die dies.

Afterwards a read_committed reader of either tenant must have seen each row change that the binary logs hold exactly
once, in order, and the rows that its records make must be the table's.
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

from cdc.words.errors import TailorbirdError
from console.fleet.http_fleet import FleetApi
from console.stack.proc_stack import Stack
from tests.chaos.capture_run import DURABLE, Run, Writer, check, topology, update_all
from tests.ingest.binlog.binlog_servers import Server, start
from tests.integration.conftest import Captured
from tests.support.dropping_proxy import DroppingProxy
from tests.support.fleet_on_servers import FleetOnServers, memory

pytestmark = [pytest.mark.chaos, pytest.mark.integration, pytest.mark.timeout(1800)]
SECONDS = float(os.environ.get("TAILORBIRD_CHAOS_SECONDS", "300"))
AGENTS = {"acme": ("paris", "lyon"), "beta": ("rome",)}


class TenantFleet:
    """One tenant: two gateways, its agents, who all reach the gateways through a network that can be cut."""

    def __init__(self, tenant: str, run: Run, folder: Path) -> None:
        self.tenant, self.run = tenant, run
        folder.mkdir()
        self.fleet = FleetOnServers(run.captured, folder, tenant)
        self.proxies = [DroppingProxy(address) for address in self.fleet.streams.values()]
        self.policy = (
            "dumps: true\nconnections:\n  db: {hostname: 127.0.0.1, port: "
            f"{run.server.port}, username: cdc, password: cdc, databases: {{d: all}}}}\n"
        )

    @property
    def names(self) -> list[str]:
        return [*self.fleet.streams, *AGENTS[self.tenant]]

    def begin(self, name: str) -> None:
        if name in self.fleet.streams:
            self.fleet.gateway(name)
        else:
            self.fleet.agent(name, self.policy, *(proxy.address for proxy in self.proxies))

    def open(self) -> None:
        """Start all, and have the table captured by whichever agent: both are given the same source."""
        file = str(self.run.file)
        self.fleet.token = self.fleet.ask("token", "issue", "anna", "--role", "admin", "--topology", file).split()[0]
        for name in self.names:
            self.begin(name)
        self.fleet.until(lambda: self.fleet.api("agents") is not None, "no gateway serves")
        agents = [word for name in AGENTS[self.tenant] for word in ("--agent", name)]
        place = ("--connection", "db", "--database", "d", "--table", "t")
        self.fleet.ask("source", "add", "shop", *agents, *place, "--wait", "90")

    def holder(self) -> str:
        """The agent that has the source."""
        for name in self.fleet.apis:
            with suppress(TailorbirdError):
                api = FleetApi(self.fleet.apis[name], self.fleet.folder / "authority" / "ca.pem", self.fleet.token)
                return str(api.ask("GET", "sources")[0]["agent"])
        return ""

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
def tenants(server: Server, stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[list[TenantFleet]]:
    made: list[TenantFleet] = []
    for number, tenant in enumerate(AGENTS):
        name = unique(tenant)
        file = tmp_path / f"{name}.yml"
        topology(name, server, file)
        file.write_text(file.read_text().replace("server_id: 9123", f"server_id: {9123 + number}"))
        made.append(TenantFleet(tenant, Run(server, file, Captured(name, file, ("t",))), tmp_path / tenant))
    yield made
    for one in made:
        one.close()
        for consumer in one.run.captured._consumers.values():
            consumer.close()


def settle(tenants: list[TenantFleet]) -> None:
    """All catch up, and every change is told once."""
    for one in tenants:
        one.run.caught_up()
    for one in tenants:
        for name in AGENTS[one.tenant]:
            assert one.fleet.kill(name, signal.SIGTERM) == 0, one.fleet.logs()
        check(one.run)


def kept(folder: Path) -> set[str]:
    """Files of agents and gateways, but for their logs."""
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file() and file.suffix != ".log"}


def test_a_fleet_survives_chaos(tenants: list[TenantFleet]) -> None:
    """kill -9 of any process every few seconds; a network that is cut for a minute; the agent that has the source
    suspended past its lease, and woken.
    """
    random = Random(5)
    for one in tenants:
        one.open()
    writer = Writer(tenants[0].run.server, Random(6), serial=50_000_000)
    writer.start()
    ends = time.monotonic() + SECONDS
    cut = (time.monotonic() + SECONDS * 0.1, 60.0)
    sleep = (time.monotonic() + SECONDS * 0.45, 60.0)
    asleep, kills = "", 0
    try:
        while (now := time.monotonic()) < ends:
            for proxy in tenants[0].proxies:
                (proxy.cut.set if cut[0] <= now < sum(cut) else proxy.cut.clear)()
            if sleep[0] <= now < sum(sleep) and not asleep:
                asleep = tenants[0].holder()
                if asleep:
                    tenants[0].fleet.processes[asleep].send_signal(signal.SIGSTOP)
            elif asleep and now >= sum(sleep):
                tenants[0].fleet.processes[asleep].send_signal(signal.SIGCONT)
                asleep, sleep = "", (ends, 0.0)
            one = random.choice(tenants)
            name = random.choice([name for name in one.names if name != asleep])
            one.fleet.kill(name)
            kills += 1
            writer.enough.wait(random.uniform(0.2, 1.0))
            one.begin(name)
            if kills % 10 == 0:
                with writer.pause:
                    update_all(one.run.server)
            writer.enough.wait(random.uniform(2.0, 6.0))
        assert writer.failed is None
    finally:
        writer.enough.set()
        writer.join()
        for proxy in tenants[0].proxies:
            proxy.cut.clear()
        if asleep:
            tenants[0].fleet.processes[asleep].send_signal(signal.SIGCONT)
    assert kills > SECONDS / 12
    settle(tenants)


def test_kafka_is_away_for_two_minutes(tenants: list[TenantFleet], stack: Stack, tmp_path: Path) -> None:
    """Beside live traffic: agents keep within 200 MB, gateways within 300, nobody writes a file; then all goes on."""
    for one in tenants:
        one.open()
    writer = Writer(tenants[0].run.server, Random(8), serial=70_000_000)
    writer.start()
    try:
        for one in tenants:
            one.run.caught_up()
        before = {one.tenant: kept(one.fleet.folder) for one in tenants}
        stack.kill("kafka")
        writer.enough.wait(min(120.0, SECONDS))
        assert writer.failed is None
        for one in tenants:
            for name, process in one.fleet.processes.items():
                assert process.poll() is None, one.fleet.logs()
                most = 300 if name in one.fleet.streams else 200
                assert memory(process.pid) <= most, f"{name} holds {memory(process.pid):.0f} MB"
            assert kept(one.fleet.folder) == before[one.tenant]
        stack.start("kafka")
        writer.enough.wait(5.0)
    finally:
        writer.enough.set()
        writer.join()
    settle(tenants)

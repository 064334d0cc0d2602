"""Measure a gateway: its cost compared with writing to Kafka directly, and how many agents one process can serve.

    make bench-gateway
    make bench-gateway ARGS="--agents 1000 --records 400000"

Needs Kafka (`tailorbird stack up`). First, one session's log writes the same records, alternating between a direct
connection and a gateway process over mTLS, with a commit every 10,000 records; the results are records/s and their
ratio. Then the agents connect, each with its own stream, and receive one source each. All configurations are changed,
and the time until the last agent has received its new configuration is measured. Then the gateway is idle for ten
seconds. CPU time and memory are the gateway's; the agents run in another process on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc

from benchmarks.decode.proc_peers import load, machine
from benchmarks.ending import end
from benchmarks.gateway_page import Cost, Figures, document
from benchmarks.page import write_page
from cdc.model.event import Position
from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology
from ingest.fleet.desired import DesiredSource, spec_of
from ingest.fleet.fleet_pb2 import Ready, StreamRequest
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.state import desired_record
from ingest.fleet.wire import AGENT_OPTIONS, METHOD, hello
from ingest.gateway.kafka_state import KafkaState
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.gateway_client.grpc_stream import Credentials, GrpcStream
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import make_topics
from ingest.records.capture_interfaces import Checkpoint, OpenLog, Record
from tailorbird.operate.probes.proc_steal import CpuSteal
from tailorbird.web.fleet.file_ca import init, issue

_TENANT, _COMMIT, _BATCH = "bench", 10_000, 1000
_TIMEOUT = 300.0
_IDLE = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-gateway", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path, help="also write Markdown, e.g. docs/results/gateway.md")
    options = parser.parse_args(arguments)
    if options.output and not (options.records and options.agents):
        parser.error("--output: requires both parts of the benchmark. Choose --records and --agents above 0.")
    print(machine())
    busy = load()
    cpu_steal = CpuSteal()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            if options.records:
                bench.compare(options.records, options.turns)
            if options.agents:
                asyncio.run(bench.command(options.agents))
        finally:
            bench.close()
            print(*(f"- {name}: {value}" for name, value in bench.figures.rows()), sep="\n")
    withheld = cpu_steal.share()
    print(f"- CPU steal during the run: {100 * withheld:.1f}%")
    if options.output:
        write_page(options.output, document(bench.figures, machine(), load=busy, withheld=withheld))
    return 0


class Bench:
    """The benchmark with its topology of one source and its gateway process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"gateway_{uuid.uuid4().hex[:8]}"
        self.figures = Figures()
        file = folder / "bench.yml"
        file.write_text(
            f"name: {self.name}\nsources:\n  s: {{type: mysql, hostname: h, username: u, password: p, database: d, "
            f"server_id: 1, tables: [t]}}\nlog: {{bootstrap_servers: '127.0.0.1:"
            f"{os.environ.get('TAILORBIRD_PORT_KAFKA', '9092')}'}}\n"
            "tables:\n  w: {query: SELECT a.id FROM s.t a, row_key: [id]}\n"
        )
        self.topology: Topology = load_topology(str(file))
        init(folder / "ca", _TENANT)
        issue(folder / "ca", FleetIdentity(_TENANT, "gateways", "g"), folder / "g", hosts=["127.0.0.1"])
        issue(folder / "ca", FleetIdentity(_TENANT, "agents", "writer"), folder / "writer")
        self.address = "127.0.0.1:17443"
        self.log = folder / "gateway.log"
        command = [sys.executable, "-m", "tailorbird", "gateway", str(file), "--listen", self.address]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*command, "--identity", str(folder / "g")], stdout=log, stderr=log)
        try:
            _until(lambda: b"gateway serves" in self.log.read_bytes(), self.log.read_text)
        except TimeoutError:
            self.close()
            raise

    def compare(self, records: int, turns: int) -> None:
        """Write directly and through the gateway in turns."""
        figures = self.figures
        stream = GrpcStream(self.address, Credentials.of(self.folder / "writer"))
        source = self.topology.sources["s"]
        for _ in range(turns):
            topics = make_topics(self.topology, source)
            figures.direct.append(_written(KafkaLog(self.topology, source, topics), self.topic, records))
            before = self._used()
            figures.gateway.append(_written(GatewayLog(stream, "s"), self.topic, records))
            figures.spent = self._used() - before
        stream.close()
        figures.records, figures.memory = records, self._rss()

    async def command(self, agents: int) -> None:
        """Connect agents that only listen, one source each; measure how long their configurations take."""
        figures = self.figures
        names = [f"a{number}" for number in range(agents)]
        credentials = []
        for name in names:
            issue(self.folder / "ca", FleetIdentity(_TENANT, "agents", name), self.folder / "agents" / name)
            credentials.append(Credentials.of(self.folder / "agents" / name).channel())
        topic = await asyncio.to_thread(KafkaState, self.topology.log, self.name)
        await asyncio.to_thread(self._desire, topic, names, 1)
        versions = dict.fromkeys(names, 0)
        began, used = time.monotonic(), self._used()
        listening = [
            asyncio.create_task(_listen(self.address, shown, name, versions))
            for name, shown in zip(names, credentials, strict=True)
        ]
        await _reported(versions, 1, listening)
        figures.connected = Cost(time.monotonic() - began, self._used() - used)
        began, used = time.monotonic(), self._used()
        await asyncio.to_thread(self._desire, topic, names, 2)
        await _reported(versions, 2, listening)
        figures.changed = Cost(time.monotonic() - began, self._used() - used)
        used = self._used()
        await asyncio.sleep(_IDLE)
        figures.agents, figures.idle, figures.idle_memory = agents, 100 * (self._used() - used) / _IDLE, self._rss()
        for one in listening:
            one.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
        await asyncio.to_thread(topic.close)

    def close(self) -> None:
        """Kill the gateway."""
        self.process.kill()
        self.process.wait()

    @property
    def topic(self) -> str:
        """The change topic of the records."""
        return change_topic(self.name, TableId(source="s", database="d", table="t"))

    def _desire(self, topic: KafkaState, names: Sequence[str], version: int) -> None:
        records = []
        for number, name in enumerate(names):
            reported = {"agents": [name], "connection": "db", "database": "d", "tables": {"t": {}}}
            spec = spec_of({**reported, "snapshot_max_threads": version}, self.name, f"s{number}")
            records.append(
                desired_record(DesiredSource(source=f"s{number}", version=version, spec=spec), f"bench {version}")
            )
        topic.write(*records)

    def _used(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _rss(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def _written(log: OpenLog, topic: str, count: int) -> float:
    """Write records; return records per second from the first one to the end of the last commit."""
    log.recover()
    value = b'{"before":null,"after":{"id":1,"name":"some text that a row may hold","v":42},"op":"c"}' * 2
    at = Checkpoint(position=Position(file="f", pos=4, gtid_set="", sequence=0), snapshot="done", ts_ms=1)
    began = time.monotonic()
    for start in range(0, count, _BATCH):
        log.extend(Record(topic, b'{"id":%d}' % number, value) for number in range(start, start + _BATCH))
        if (start + _BATCH) % _COMMIT == 0:
            log.commit(at)
    log.commit(at)
    took = time.monotonic() - began
    log.close()
    return count / took


async def _listen(address: str, shown: grpc.ChannelCredentials, name: str, versions: dict[str, int]) -> None:
    async with grpc.aio.secure_channel(address, shown, options=AGENT_OPTIONS) as channel:
        call: Any = channel.stream_stream(
            METHOD, request_serializer=StreamRequest.SerializeToString, response_deserializer=StreamRequest.FromString
        )()
        await call.write(hello("bench"))
        await call.write(StreamRequest(ready=Ready()))
        async for reply in call:
            if reply.HasField("assign"):
                versions[name] = reply.assign.version


async def _reported(versions: dict[str, int], version: int, listening: Sequence[asyncio.Task[None]]) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while any(reported < version for reported in versions.values()):
        for one in listening:
            if one.done():
                one.result()
        if time.monotonic() > deadline:
            waiting = sum(reported < version for reported in versions.values())
            raise TimeoutError(f"{waiting} agents did not receive their configuration within {_TIMEOUT:.0f} s")
        await asyncio.sleep(0.05)


def _until(holds: Callable[[], bool], why: Callable[[], str]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(why())
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(end(main))

"""Run a second region server for the stack's HBase, which can be killed alone, and move regions between the two."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from xml.etree import ElementTree

import happybase
from kazoo.client import KazooClient
from thriftpy2.thrift import TException

from cdc.model.errors import Fatal, Retriable
from indexer.peer import wire_pb2 as pb
from indexer.table.hbase_rpc import HBaseRpc
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.provision.hbase_admin import HBaseAdmin

_START_SECONDS = 120.0


class SecondRegionServer:
    """A second region server process for the stack's HBase and ZooKeeper; use it as a context manager.

    The stack's HBase runs the master and the first region server in one JVM. A separate region server needs the setting
    `hbase.cluster.distributed`; all other settings are the stack's.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack, self._home = stack, stack.settings.home
        self._zookeeper = stack.addresses()["zookeeper"]
        conf = self._home / "conf" / "hbase-2"
        conf.mkdir(parents=True, exist_ok=True)
        self._port = _free_port()
        first = self._home / "conf" / "hbase"
        _write_site(first / "hbase-site.xml", conf / "hbase-site.xml", self._port)
        logging = (first / "log4j2.properties").read_text().replace("hbase.log", "hbase-2.log")
        (conf / "log4j2.properties").write_text(logging)
        self._command = _command(stack, first, conf)
        self._process: subprocess.Popen[bytes] | None = None
        self.started = 0

    def __enter__(self) -> SecondRegionServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)  # an orderly stop moves its regions to the other server
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        deadline = time.monotonic() + _START_SECONDS
        while problem := self._stack.problem("hbase"):
            if time.monotonic() > deadline:
                raise Fatal(f"HBase does not recover from the end of its second region server: {problem}")
            time.sleep(0.3)

    def start(self) -> None:
        """Start the region server and wait until the master knows it."""
        out = (self._home / "logs" / "hbase-2.out").open("ab")
        with out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out, cwd=self._home)
        self.started += 1
        deadline = time.monotonic() + _START_SECONDS
        while not any(int(name.split(",")[1]) == self._port for name in servers(self._zookeeper)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Fatal("the second region server did not start", f"see {self._home}/logs/hbase-2.log")
            time.sleep(0.3)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart_if_ended(self) -> None:
        """Restart the process if it has ended, as a supervisor does: it ends when its ZooKeeper session expires."""
        if self._process is None or self._process.poll() is not None:
            self.start()


class Mover:
    """Moves a random region of some tables to the other region server while the caller writes a batch."""

    def __init__(self, stack: Stack, tables: list[str], *, seed: int = 11) -> None:
        addresses = stack.addresses()
        self._zookeeper, self._thrift = addresses["zookeeper"], addresses["thrift"]
        self._tables, self._random = tables, random.Random(seed)
        self._thread: threading.Thread | None = None
        self._writing = threading.Event()
        self.moved_in_mid_batch = 0

    @contextlib.contextmanager
    def batch_under_way(self) -> Iterator[None]:
        """Allow a region to move while the block writes."""
        self._writing.set()
        try:
            yield
        finally:
            self._writing.clear()

    def move_in_mid_batch(self) -> None:
        """Move a region after the next batch has begun."""
        self.wait()
        self._thread = threading.Thread(target=self._move, name="mover", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last move has ended."""
        if self._thread is not None:
            self._thread.join(180)
            assert not self._thread.is_alive()
            self._thread = None

    def _move(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self._writing.wait(5):
                time.sleep(0.02)
                began_within = self._writing.is_set()
                # the master is being killed, or the region is in transition after a crash: try another one later
                with contextlib.suppress(Retriable, Fatal, TException, OSError):
                    if move_a_region(self._zookeeper, self._thrift, self._random.choice(self._tables), self._random):
                        self.moved_in_mid_batch += began_within
                        return
            time.sleep(0.2)


def servers(zookeeper: str) -> list[str]:
    """Return the live region servers, each as `host,port,start code`."""
    client = KazooClient(zookeeper)
    client.start(timeout=30)
    try:
        return sorted(client.get_children("/hbase/rs"))
    finally:
        client.stop()
        client.close()


def move_a_region(zookeeper: str, thrift: str, table: str, chance: random.Random) -> bool:
    """Move one of a table's regions to another server and wait; return False if there is no other server."""
    host, _, port = thrift.rpartition(":")
    with contextlib.closing(happybase.Connection(host, int(port), timeout=60_000)) as connection:
        region = chance.choice(connection.table(table).regions())
    others = [name for name in servers(zookeeper) if int(name.split(",")[1]) != region["port"]]
    if not others:
        return False
    host_name, other_port, start_code = chance.choice(others).split(",")
    request = pb.MoveRegionRequest(
        region=_specifier(region["name"]),
        dest_server_name=pb.ServerName(host_name=host_name, port=int(other_port), start_code=int(start_code)),
    )
    with HBaseAdmin(zookeeper=zookeeper, thrift=thrift) as admin:
        admin.call("MoveRegion", request, pb.MoveRegionResponse)
    return True


def split_or_merge(zookeeper: str, thrift: str, table: str, chance: random.Random, split_row: bytes) -> str:
    """Split the region of a row there, or merge it with the next one, and wait for the end.

    The region is compacted first, because HBase does not split or merge a region that refers to the files of another.
    Return "split", "merged", or an empty text if it is the last one. Raises Fatal if HBase refuses."""
    host, _, port = thrift.rpartition(":")
    with contextlib.closing(happybase.Connection(host, int(port), timeout=60_000)) as connection:
        regions = sorted(connection.table(table).regions(), key=lambda region: region["start_key"])
    namespace, _, qualifier = table.rpartition(":")
    at = max(number for number, region in enumerate(regions) if region["start_key"] <= split_row)
    one = regions[at]
    for region in regions[at : at + 2]:
        named = pb.RegionSpecifier(type=pb.RegionSpecifier.REGION_NAME, value=region["name"])
        compact = pb.CompactRegionRequest(region=named, major=True)
        with HBaseRpc(region["server_name"].decode(), region["port"], "AdminService", name="region server") as server:
            server.call("CompactRegion", compact, pb.CompactRegionResponse)
    with HBaseAdmin(zookeeper=zookeeper, thrift=thrift) as admin:
        if one["start_key"] != split_row and (len(regions) < 3 or chance.random() < 0.3):
            info = pb.RegionInfo(
                region_id=int(one["name"].split(b",")[-1].split(b".")[0]),
                table_name=pb.TableName(namespace=(namespace or "default").encode(), qualifier=qualifier.encode()),
                start_key=one["start_key"],
                end_key=one["end_key"],
            )
            admin.run("SplitRegion", pb.SplitTableRegionRequest(region_info=info, split_row=split_row))
            return "split"
        if at + 1 == len(regions):
            return ""
        pair = [_specifier(region["name"]) for region in regions[at : at + 2]]
        admin.run("MergeTableRegions", pb.MergeTableRegionsRequest(region=pair))
        return "merged"


def _specifier(region: bytes) -> pb.RegionSpecifier:
    return pb.RegionSpecifier(type=pb.RegionSpecifier.ENCODED_REGION_NAME, value=region.split(b".")[-2])


def _command(stack: Stack, first: Path, conf: Path) -> list[str]:
    """Return the command line of the stack's HBase with another configuration and main class."""
    [running] = [each for each in stack.status() if each.name == "hbase"]
    said = Path(f"/proc/{running.pid}/cmdline").read_text().split("\0")[:-1]
    java = said[: said.index("org.apache.hadoop.hbase.master.HMaster")]
    moved = [part.replace(str(first), str(conf)) for part in java]
    return [*moved, "org.apache.hadoop.hbase.regionserver.HRegionServer", "start"]


def _write_site(source: Path, target: Path, port: int) -> None:
    tree = ElementTree.parse(source)
    wanted = {"hbase.cluster.distributed": "true", "hbase.regionserver.port": str(port)}
    for setting in tree.getroot().iter("property"):
        name, value = setting.find("name"), setting.find("value")
        if name is not None and value is not None and name.text in wanted:
            value.text = wanted.pop(name.text)
    if wanted:
        raise Fatal(f"{source} does not set {', '.join(wanted)}")
    tree.write(target)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port

"""A stack, the shop's databases under traffic, and a running pipeline, to lose parts of and to restore.

Everything is done with the commands that a user would type; the traffic never stops while something is lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pymysql

from cdc.model.errors import Fatal
from cdc.process.file_topology import load_topology
from tailorbird.cli.cli_demo_steps import background_traffic
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.shop import Server, Shop
from tailorbird.devtools.stack.proc_files import mark_home
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import LOAD_LOGIN, ServiceName, StackSettings

TOPOLOGY = Path(__file__).parents[2] / "topologies" / "shop.yml"
# folders of the stack's home on volumes of their own, if the machine allows it, so that one of them can be full; "."
# is the home itself, with the logs and the files of all processes
VOLUMES = (".", "data/kafka", "data/hbase", "data/hbase/zookeeper", "data/solr", "checkpoints", "data/mysql-shop")
_VOLUME_MIB = 1_500
TABLE, INDEX = "orders_wide", "orders"
_TIMEOUT = 3600.0
_FILLER = "filler"


class World:
    """The servers and databases of one run of the benchmark, below `folder`, and the process `tailorbird run`.

    `said` receives a line for each step. `volumes`: some folders are volumes in memory, which needs root. `topology`
    has the sources, the table and the index of `topologies/shop.yml`. `hbase_minutes`: see StackSettings."""

    def __init__(
        self,
        folder: Path,
        port_offset: int,
        said: Callable[[str], None],
        *,
        volumes: bool = False,
        topology: Path = TOPOLOGY,
        hbase_minutes: int = 60,
    ) -> None:
        settings = replace(
            StackSettings.from_environ({}, Path.cwd(), home=folder / "home", port_offset=port_offset),
            hbase_minutes=hbase_minutes,
        )
        os.environ.update(settings.environ())
        self.home, self.said, self.file = settings.home, said, topology
        self._volumes: list[Path] = []
        self._run: subprocess.Popen[bytes] | None = None
        self._shop: MySqlShop | None = None
        self._log = folder / "run.log"
        self._generator = Shop(random=Random(7))
        self.stack = Stack(settings)
        self.topology = load_topology(str(self.file))
        try:
            self._begin(volumes)
        except BaseException:
            self.close()
            raise

    def _begin(self, volumes: bool) -> None:
        mark_home(self.home)
        self.stack.fetch()
        self.stack.up()
        if volumes:  # servers create their folders themselves, so these move to the volumes afterwards
            self.stack.down()
            for name in VOLUMES:
                self._mount(self.home / name)
            self.stack.up()
        self._shop = MySqlShop(self.topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)

    @property
    def shop(self) -> MySqlShop:
        """Return the connections to the databases."""
        assert self._shop is not None, "its servers do not run"
        return self._shop

    def close(self) -> None:
        """End the pipeline and the servers, and remove their data."""
        self.crash()
        if self._shop is not None:
            self._shop.close()
        self.stack.down()
        self._unmount(self.home)
        self.stack.down(purge=True)

    def _mount(self, folder: Path) -> None:
        """Move a folder to a volume of its own."""
        aside = folder.with_name(f"{folder.name}.aside")
        folder.mkdir(parents=True, exist_ok=True)
        folder.rename(aside)
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_VOLUME_MIB}m", "tmpfs", folder], check=True)
        self._volumes.append(folder)
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        shutil.rmtree(aside)

    def _unmount(self, folder: Path) -> None:
        """Unmount the volumes in a folder, inner ones first."""
        for volume in [one for one in reversed(self._volumes) if one.is_relative_to(folder)]:
            subprocess.run(["umount", "--lazy", volume], check=True)
            self._volumes.remove(volume)

    def fill(self, orders: int) -> None:
        """Load the databases with that many orders, a tenth as many customers, and a twentieth as many products."""
        self.shop.prepare()
        sizes = {"orders": orders, "customers": max(10, orders // 10), "products": max(10, orders // 20)}
        batches = self._generator.catalogue(**sizes, now_ms=int(time.time() * 1000))
        self.shop.load(batches, lambda _: None)

    @contextmanager
    def traffic(self, rate: float) -> Iterator[Callable[[], int]]:
        """Context manager: change rows of both databases. It yields a function that returns how many were changed."""
        with background_traffic(self._generator, self.shop, rate=rate) as changes:
            yield changes

    def command(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command of `tailorbird` on the topology and return its output. Raises Fatal for another exit code."""
        full = [sys.executable, "-m", "tailorbird", *words]
        self.said("$ tailorbird " + " ".join(words).replace(str(self.file), self.file.name))
        done = subprocess.run(full, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT)
        if done.returncode not in codes:
            raise Fatal(
                f"{' '.join(words)}: exit code {done.returncode}: {done.stderr[-1500:]}{done.stdout[-500:]}", ""
            )
        return done.stdout

    def run(self, *options: str) -> None:
        """Start `tailorbird run` with these options, in the background."""
        words = ["run", str(self.file), *options]
        self.said(f"$ tailorbird run {self.file.name} " + " ".join(options))
        with self._log.open("ab") as log:
            self._run = subprocess.Popen(
                [sys.executable, "-m", "tailorbird", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def pid(self) -> int:
        """Return the process id of `tailorbird run`."""
        assert self._run is not None, "it is not started"
        return self._run.pid

    def limit_rows(self, orders: int) -> None:
        """Let the traffic remove an order for each new one, once there are so many."""
        self._generator.most = orders

    def sql(self, server: Server, statement: str) -> None:
        """Execute a statement on one of the databases, through a connection of its own."""
        source = self.topology.sources[server]
        with (
            pymysql.connect(
                host=source.hostname, port=source.port, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)

    def stop(self) -> None:
        """Stop `tailorbird run` as Ctrl-C does, if it runs."""
        if self._run is not None:
            self.said("Ctrl-C")
            self._run.send_signal(signal.SIGINT)
            self._run.wait(120)
            self._run = None

    def crash(self) -> None:
        """End `tailorbird run` by SIGKILL, if it runs. Its children end with it."""
        if self._run is not None:
            self._run.kill()
            self._run.wait()
            self._run = None

    def lose(self, *services: ServiceName, folders: tuple[str, ...]) -> None:
        """Kill servers and remove folders of the stack's home."""
        self.said(f"lost: {', '.join([*services, *folders])}")
        for service in services:
            self.stack.kill(service)
        for folder in (self.home / name for name in folders):
            self._unmount(folder)  # full volumes come before losses
            shutil.rmtree(folder)

    def fill_volume(self, name: str) -> None:
        """Write a file into a volume until it is full."""
        self.said(f"full: {name}")
        with contextlib.suppress(OSError), (self.home / name / _FILLER).open("wb", buffering=0) as filler:
            while filler.write(bytes(1 << 20)):  # until there is no space left
                pass

    def free_volume(self, name: str) -> None:
        """Remove the file that fills a volume."""
        self.said(f"freed: {name}")
        (self.home / name / _FILLER).unlink()

    def restart(self, *services: ServiceName) -> None:
        """Stop servers gracefully, and start them."""
        for service in services:
            self.stack.stop(service)
        self.up()

    def up(self) -> None:
        """Start the servers that do not run, with empty folders where theirs were removed."""
        self.command("stack", "up")

    def complete(self, until: str = "index") -> None:
        """Wait until the index, or the table, shows everything that the databases have committed now."""
        for source in self.topology.sources:
            words = ("--source", source, "--now", "--until", until, "--timeout", str(_TIMEOUT))
            self.command("wait", str(self.file), *words)

    def verdicts(self) -> list[dict[str, Any]]:
        """Compare log, table and index with the databases, and return what `verify --json` prints."""
        text = self.command("verify", str(self.file), "--json", codes=(0, 1, 3))
        return [json.loads(line) for line in text.splitlines()]

    def log_tail(self) -> str:
        """Return the end of what `tailorbird run` printed."""
        return self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""

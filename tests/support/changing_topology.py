"""A topology that changes while it runs on real servers, and the traffic of its databases."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from subprocess import CompletedProcess

import requests

from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology
from tailorbird.cli.cli_demo_steps import _behind
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.shop import SCHEMAS, Shop, ShopStatement, ShopTransaction
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tailorbird.operate.status.kafka_captured import PositionsReader
from tailorbird.verify.index.run_index_stage import verify_indexes
from tailorbird.verify.request import SilentTerminal, parse_request
from tailorbird.verify.table.run_table_stage import verify_tables
from tests.support.commands import tailorbird
from tests.support.waiting import wait_for

REVENUE = Path(__file__).parents[2] / "topologies" / "revenue.yml"
TAILORBIRD = str(Path(sys.executable).parent / "tailorbird")


class ChangingTopology:
    """A test's copy of topologies/revenue.yml, which may change while `tailorbird run` executes it."""

    def __init__(self, folder: Path) -> None:
        self.file, self.environ = folder / "evolving.yml", {"TAILORBIRD_HOME": str(folder)}
        self.name = f"evolving_{time.time_ns()}"
        self.file.write_text(REVENUE.read_text().replace("name: revenue\n", f"name: {self.name}\n"))
        self.log = folder / "run.log"

    @property
    def topology(self) -> Topology:
        """Return the topology that runs."""
        return load_topology(str(self.file))

    def edit(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def command(self, *words: str) -> CompletedProcess[str]:
        return tailorbird(words[0], str(self.file), *words[1:], environ=self.environ)

    @contextmanager
    def run(self, program: Sequence[str] = (TAILORBIRD,), environ: Mapping[str, str] | None = None) -> Iterator[None]:
        """Run every process of the topology by `program` while the block lasts."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*program, "run", str(self.file)],
                env={**(environ or os.environ), **self.environ},
                stdout=log,
                stderr=log,
            )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)

    def documents(self, query: str = "_kind:row") -> int:
        """Count the documents under the name that queries use; 0 if it has no such field, -1 before it exists."""
        url = f"{self.topology.solr.url}/{self.name}_orders/select"
        found = requests.get(url, params={"q": query, "rows": "0"}, timeout=10)
        if "undefined field" in found.text:
            return 0
        return int(found.json()["response"]["numFound"]) if found.status_code == 200 else -1

    def outcomes(self) -> dict[tuple[str, str], str]:
        """Return the results of `verify` for every table and index that runs."""
        asked = parse_request(self.topology, ["table", "index"], None)
        said = [*verify_tables(asked, SilentTerminal()), *verify_indexes(asked, SilentTerminal())]
        return {(one.verdict.stage, one.verdict.table): one.last.outcome for one in said}


@contextmanager
def loaded_shop(topology: Topology) -> Iterator[tuple[MySqlShop, Shop]]:
    """Drop and create the databases of a topology, load 1,000 orders, and yield the databases and their generator."""
    generator = Shop(random=Random(3))
    servers = MySqlShop(topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)
    for server in SCHEMAS:  # documents that another test has left
        gone = ShopStatement(server=server, sql=f"DROP DATABASE IF EXISTS {server}", values=())
        servers.apply(ShopTransaction(kind="order removed", statement=gone))
    servers.prepare()
    now_ms = int(time.time() * 1000)
    servers.load(generator.catalogue(customers=200, products=100, orders=1_000, now_ms=now_ms), lambda rows: None)
    yield servers, generator
    servers.close()


def settled(evolving: ChangingTopology, servers: MySqlShop) -> None:
    """Wait until every committed change is visible in every index that runs."""
    executed = servers.executed()
    with PositionsReader(evolving.topology) as positions:
        wait_for(
            lambda: not _behind(evolving.topology, servers, positions.read(), executed), "it does not catch up", 400
        )

"""Change a SELECT on real servers, under traffic: it is built alongside the old one, verified and swapped in; and
rolled back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from subprocess import CompletedProcess

import pytest
import requests

from cdc.process.file_topology import load_topology
from cdc.topology.topology import Topology
from indexer.peer.zk_registration import session
from tailorbird.cli.cli_demo_steps import _behind, background_traffic
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.shop import SCHEMAS, Shop, ShopStatement, ShopTransaction
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tailorbird.operate.status.kafka_captured import PositionsReader
from tailorbird.provision.hbase_admin import HBaseAdmin
from tailorbird.provision.journal import load_entry
from tailorbird.provision.zk_journal import StoredJournal
from tailorbird.verify.index.run_index_stage import verify_indexes
from tailorbird.verify.request import SilentTerminal, parse_request
from tailorbird.verify.table.run_table_stage import verify_tables
from tests.support.commands import tailorbird
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(2400)]

REVENUE = Path(__file__).parents[2] / "topologies" / "revenue.yml"
TAILORBIRD = str(Path(sys.executable).parent / "tailorbird")
RATE = 20.0


class ChangingTopology:
    """A test's topology whose file changes while `tailorbird run` executes it."""

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
    def run(self) -> Iterator[None]:
        with self.log.open("ab") as log:
            command = [TAILORBIRD, "run", str(self.file)]
            process = subprocess.Popen(command, env={**os.environ, **self.environ}, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)

    def documents(self, query: str = "_kind:row") -> int:
        """Count the documents under the name that queries use; None if it has no such field."""
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


@pytest.fixture
def evolving(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChangingTopology:
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    return ChangingTopology(tmp_path)


@pytest.fixture
def shop(evolving: ChangingTopology) -> Iterator[tuple[MySqlShop, Shop]]:
    generator = Shop(random=Random(3))
    servers = MySqlShop(evolving.topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)
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


def test_a_changed_select_is_built_swapped_in_and_rolled_back(
    evolving: ChangingTopology, shop: tuple[MySqlShop, Shop]
) -> None:
    """Under traffic, the name that queries use shows all old rows until it shows the new ones. Both versions equal the
    sources before and after the swap. It is rolled back without a rebuild and swapped again, and the retired version is
    removed.
    """
    servers, generator = shop
    with evolving.run():
        wait_for(lambda: evolving.documents() > 900, "the first rows do not come", 400)
        settled(evolving, servers)
        reported = evolving.command("plan").stdout.splitlines()
        assert [line for line in reported[:-1] if not line.startswith("keep")] == [], "the file is what runs"
        evolving.edit("o.note, o.created_at", "upper(o.note) AS note, o.quantity * 2 AS doubled, o.created_at")
        said = evolving.command("plan", "--json").stdout
        assert '"action": "build", "kind": "join", "name": "orders_wide.v2"' in said, said
        assert '"action": "rebuild"' not in said

        seen, stop = list[tuple[int, int]](), threading.Event()

        def look() -> None:
            while not stop.wait(0.05):
                seen.append((evolving.documents(), evolving.documents("_kind:row AND doubled:[* TO *]")))

        looking = threading.Thread(target=look)
        with background_traffic(generator, servers, rate=RATE):
            looking.start()
            applied = evolving.command("apply")
            time_of_move = len(seen)
            wait_for(lambda: len(seen) > time_of_move + 20, "nobody looks", 30)
            stop.set()
            looking.join()
        assert applied.returncode == 0, applied.stderr
        assert "queries see orders_wide.v2" in applied.stderr
        rows = [one for one, _ in seen]
        assert min(rows) > 900, "the old one serves, whole, and then the new one"
        assert seen[0][1] == 0
        assert seen[-1][1] > 900
        assert all(new == 0 or new > 900 for _, new in seen), "a query sees the one or the other"

        settled(evolving, servers)
        both = {
            (stage, name): "equal"
            for stage in ("table", "index")
            for name in ("orders_wide", "orders_wide.v2", "revenue")
        }
        assert evolving.outcomes() == both

        with background_traffic(generator, servers, rate=RATE):
            assert evolving.command("apply", "--rollback").returncode == 0
        assert evolving.documents("_kind:row AND doubled:[* TO *]") == 0
        settled(evolving, servers)
        assert evolving.outcomes() == both
        assert evolving.documents() > 900

        again = evolving.command("apply")
        assert again.returncode == 0, again.stderr
        assert evolving.documents("_kind:row AND doubled:[* TO *]") > 900
        retired = evolving.command("apply", "--retire")
        assert retired.returncode == 0, retired.stderr
        refused = evolving.command("apply", "--rollback")
        assert (refused.returncode, "nothing to roll back to" in refused.stderr) == (2, True)
        settled(evolving, servers)
        assert set(evolving.outcomes()) == {key for key in both if key[1] != "orders_wide"}
        assert set(evolving.outcomes().values()) == {"equal"}
    hbase = evolving.topology.hbase
    with HBaseAdmin(zookeeper=hbase.zookeeper, thrift=hbase.thrift) as admin:
        assert f"{evolving.name}:orders_wide" not in admin.tables(evolving.name)
        assert [one for one in admin.peers() if one.startswith(f"{evolving.name}_orders")] == [
            f"{evolving.name}_orders.v2_1"
        ]


def test_an_apply_killed_at_every_step_is_finished_by_the_next(
    evolving: ChangingTopology, shop: tuple[MySqlShop, Shop]
) -> None:
    """Kill -9 of one apply after the other, each at the next step, under traffic: the last one ends like an undisturbed
    one. While one runs, another is refused.
    """
    servers, generator = shop
    with evolving.run():
        wait_for(lambda: evolving.documents() > 900, "the first rows do not come", 400)
        evolving.edit("o.note, o.created_at", "upper(o.note) AS note, o.quantity * 2 AS doubled, o.created_at")
        killed = []
        with background_traffic(generator, servers, rate=RATE), session(evolving.topology.hbase.zookeeper) as client:
            journal = StoredJournal(client, evolving.name)
            for step in ("note versions", "table ", "peer ", "wait for", "verify", "move"):
                command = [TAILORBIRD, "apply", str(evolving.file)]
                with subprocess.Popen(command, env={**os.environ, **evolving.environ}) as process:
                    while process.poll() is None:
                        found = journal.read()
                        entry = load_entry(found[0]) if found else None
                        if entry and entry.who.pid == process.pid and entry.doing.startswith(step):
                            if step == "wait for":
                                refused = evolving.command("apply")
                                assert (refused.returncode, "another apply is running" in refused.stderr) == (2, True)
                            process.kill()
                            killed.append(step)
                            break
            last = evolving.command("apply")
        assert last.returncode == 0, last.stderr
        assert len(killed) >= 4, killed
        assert evolving.documents("_kind:row AND doubled:[* TO *]") > 900
        settled(evolving, servers)
        names = ("orders_wide", "orders_wide.v2", "revenue")
        assert evolving.outcomes() == {(stage, name): "equal" for stage in ("table", "index") for name in names}

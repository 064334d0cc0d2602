"""Change a SELECT on real servers, under traffic: it is built alongside the old one, verified and swapped in; and
rolled back.
"""

from __future__ import annotations

import os
import subprocess
import threading

import pytest

from indexer.peer.zk_registration import session
from tailorbird.cli.cli_demo_steps import background_traffic
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.shop import Shop
from tailorbird.provision.hbase_admin import HBaseAdmin
from tailorbird.provision.journal import load_entry
from tailorbird.provision.zk_journal import StoredJournal
from tests.support.changing_topology import TAILORBIRD, ChangingTopology, settled
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(2400)]

RATE = 20.0


def test_a_changed_select_is_built_swapped_in_and_rolled_back(
    changing: ChangingTopology, shop: tuple[MySqlShop, Shop]
) -> None:
    """Under traffic, the name that queries use shows all old rows until it shows the new ones. Both versions equal the
    sources before and after the swap. It is rolled back without a rebuild and swapped again, and the retired version is
    removed.
    """
    servers, generator = shop
    with changing.run():
        wait_for(lambda: changing.documents() > 900, "the first rows do not come", 400)
        settled(changing, servers)
        reported = changing.command("plan").stdout.splitlines()
        assert [line for line in reported[:-1] if not line.startswith("keep")] == [], "the file is what runs"
        changing.edit("o.note, o.created_at", "upper(o.note) AS note, o.quantity * 2 AS doubled, o.created_at")
        said = changing.command("plan", "--json").stdout
        assert '"action": "build", "kind": "join", "name": "orders_wide.v2"' in said, said
        assert '"action": "rebuild"' not in said

        seen, stop = list[tuple[int, int]](), threading.Event()

        def look() -> None:
            while not stop.wait(0.05):
                seen.append((changing.documents(), changing.documents("_kind:row AND doubled:[* TO *]")))

        looking = threading.Thread(target=look)
        with background_traffic(generator, servers, rate=RATE):
            looking.start()
            applied = changing.command("apply")
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

        settled(changing, servers)
        both = {
            (stage, name): "equal"
            for stage in ("table", "index")
            for name in ("orders_wide", "orders_wide.v2", "revenue")
        }
        assert changing.outcomes() == both

        with background_traffic(generator, servers, rate=RATE):
            assert changing.command("apply", "--rollback").returncode == 0
        assert changing.documents("_kind:row AND doubled:[* TO *]") == 0
        settled(changing, servers)
        assert changing.outcomes() == both
        assert changing.documents() > 900

        again = changing.command("apply")
        assert again.returncode == 0, again.stderr
        assert changing.documents("_kind:row AND doubled:[* TO *]") > 900
        retired = changing.command("apply", "--retire")
        assert retired.returncode == 0, retired.stderr
        refused = changing.command("apply", "--rollback")
        assert (refused.returncode, "nothing to roll back to" in refused.stderr) == (2, True)
        settled(changing, servers)
        assert set(changing.outcomes()) == {key for key in both if key[1] != "orders_wide"}
        assert set(changing.outcomes().values()) == {"equal"}
    hbase = changing.topology.hbase
    with HBaseAdmin(zookeeper=hbase.zookeeper, thrift=hbase.thrift) as admin:
        assert f"{changing.name}:orders_wide" not in admin.tables(changing.name)
        assert [one for one in admin.peers() if one.startswith(f"{changing.name}_orders")] == [
            f"{changing.name}_orders.v2_1"
        ]


def test_an_apply_killed_at_every_step_is_finished_by_the_next(
    changing: ChangingTopology, shop: tuple[MySqlShop, Shop]
) -> None:
    """Kill -9 of one apply after the other, each at the next step, under traffic: the last one ends like an undisturbed
    one. While one runs, another is refused.
    """
    servers, generator = shop
    with changing.run():
        wait_for(lambda: changing.documents() > 900, "the first rows do not come", 400)
        changing.edit("o.note, o.created_at", "upper(o.note) AS note, o.quantity * 2 AS doubled, o.created_at")
        killed = []
        with background_traffic(generator, servers, rate=RATE), session(changing.topology.hbase.zookeeper) as client:
            journal = StoredJournal(client, changing.name)
            for step in ("note versions", "table ", "peer ", "wait for", "verify", "move"):
                command = [TAILORBIRD, "apply", str(changing.file)]
                with subprocess.Popen(command, env={**os.environ, **changing.environ}) as process:
                    while process.poll() is None:
                        found = journal.read()
                        entry = load_entry(found[0]) if found else None
                        if entry and entry.who.pid == process.pid and entry.doing.startswith(step):
                            if step == "wait for":
                                refused = changing.command("apply")
                                assert (refused.returncode, "another apply is running" in refused.stderr) == (2, True)
                            process.kill()
                            killed.append(step)
                            break
            last = changing.command("apply")
        assert last.returncode == 0, last.stderr
        assert len(killed) >= 4, killed
        assert changing.documents("_kind:row AND doubled:[* TO *]") > 900
        settled(changing, servers)
        names = ("orders_wide", "orders_wide.v2", "revenue")
        assert changing.outcomes() == {(stage, name): "equal" for stage in ("table", "index") for name in names}

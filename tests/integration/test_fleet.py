"""The fleet on real MySQL and Kafka: two gateways, agents that dial out, and the command line. Tables are requested,
gateways and agents die, a source is rewound, and the host's policy is enforced.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.model.errors import UsageError
from cdc.process.file_topology import load_topology
from tailorbird.cli.change.cli_apply_sources import sources
from tailorbird.operate.status.http_metrics import read_health
from tailorbird.web.fleet.kafka_fleet import by_kafka
from tests.support.commands import tailorbird
from tests.support.fleet_on_servers import FleetOnServers, memory, policy, rows, spent
from tests.support.ports import free_port

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(600)]


@pytest.fixture
def fleet(capture: Callable[..., Any], tmp_path: Path) -> Iterator[FleetOnServers]:
    captured = capture("t", "u", "salaries")
    captured.sql(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, mail VARCHAR(50))",
        "CREATE TABLE u (id BIGINT PRIMARY KEY, v BIGINT)",
        "CREATE TABLE salaries (id BIGINT PRIMARY KEY, v BIGINT)",
        "INSERT INTO t VALUES " + ",".join(f"({n}, {n}, 'm{n}@x')" for n in range(500)),
        "INSERT INTO u VALUES (1, 1), (2, 2)",
        "INSERT INTO salaries VALUES (1, 1)",
    )
    made = FleetOnServers(captured, tmp_path)
    yield made
    made.close()


def test_a_fleet_from_nothing_to_a_table_in_sync(fleet: FleetOnServers) -> None:
    """Create the first token, read the map, request a table: it arrives whole and masked. Gateways and the agent are
    killed, and each change is published once. The policy refuses what it does not allow, a rewind publishes again, and
    the audit log has all of it.
    """
    captured = fleet.captured
    fleet.token = fleet.ask("token", "issue", "anna", "--role", "admin", "--topology", str(captured.file)).split()[0]
    fleet.gateway("g1")
    fleet.gateway("g2")
    fleet.agent("paris", policy(captured))
    fleet.until(lambda: all(fleet.api("agents", one) is not None for one in fleet.apis), "gateways do not serve")
    fleet.until(lambda: fleet.api("map"), "nothing is mapped")
    seen = {one["table"]: one for one in fleet.json("map", "--agent", "paris")}
    assert set(seen) == {"t", "u"}, "the policy allows no other table"
    assert [name for name, _ in seen["t"]["columns"]] == ["id", "v", "mail"]
    assert seen["t"]["captured"] is None
    fleet.ask("source", "add", "shop", "--agent", "paris", "--connection", "db", "--database", captured.name)
    said = fleet.ask("sync", "start", "shop", "t", "--wait", "60")
    assert "agent paris runs it" in said
    assert "mail leave masked" in said
    fleet.until(lambda: len(rows(captured, "t")) == 500, "the table did not arrive")
    assert {row["mail"] for row in rows(captured, "t").values()} == {"***"}
    refused = fleet.ask("sync", "start", "shop", "salaries", "--wait", "60", code=1)
    assert "salaries may not leave db" in refused
    captured.sql("INSERT INTO t VALUES (1000, 1, 'a')")
    fleet.until(lambda: 1000 in rows(captured, "t"), "the source that ran before did not resume")
    fleet.ask("config", "rollback", "shop", "2", "--wait", "60")

    held = fleet.json("agents")[0]["gateway"].partition("#")[0]
    other = "g2" if held == "g1" else "g1"
    fleet.kill(held)
    captured.sql("INSERT INTO t VALUES (1001, 1, 'a')")
    fleet.until(lambda: 1001 in rows(captured, "t"), "the other gateway did not take over")
    fleet.ask("sync", "start", "shop", "u", "--wait", "60", gateway=other)
    fleet.until(lambda: len(rows(captured, "u")) == 2, "the second table did not come")
    fleet.kill("paris")
    captured.sql("INSERT INTO t VALUES (1002, 1, 'a')", "DELETE FROM t WHERE id = 1000")
    fleet.agent("paris", policy(captured))
    fleet.until(lambda: 1002 in rows(captured, "t"), "the agent did not resume")
    port = free_port()
    fleet.gateway(held, "--metrics-port", str(port))
    live = [event for event in captured.events("t") if event["op"] in "cud"]
    reported = [(event["op"], (event["after"] or event["before"])["id"]) for event in live]
    assert sorted(reported) == [("c", 1000), ("c", 1001), ("c", 1002), ("d", 1000)], "lost, or published twice"
    assert "salaries" not in {event["source"]["table"] for event in captured.events("t")}

    places = fleet.json("positions", "show", "shop", gateway=other)
    assert places
    back = fleet.json("positions", "set", "shop", "--to-sequence", str(places[0]["sequence"]), gateway=other)[0]
    assert back["sequence"] == places[0]["sequence"]
    captured.sql("INSERT INTO t VALUES (1003, 1, 'a')")
    fleet.until(lambda: 1003 in rows(captured, "t"), "the capture did not resume from there")

    fleet.ask("drain", "paris", gateway=other)
    fleet.until(lambda: not fleet.api("agents", other)[0]["sources"], "the agent was not drained")
    assert fleet.kill("paris", signal.SIGTERM) == 0
    assert fleet.kill(other, signal.SIGTERM) == 0
    fleet.until(lambda: fleet.api("agents", held) is not None, f"{held} does not serve again")
    fleet.until(lambda: (read_health(port) or {}).get("status") == "moving", f"{held} is not healthy")
    lines = [(one["what"], one["outcome"]) for one in fleet.json("audit", "--last", "200", gateway=held)]
    for expected in (
        ("token issue", "done"), ("source add", "done"), ("sync start", "done"), ("config rollback", "done"),
        ("positions set", "done"), ("drain", "done"), ("lease of shop", "done"),
    ):  # fmt: skip
        assert expected in lines, lines


def test_apply_writes_the_topologys_configuration(capture: Callable[..., Any]) -> None:
    """It writes them once into the fleet's topic; a dry run writes nothing."""
    captured = capture("t")
    text = captured.file.read_text().replace("server_id:", "agent: {names: [paris], connection: db}, server_id:", 1)
    assert "agent:" in text
    captured.file.write_text(text)
    topology = load_topology(str(captured.file))
    [name] = topology.sources
    for dry_run, done in ((True, "made"), (False, "made"), (False, "kept"), (True, "kept")):
        assert list(sources(topology, dry_run=dry_run)) == [(name, done, "by paris")]
    with by_kafka(topology) as (topic, commands, _):
        assert topic.state.spec(name) is not None
        assert [(line["what"], line["outcome"]) for line in commands.audited(10)] == [
            ("source add", "begun"), ("source add", "done"),
        ]  # fmt: skip


def readme() -> list[str]:
    """Return the commands of README's walkthrough, in order."""
    text = (Path(__file__).parents[2] / "README.md").read_text()
    section = text.partition("## Agents that dial out")[2].partition("\n## ")[0]
    return [line.partition("  #")[0].strip() for line in section.splitlines() if line.startswith("    tailorbird ")]


def uses_little(fleet: FleetOnServers, agent: int) -> None:
    """Check that an agent with three sources in sync uses at most 150 MB of memory, and idle a twentieth of a core."""
    place = ("--agent", "paris", "--connection", "shop-db", "--database", fleet.captured.name, "--table", "t")
    for name in ("two", "three"):
        fleet.ask("source", "add", name, *place)

    def moving() -> bool:
        found = [one["reported"] for one in fleet.api("sources") or ()]
        return len(found) == 3 and all(one and one["status"] == "applied" and one["position"] for one in found)

    fleet.until(moving, "three sources do not run")
    time.sleep(3.0)  # wait until the snapshots end
    used = spent(agent)
    time.sleep(5.0)
    share, size = (spent(agent) - used) / 5.0, memory(agent)
    print(f"agent: {size:.0f} MB with three sources, {100 * share:.1f}% of a core idle")
    assert share <= 0.05, "idle, it takes more than a twentieth of a core"
    assert size <= 150, f"{size:.0f} MB"


def test_the_readme_walkthrough(fleet: FleetOnServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run them as a new user would, except for names of database and table, and free ports: fewer than ten commands.
    The agent uses little memory and CPU.
    """
    captured, lines = fleet.captured, readme()
    assert len(lines) < 10
    own = fleet.folder / "readme"
    own.mkdir()
    fleet.ca = own / "fleet-ca" / "ca.pem"
    (own / "policy.yml").write_text(policy(captured, "shop-db"))
    (own / "policy.yml").chmod(0o600)
    names = {
        "topologies/shop.yml --identity": f"topologies/shop.yml --listen {fleet.streams['g1']} --identity",
        "topologies/shop.yml": str(captured.file), "examples/policy.yml": "policy.yml",
        "127.0.0.1:7443": fleet.streams["g1"],
        "127.0.0.1:7444": fleet.apis["g1"], "--database shop --table orders": f"--database {captured.name} --table u",
        "fleet page": f"fleet page --port {free_port()}",
    }  # fmt: skip
    monkeypatch.chdir(own)
    monkeypatch.setenv("TAILORBIRD_FLEET_API", fleet.apis["g1"])
    monkeypatch.setenv("TAILORBIRD_CA_PASSPHRASE", "correct horse")  # a terminal asks for it
    said, agent = "", 0
    for number, line in enumerate(lines):
        for old, new in names.items():
            line = line.replace(old, new)
        words = shlex.split(line)[1:]
        if words[0] in ("gateway", "agent") or "fleet page" in line:
            with (own / f"{number}.log").open("wb") as log:
                begun = subprocess.Popen([sys.executable, "-m", "tailorbird", *words], stdout=log, stderr=log)
            fleet.processes[f"{number}"] = begun
            agent = begun.pid if words[0] == "agent" else agent
            continue
        done = tailorbird(*words)
        assert done.returncode == 0, f"{line}: {done.stderr}{fleet.logs()}"
        said = done.stdout
        if "token issue" in line:
            fleet.token = said.strip()
            monkeypatch.setenv("TAILORBIRD_FLEET_TOKEN", fleet.token)
            fleet.until(lambda: _agents(fleet), "the agent does not dial")
    assert "agent paris runs it" in said
    fleet.until(lambda: len(rows(captured, "u")) == 2, "the table did not arrive")
    uses_little(fleet, agent)


def _agents(fleet: FleetOnServers) -> Any:
    """Return the agents; None before the gateway has read the new token from Kafka."""
    try:
        return fleet.api("agents")
    except UsageError as error:
        if error.message != "no such token":
            raise
        return None


def _holders(fleet: FleetOnServers) -> dict[str, int]:
    return {one["agent"]: len(one["sources"]) for one in fleet.api("agents")}


@pytest.mark.matrix
def test_a_second_agent_takes_over_the_sources_of_the_first(fleet: FleetOnServers) -> None:
    """The first agent is suspended past its lease, then resumed: the source has moved, the old session writes nothing
    more, and each change is published once.
    """
    captured = fleet.captured
    fleet.token = fleet.ask("token", "issue", "anna", "--role", "admin", "--topology", str(captured.file)).split()[0]
    fleet.gateway("g1")
    fleet.agent("paris", policy(captured))
    fleet.agent("lyon", policy(captured))
    fleet.until(lambda: fleet.api("agents") is not None, "g1 does not serve")
    agents = ("--agent", "paris", "--agent", "lyon")
    place = ("--connection", "db", "--database", captured.name)
    fleet.ask("source", "add", "shop", *agents, *place, "--table", "u", "--wait", "60")
    fleet.until(lambda: len(rows(captured, "u")) == 2, "the table did not arrive")
    first = fleet.api("sources")[0]["agent"]
    second = "lyon" if first == "paris" else "paris"
    fleet.processes[first].send_signal(signal.SIGSTOP)
    captured.sql("INSERT INTO u VALUES (10, 10)")
    fleet.until(lambda: fleet.api("sources")[0]["agent"] == second, "no agent took over", 120)
    fleet.until(lambda: 10 in rows(captured, "u"), "the second agent captures nothing")
    fleet.processes[first].send_signal(signal.SIGCONT)
    captured.sql("INSERT INTO u VALUES (11, 11)")
    fleet.until(lambda: 11 in rows(captured, "u"), "after it resumed, the first agent stopped the second")
    fleet.until(
        lambda: {one["agent"]: len(one["sources"]) for one in fleet.api("agents")} == {first: 0, second: 1},
        "two agents have the source",
    )
    reported = [event["after"]["id"] for event in captured.events("u") if event["op"] == "c"]
    assert reported == [10, 11], "lost, or published twice"

"""Many tables in one Spark application, on real servers: a failure of one query leaves the others running."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc.process.file_running import ended, running
from cdc.process.file_topology import load_topology
from tailorbird.cli.change.cli_apply import provision
from tests.integration.test_join import History, JoinPipeline, oracle
from tests.integration.test_join_failures import jvm_of
from tests.integration.test_operation import ask
from tests.support.commands import tailorbird
from tests.support.ports import free_port
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka("hbase", "thrift"), pytest.mark.timeout(1800)]
MORE = """
  near: {query: 'SELECT n.id, n.name FROM shop.near n', row_key: [id]}
  named: {query: 'SELECT f.id, r.name FROM shop.facts f JOIN crm.far r ON r.id = f.far_id', row_key: [id]}
  misspelt: {query: 'SELECT n.id, n.nmae FROM shop.near n', row_key: [id]}
  fails: {query: 'SELECT f.id, f.price FROM shop.facts f', row_key: [id]}
"""
TABLES = ("wide", "near", "named", "misspelt", "fails")


def test_a_query_that_fails_leaves_the_others_alone(
    unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt column and a checkpoint that can not be written stop their own tables, each with its reason. The
    others' queries continue, and all resume where they were when the JVM is killed.
    """
    joined = JoinPipeline(unique("many"), tmp_path)
    joined.file.write_text(joined.file.read_text() + MORE)
    assert list(provision(load_topology(str(joined.file))))
    ports = {name: free_port() for name in TABLES}
    command = [sys.executable, "-m", "joins"]
    command += [word for name in TABLES for word in ("--table", name, "--metrics-port", str(ports[name]))]
    history = History(random.Random(31))

    def settles() -> None:
        joined.publish(history.change(100, ids=6))
        joined.publish_positions(history)
        wait_for(lambda: joined.barriers_report(history), "the barriers never come")
        assert joined.live() == oracle(joined, history)

    def at_work() -> set[str]:
        return {one.part.removeprefix("join ") for one in running(joined.name, tmp_path) if not one.dead}

    def down(table: str) -> str:
        code, said = ask(ports[table], "/health")
        return said if code == 503 and '"stuck"' in said else ""

    try:
        process = joined.start(command)
        settles()
        assert "nmae" in down("misspelt")
        assert ended(joined.name, tmp_path)["join misspelt"].kind == "TopologyError"
        wait_for(lambda: at_work() == {"wide", "near", "named", "fails"}, "another one is down")

        commits = tmp_path / "checkpoints" / joined.name / "fails" / "spark" / "commits"
        wait_for(lambda: any(commits.glob("[0-9]*")), "its query commits nothing")
        commits.rename(commits.with_name("commits.away"))
        commits.write_text("a file where Spark has a folder")
        settles()
        wait_for(lambda: down("fails"), f"it is started again and again: {joined.said()}", seconds=120)
        wait_for(lambda: at_work() == {"wide", "near", "named"}, "another one is down")
        settles()
        assert ask(ports["wide"], "/health")[0] == ask(ports["named"], "/health")[0] == 200

        os.kill(jvm_of(process.pid), signal.SIGKILL)
        assert process.wait(60) == 1
        assert "Spark's JVM ended with exit code -9; see " in joined.said().strip().splitlines()[-1]
        commits.unlink()
        commits.with_name("commits.away").rename(commits)
        joined.start(command)
        settles()
        wait_for(lambda: at_work() == {"wide", "near", "named", "fails"}, "a repaired table does not start")

        monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
        said = joined.file.read_text()
        joined.file.write_text(said.replace("n.id, n.name FROM", "n.id, upper(n.name) AS name FROM"))
        planned = tailorbird("plan", str(joined.file), "--json")
        reported = [json.loads(line) for line in planned.stdout.splitlines()]
        assert [one["name"] for one in reported if one["action"] == "rebuild"] == ["near"], planned.stderr
    finally:
        joined.close()

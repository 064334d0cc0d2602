"""Many tables in one Spark application, on real servers: a failure of one query leaves the others running."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cdc.process.file_running import ended, running
from cdc.process.file_topology import load_topology
from tailorbird.cli.change.cli_apply import provision
from tests.integration.test_join import FACT, History, JoinPipeline, oracle
from tests.integration.test_join_failures import jvm_of
from tests.integration.test_operation import ask
from tests.support.commands import tailorbird
from tests.support.ports import free_port
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka("hbase", "thrift"), pytest.mark.timeout(1800)]
# one partition each: their batches cost less CPU
MORE = """
  near: {query: 'SELECT n.id, n.name FROM shop.near n', row_key: [id], state_partitions: 1}
  named:
    query: SELECT f.id, r.name FROM shop.facts f JOIN crm.far r ON r.id = f.far_id
    row_key: [id]
    state_partitions: 1
  misspelt: {query: 'SELECT n.id, n.nmae FROM shop.near n', row_key: [id]}
  fails: {query: 'SELECT f.id, f.price FROM shop.facts f', row_key: [id], state_partitions: 1}
  levels:
    query: |
      SELECT f.id, f.price, n.name AS near, r.name AS far FROM shop.facts f
      LEFT JOIN shop.near n ON n.id = f.near_id
      LEFT JOIN crm.far r ON r.id = n.unused
    row_key: [id]
    state_partitions: 1
"""
TABLES = ("wide", "near", "named", "misspelt", "fails", "levels")
OTHERS = {"wide", "near", "named", "levels"}


# after a crash: test_join.py
@pytest.mark.parametrize("resumes", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_a_query_that_fails_leaves_the_others_alone(
    unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumes: bool
) -> None:
    """A misspelt column and a checkpoint that can not be written stop their own tables, each with its reason. The
    others' queries continue. While one of a plan's two levels has nothing to read, its table has a barrier, too. The
    process ends with its JVM, and all resume where they were.
    """
    joined = JoinPipeline(unique("many"), tmp_path)
    joined.file.write_text(joined.file.read_text() + MORE)
    assert list(provision(load_topology(str(joined.file))))
    levels = joined.of("levels")
    ports = {name: free_port() for name in TABLES}
    command = [sys.executable, "-m", "joins"]
    command += [word for name in TABLES for word in ("--table", name, "--metrics-port", str(ports[name]))]
    history = History(random.Random(31))

    def settles() -> None:
        joined.publish(history.change(100, ids=6))
        joined.publish_positions(history)
        for one in (joined, levels):
            wait_for(partial(one.barriers_report, history), "the barriers never come")
            assert one.live() == oracle(one, history)

    def at_work() -> set[str]:
        return {one.part.removeprefix("join ") for one in running(joined.name, tmp_path) if not one.dead}

    def down(table: str) -> str:
        code, said = ask(ports[table], "/health")
        return said if code == 503 and '"stuck"' in said else ""

    try:
        first = history.change(120, ids=6)
        joined.publish([event for event in first if event.source.table_id == FACT])
        joined.publish_positions(history)
        process = joined.start(command)
        wait_for(lambda: levels.barriers_report(history), "a level without records keeps the table from its barrier")
        joined.publish([event for event in first if event.source.table_id != FACT])
        settles()
        assert "nmae" in down("misspelt")
        assert ended(joined.name, tmp_path)["join misspelt"].kind == "TopologyError"
        wait_for(lambda: at_work() == {*OTHERS, "fails"}, "another one is down")

        commits = tmp_path / "checkpoints" / joined.name / "fails" / "spark" / "commits"
        wait_for(lambda: any(commits.glob("[0-9]*")), "its query commits nothing")
        commits.rename(commits.with_name("commits.away"))
        commits.write_text("a file where Spark has a folder")
        settles()
        wait_for(lambda: down("fails"), f"it is started again and again: {joined.said()}", seconds=120)
        wait_for(lambda: at_work() == OTHERS, "another one is down")
        settles()
        assert ask(ports["wide"], "/health")[0] == ask(ports["named"], "/health")[0] == 200

        os.kill(jvm_of(process.pid), signal.SIGKILL)
        assert process.wait(60) == 1
        assert "Spark's JVM ended with exit code -9; see " in joined.said().strip().splitlines()[-1]
        if resumes:
            commits.unlink()
            commits.with_name("commits.away").rename(commits)
            joined.start(command)
            settles()
            wait_for(lambda: at_work() == {*OTHERS, "fails"}, "a repaired table does not start")

        monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
        said = joined.file.read_text()
        joined.file.write_text(said.replace("n.id, n.name FROM", "n.id, upper(n.name) AS name FROM"))
        planned = tailorbird("plan", str(joined.file), "--json")
        reported = [json.loads(line) for line in planned.stdout.splitlines()]
        assert [one["name"] for one in reported if one["action"] == "rebuild"] == ["near"], planned.stderr
    finally:
        joined.close()

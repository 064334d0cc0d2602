"""The join through failures: whatever dies and whenever, the table ends equal to the SELECT, without extra rows."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cdc.model.naming import layouts_table
from joins.cluster.file_submit import cluster_command
from joins.runtime.cuts import merged
from joins.stores.hbase_table import JoinedTable
from tailorbird.devtools.stack.bars import reporting
from tailorbird.devtools.stack.proc_stack import Stack
from tests.integration.test_join import History, JoinPipeline, joined, oracle
from tests.support.waiting import wait_for

__all__ = ["joined"]  # a fixture

pytestmark = [pytest.mark.integration, pytest.mark.kafka("hbase", "thrift"), pytest.mark.timeout(1800)]
JOIN = [sys.executable, "-m", "joins"]
DYING = [sys.executable, "-m", "tests.support.dying_join"]


def kill_group(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def planned(joined: JoinPipeline) -> int:
    """Return the newest batch that the query has started; -1 before the first."""
    offsets = joined.folder / "checkpoints" / joined.name / "wide" / "spark" / "offsets"
    return max((int(file.name) for file in offsets.glob("[0-9]*")), default=-1)


def begins(joined: JoinPipeline, process: subprocess.Popen[str], *, after: int) -> None:
    """Wait until the query has started a batch after `after`, so that the kill hits it at work."""
    wait_for(lambda: planned(joined) > after or process.poll() is not None, "no batch begins")
    assert process.poll() is None, joined.said()


def settles(joined: JoinPipeline, history: History) -> None:
    joined.publish_positions(history)
    wait_for(lambda: joined.barriers_report(history), "the barriers never come", seconds=240)
    assert joined.live() == oracle(joined, history)


def survives_kills(joined: JoinPipeline, kills: int, seed: int) -> None:
    history, chance = History(random.Random(seed)), random.Random(seed)
    for kill in range(kills):
        joined.publish(history.change(250, ids=6))
        before = planned(joined)
        process = joined.start(JOIN)
        if kill % 4 == 3:  # while it starts, or repeats the batch that the last kill interrupted
            time.sleep(chance.uniform(2, 12))
            assert process.poll() is None, joined.said()
        else:
            begins(joined, process, after=before)
            joined.publish(history.change(50, ids=6))
            time.sleep(chance.uniform(0, 2))  # at any time: before, during or after the writes of a batch
        kill_group(process)
    joined.publish(history.change(50, ids=6))
    joined.start(JOIN)
    settles(joined, history)


def survives_a_lost_checkpoint(joined: JoinPipeline, seed: int) -> None:
    history = History(random.Random(seed))
    joined.publish(history.change(400, ids=6))
    first = joined.start(JOIN)
    settles(joined, history)
    kill_group(first)
    subprocess.run(["rm", "-rf", str(joined.folder / "checkpoints")], check=True)
    joined.publish([history.truncate(), *history.change(400, ids=6)])
    joined.start(JOIN)
    settles(joined, history)


@pytest.mark.matrix  # same as test_join.py, but at any moment
def test_driver_killed_at_random(joined: JoinPipeline) -> None:
    """SIGKILL hits driver, JVM and workers alike, at a random moment of their work."""
    survives_kills(joined, 1, seed=11)


@pytest.mark.matrix  # with many tables: test_many_tables.py
def test_the_jvm_alone_killed(joined: JoinPipeline) -> None:
    """The join reports it in one line and exits instead of waiting for an answer; its next start resumes."""
    history = History(random.Random(17))
    joined.publish(history.change(250, ids=6))
    process = joined.start(JOIN)
    begins(joined, process, after=-1)
    os.kill(jvm_of(process.pid), signal.SIGKILL)
    assert process.wait(60) == 1
    last = joined.said().strip().splitlines()[-1]
    assert last.startswith("tailorbird join: Spark's JVM ended with exit code -9; see "), joined.said()
    assert "Traceback" not in joined.said()
    joined.publish(history.change(50, ids=6))
    joined.start(JOIN)
    settles(joined, history)


def jvm_of(parent: int) -> int:
    """Return the JVM that a join has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields, command = stat.read_text().rpartition(")")[2].split(), (stat.parent / "cmdline").read_bytes()
        except OSError:  # it has exited
            continue
        if int(fields[1]) == parent and b"SparkSubmit" in command:
            return int(stat.parent.name)
    raise AssertionError(f"{parent} has no JVM")


@pytest.mark.matrix  # with every order of deaths: tests/laws/test_barriers.py
def test_no_barrier_covers_a_batch_that_failed(joined: JoinPipeline) -> None:
    """The driver dies in a batch with a bound timestamp, and positions move before its replay. Until the replay no
    barrier claims the batch; then its own barrier appears and names exactly where the batch ends in the log.
    """
    history = History(random.Random(19))
    joined.publish(history.change(200, ids=6))
    dying = joined.start([*DYING, "1"])
    wait_for(lambda: joined.barrier(0) is not None, "no first batch")
    joined.publish_positions(history)
    wait_for(lambda: joined.barriers_report(history), "the first batch has no barrier")
    covered, reported = joined.all_ends(), dict(history.sequences)
    joined.publish(history.change(200, ids=6))
    assert dying.wait(120) == -9, joined.said()
    run = json.loads((joined.folder / "checkpoints" / joined.name / "wide" / "query.json").read_text())["id"]
    bound = stored_table(joined).batch_timestamp(run, 1)
    assert bound is not None
    now = dict(history.sequences)
    history.sequences = {source: sequence + 1 for source, sequence in reported.items()}
    joined.publish_positions(history, covered)  # batch 0 covers them: a barrier outside of any batch could report them
    history.sequences = now

    joined.start(JOIN)
    commits = joined.folder / "checkpoints" / joined.name / "wide" / "spark" / "commits"

    def replayed() -> bool:
        barrier = joined.barrier(0)
        assert barrier is not None
        assert barrier.batch >= 1 or barrier.timestamp < bound, "a barrier says that the batch is there"
        return (commits / "1").exists()

    wait_for(replayed, "the batch is never repeated")
    barrier = joined.barrier(0)
    assert barrier is not None
    assert barrier.batch >= 1, "its own barrier is hidden"
    settles(joined, history)
    barrier = joined.barrier(1)
    assert barrier is not None
    assert (merged(barrier.ends), barrier.incomplete) == (joined.all_ends(), 0)


def stored_table(joined: JoinPipeline) -> JoinedTable:
    """Return the table as the driver sees it."""
    layouts = layouts_table(joined.name)
    return JoinedTable(joined.hbase, table=joined.table, layouts=layouts, name="wide", family="d", buckets=2)


@pytest.mark.matrix
@pytest.mark.chaos
def test_driver_killed_at_random_very_often(joined: JoinPipeline) -> None:
    """Send SIGKILL twenty times."""
    survives_kills(joined, 20, seed=12)


@pytest.mark.matrix
def test_executors_in_processes_of_their_own(joined: JoinPipeline) -> None:
    """The command of `tailorbird submit` on a cluster of two executors: kernel and sources reach them."""
    history = History(random.Random(16))
    joined.publish(history.change(300, ids=6))
    command = cluster_command(joined.topology, [joined.topology.tables["wide"]], master="local-cluster[2,1,1024]")
    joined.start(command[: command.index(str(joined.file))])
    settles(joined, history)


@pytest.mark.matrix
@pytest.mark.chaos
def test_python_worker_killed(joined: JoinPipeline) -> None:
    """A worker that dies during a write is replaced: its task runs again and writes identical cells."""
    history = History(random.Random(13))
    joined.publish(history.change(3000, ids=200))
    process = joined.start(JOIN)
    begins(joined, process, after=-1)
    killed = 0
    deadline = time.monotonic() + 120
    while killed < 3 and time.monotonic() < deadline:
        for worker in workers_of(process.pid):
            os.kill(worker, signal.SIGKILL)
            killed += 1
            joined.publish(history.change(100, ids=200))
            break
        time.sleep(1)
    assert killed >= 1, "no worker was seen at work"
    settles(joined, history)
    assert process.poll() is None, "the query did not survive its workers"


def workers_of(group: int) -> list[int]:
    """Return the Python workers of a join: children of pyspark's daemon in its session (the daemon leaves the process
    group).
    """
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_bytes()
            parent = (Path("/proc") / fields[1] / "cmdline").read_bytes()
        except OSError:  # it has exited
            continue
        if int(fields[3]) == group and b"pyspark.daemon" in command and b"pyspark.daemon" in parent:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.matrix
@pytest.mark.chaos
def test_hbase_restarted(joined: JoinPipeline, stack: Stack) -> None:
    """HBase is killed by SIGKILL during writes and restarts: the query waits, and no row is missing."""
    history = History(random.Random(17))
    joined.publish(history.change(2000, ids=100))
    process = joined.start(JOIN)
    begins(joined, process, after=-1)
    stack.kill("hbase")
    joined.publish(history.change(500, ids=100))
    time.sleep(5)
    with reporting() as progress:
        stack.up(progress)
    settles(joined, history)
    assert process.poll() is None, "the query did not survive HBase"


@pytest.mark.matrix
@pytest.mark.chaos
def test_checkpoint_deleted(joined: JoinPipeline) -> None:
    """The whole checkpoint is lost while the join is down and rows are deleted: it rebuilds and sweeps them."""
    survives_a_lost_checkpoint(joined, seed=14)


@pytest.mark.matrix
@pytest.mark.chaos
def test_checkpoint_volume_full(joined: JoinPipeline) -> None:
    """A full volume under the checkpoint ends the join with the reason; with free space it resumes where it stopped."""
    volume = joined.folder / "checkpoints"
    volume.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(volume)], check=False, capture_output=True
    )
    assert mounted.returncode == 0, "this test mounts a small volume: run it as root"
    try:
        history = History(random.Random(15))
        joined.publish(history.change(300, ids=6))
        filler = volume / "filler"
        process = joined.start(JOIN)
        settles(joined, history)
        filler.write_bytes(b"x" * room(volume))
        joined.publish(history.change(300, ids=6))
        assert process.wait(240) != 0
        assert "No space left" in joined.said()
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=200m", str(volume)], check=True)
        joined.start(JOIN)
        settles(joined, history)
        kill_group(joined.processes[-1])
    finally:
        subprocess.run(["umount", "-l", str(volume)], check=True)


def room(folder: Path) -> int:
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize

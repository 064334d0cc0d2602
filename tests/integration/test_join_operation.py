"""A join in operation: its rows in a topic, its metrics, and the output of `tailorbird state inspect`."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.model import naming
from tests.integration.test_join import History, JoinPipeline, oracle
from tests.integration.test_operation import ask
from tests.support.ports import free_port
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
JOIN = [sys.executable, "-m", "joins"]


@pytest.fixture
def make(unique: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[..., JoinPipeline]]:
    made: list[JoinPipeline] = []

    def joined(**options: str) -> JoinPipeline:
        made.append(JoinPipeline(unique("join"), tmp_path, **options))
        return made[-1]

    yield joined
    for one in made:
        one.close()


def upserted(joined: JoinPipeline) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the newest record of each key, as a reader of the upsert topic keeps them."""
    topic = naming.upsert_topic(joined.name, "wide")
    rows: dict[bytes, dict[str, Any]] = {}
    for record in joined.records(topic, 2):
        assert record.key is not None
        if record.value is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = json.loads(record.value)
            assert json.loads(record.key) == {"id": rows[record.key]["id"]}
    return {(row["id"],): row for row in rows.values()}


def state_of(joined: JoinPipeline, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        str(Path(sys.executable).parent / "tailorbird"),
        "state",
        "inspect",
        str(joined.file),
        "wide",
        *arguments,
    ]
    environ = {**os.environ, "TAILORBIRD_HOME": str(joined.folder)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=200, check=False)


def gauges(port: int, name: str) -> dict[str, float]:
    """Return the values of a metric by its labels."""
    lines = [line for line in ask(port, "/metrics")[1].splitlines() if line.startswith(f"tailorbird_join_{name}{{")]
    return {line.partition("{")[2].partition("}")[0]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.matrix
def test_rows_in_a_topic_metrics_and_state(make: Callable[..., JoinPipeline]) -> None:
    """`sink: kafka` holds the SELECT's rows, also after a lost checkpoint. The metrics count the state's rows. `state
    inspect` shows them, and exits with one line if Kafka is unavailable.
    """
    joined = make(sink="kafka")
    topic = naming.upsert_topic(joined.name, "wide")
    history = History(random.Random(21))
    joined.publish(history.change(300, ids=6))
    port = free_port()
    running = joined.start([*JOIN, "--metrics-port", str(port)])
    wait_for(lambda: settled(joined, running) and topic in joined.admin.list_topics(timeout=20).topics, "no topic")
    wait_for(lambda: settled(joined, running) and upserted(joined) == oracle(joined, history), "the rows never come")

    wait_for(lambda: len(gauges(port, "state_rows")) == 2, "no figures of the state's two operators")
    assert sum(gauges(port, "state_rows").values()) > 0, "an estimate, but of something"
    assert all(size > 0 for size in gauges(port, "state_bytes").values())
    assert any('phase="addBatch"' in labels for labels in gauges(port, "batch_seconds"))

    (fact,) = next(iter(oracle(joined, history)))
    reported = state_of(joined, str(fact), "--json")
    assert reported.returncode == 0, reported.stderr
    held = [json.loads(line) for line in reported.stdout.splitlines()]
    whole = next(one for one in held if one["step"] == "star of f" and one["what"] == "row")
    assert fact in whole["values"]
    refused = state_of(joined, "no JSON")
    assert (refused.returncode, "is no key" in refused.stderr) == (2, True)

    os.killpg(running.pid, signal.SIGKILL)
    running.wait(30)
    known = joined.file.read_text()
    joined.file.write_text(known.replace(joined.servers, f"127.0.0.1:{free_port()}"))
    unavailable = state_of(joined, str(fact))
    assert unavailable.returncode == 2
    assert "has no schema of crm.crm.far, shop.shop.facts, shop.shop.near" in unavailable.stderr
    joined.file.write_text(known)

    subprocess.run(["rm", "-rf", str(joined.folder / "checkpoints")], check=True)
    for deleted in joined.admin.delete_topics(joined.topics).values():  # rows that only the former run has seen
        deleted.result(30)
    again = History(random.Random(22))
    joined.make_topics()
    joined.publish(again.change(100, ids=3))
    assert oracle(joined, again).keys() != oracle(joined, history).keys()
    once_more = joined.start(JOIN)
    wait_for(lambda: settled(joined, once_more) and upserted(joined) == oracle(joined, again), "former rows stay")


def settled(joined: JoinPipeline, process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None, f"exit {process.returncode}: {joined.said()[-2000:]}"
    return True


@pytest.mark.matrix
def test_late_changes_after_a_truncate(make: Callable[..., JoinPipeline]) -> None:
    """A source that repeats and reorders sends records older than a TRUNCATE too late: in its batch, in later ones and
    after a restart.
    """
    joined = make(delivery="at_least_once")
    history = History(random.Random(23))
    before = history.change(200, ids=6)
    late = [event for event in before if event.source.table_id.table == "facts"]
    joined.publish([event for event in before if event not in late[::2]])
    running = joined.start(JOIN)

    def shows(what: History) -> bool:
        assert running.poll() is None, f"exit {running.returncode}: {joined.said()[-2000:]}"
        joined.publish_positions(what)
        return joined.barriers_report(what)

    wait_for(lambda: shows(history), "the barriers never come")
    joined.publish([history.truncate(), *late[:40], *history.change(20, ids=6)])
    wait_for(lambda: shows(history), "TRUNCATE never gets through")
    assert joined.live() == oracle(joined, history)
    joined.publish([*late, *history.change(20, ids=6)])
    wait_for(lambda: shows(history), "late changes never get through")
    assert joined.live() == oracle(joined, history)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(30)
    joined.publish([*late, *history.change(20, ids=6)])
    running = joined.start(JOIN)
    wait_for(lambda: shows(history), "the join does not resume")
    assert joined.live() == oracle(joined, history)

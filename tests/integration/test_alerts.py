"""The alert rules in the real Prometheus, which scrapes real processes: each alert fires, and alone."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_join import History, JoinPipeline
from tests.integration.test_operation import ask, start
from tests.support.dropping_proxy import DroppingProxy
from tests.support.ports import free_port
from tests.support.prometheus import prometheus
from tests.support.waiting import wait_for
from tests.support.webhook_receiver import receiver

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
_SOON = {"tailorbird_join_lag_seconds > 60": "tailorbird_join_lag_seconds > 3", "[5m]) > 0\n": "[5s]) > 0\n"}


@pytest.mark.kafka("mysql-shop")
def test_a_table_without_rows_and_a_capture_that_stops(capture: Callable[..., Any], tmp_path: Path) -> None:
    """A captured table becomes one that cannot be captured: its alert fires, and ends when the table can be captured
    again. The capture is killed: that alert fires. Webhooks report the same."""
    captured, port = capture("t", "u"), free_port()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    process = start(captured, port)
    captured.streaming(process)
    captured.wait_for(lambda: ask(port, "/health")[0] == 200, "never healthy")
    with receiver() as hook, prometheus(tmp_path, port) as watching:
        assert watching.firing() == {}
        captured.file.write_text(f"{captured.file.read_text()}webhooks: {{ops: {{url: '{hook.url}', secret: s}}}}\n")
        notifying(captured)
        table = f"left-out/shop.{captured.name}.u"
        captured.sql("ALTER TABLE u ENGINE = MyISAM")
        labels = watching.wait("TailorbirdCapturedTableIncomplete")["TailorbirdCapturedTableIncomplete"]
        assert (labels["source"], labels["table"], labels["why"]) == ("shop", f"{captured.name}.u", "left_out")
        captured.wait_for(lambda: hook.subjects() == {("table_incomplete.began", table)}, "no event of the table")
        captured.sql("ALTER TABLE u ENGINE = InnoDB")
        watching.wait()
        captured.wait_for(lambda: ("table_incomplete.ended", table) in hook.subjects(), "the event does not end")
        process.kill()
        process.communicate(timeout=60)
        labels = watching.wait("TailorbirdProcessDown")["TailorbirdProcessDown"]
        assert labels["instance"] == f"127.0.0.1:{port}"
        stop = ("source_stopped.began", "source/shop")
        captured.wait_for(lambda: stop in hook.subjects(), "no event of the capture")
        assert len(hook.events()) == 3


def notifying(captured: Any, *options: str) -> None:
    """Start `tailorbird notify`."""
    command = [sys.executable, "-m", "tailorbird", "notify", str(captured.file), *options]
    captured.processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))


@pytest.mark.matrix
def test_a_slot_of_a_stopped_capture_keeps_the_log(capture_postgres: Callable[..., Any], tmp_path: Path) -> None:
    """The limit is that of the topology. Alert and webhook come from `notify`, since the capture does not run."""
    captured, port = capture_postgres("t", extra=", alarm_slot: 1MiB"), free_port()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, text TEXT)")
    process = captured.start()
    captured.streaming(process)
    with receiver() as hook:
        captured.file.write_text(f"{captured.file.read_text()}webhooks: {{ops: {{url: '{hook.url}'}}}}\n")
        process.terminate()
        process.communicate(timeout=60)
        notifying(captured, "--metrics-port", str(port))
        with prometheus(tmp_path, port) as watching:
            assert watching.firing() == {}
            captured.sql("INSERT INTO t SELECT n, repeat(md5(n::text), 40) FROM generate_series(1, 3000) n")
            assert watching.wait("TailorbirdSlotKeepsLog")["TailorbirdSlotKeepsLog"]["source"] == "shop"
            kept = ("slot_exceeded.began", "source/shop")
            captured.wait_for(lambda: kept in hook.subjects(), "no event of the slot")
            captured.streaming(captured.start())
            captured.caught_up()
            captured.wait_for(lambda: ("slot_exceeded.ended", "source/shop") in hook.subjects(), "it does not end")


@pytest.mark.matrix
def test_a_joined_table_that_lags_and_lacks_rows(stack: object, unique: Callable[[str], str], tmp_path: Path) -> None:
    """A record that cannot be joined: the table is incomplete. HBase does not answer: the lag grows."""
    joined, port = JoinPipeline(unique("alert"), tmp_path), free_port()
    thrift = f"127.0.0.1:{os.environ['TAILORBIRD_PORT_THRIFT']}"
    proxy = DroppingProxy(thrift)
    joined.file.write_text(joined.file.read_text().replace(thrift, proxy.address))
    history = History(random.Random(7))
    try:
        joined.publish(history.change(50, ids=6))
        joined.publish_positions(history)
        joined.start([sys.executable, "-m", "joins", "--metrics-port", str(port)])
        wait_for(lambda: ask(port, "/health")[0] == 200 and joined.cells(), "the join writes nothing", 300)
        with prometheus(tmp_path, port, thresholds=_SOON) as watching:
            watching.wait()
            joined.producer.produce(joined.topics[0], key=b'{"id": 1}', value=b"{")
            joined.producer.flush(30)
            watching.wait("TailorbirdTableIncomplete", "TailorbirdDeadLetters")
            proxy.cut.set()
            joined.publish(history.change(50, ids=6))
            joined.publish_positions(history)
            found = watching.wait("TailorbirdTableIncomplete", "TailorbirdDeadLetters", "TailorbirdTableLagGrows")
            assert found["TailorbirdTableLagGrows"]["table"] == "wide"
    finally:
        joined.close()
        proxy.close()

"""The alert rules in the real Prometheus, which scrapes real processes: each alert fires, and alone."""

from __future__ import annotations

import os
import random
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

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
_SOON = {"tailorbird_join_lag_seconds > 60": "tailorbird_join_lag_seconds > 3", "[5m]) > 0\n": "[5s]) > 0\n"}


@pytest.mark.kafka("mysql-shop")
def test_a_table_without_rows_and_a_capture_that_stops(capture: Callable[..., Any], tmp_path: Path) -> None:
    """A captured table becomes one that cannot be captured: its alert fires, and ends when the table can be captured
    again. The capture is killed: that alert fires."""
    captured, port = capture("t", "u"), free_port()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    process = start(captured, port)
    captured.streaming(process)
    captured.wait_for(lambda: ask(port, "/health")[0] == 200, "never healthy")
    with prometheus(tmp_path, port) as watching:
        assert watching.firing() == {}
        captured.sql("ALTER TABLE u ENGINE = MyISAM")
        labels = watching.wait("TailorbirdCapturedTableIncomplete")["TailorbirdCapturedTableIncomplete"]
        assert (labels["source"], labels["table"], labels["why"]) == ("shop", f"{captured.name}.u", "left_out")
        captured.sql("ALTER TABLE u ENGINE = InnoDB")
        watching.wait()
        process.kill()
        process.communicate(timeout=60)
        labels = watching.wait("TailorbirdProcessDown")["TailorbirdProcessDown"]
        assert labels["instance"] == f"127.0.0.1:{port}"


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

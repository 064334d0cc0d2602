"""Several sources of an agent that poll one table share the policy's limit of polls."""

from __future__ import annotations

from dataclasses import replace

from ingest.agent.grpc_tasks import SourceTask, TaskReport, sharing
from ingest.agent.policy import NarrowedSource
from ingest.fleet.fleet_pb2 import Assign, Report
from tests.ingest.agent.test_policy_streams import POLLED, run


def task(runs: NarrowedSource | None) -> SourceTask:
    return SourceTask((17, Assign()), 1, 1, TaskReport(Report(), lambda report: None), runs=runs)


def polling(*tables: str) -> NarrowedSource:
    return run({**POLLED, "tables": list(tables)})


def test_the_sources_of_the_most_polled_table_count() -> None:
    """Those that stopped, were refused, or poll another connection do not."""
    orders = polling("orders")
    tasks = {"a": task(orders)}
    assert sharing(tasks, orders) == 1
    tasks |= {"b": task(polling("orders")), "c": task(polling("orders")), "refused": task(None)}
    assert sharing(tasks, orders) == 3
    tasks["c"].stopped.set()
    assert sharing(tasks, orders) == 2
    other = replace(orders, local=replace(orders.local, alias="other"))
    assert sharing({**tasks, "d": task(other)}, orders) == 2
    assert sharing({**tasks, "d": task(other)}, other) == 1

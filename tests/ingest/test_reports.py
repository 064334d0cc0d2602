"""A capture reports rows that it could not publish: each kind by its own name, with the topic that has them."""

from __future__ import annotations

import threading
from itertools import groupby
from typing import Any, cast

import pytest
import structlog
from prometheus_client import REGISTRY
from structlog.testing import LogCapture

from cdc.model.event import Position
from cdc.topology.reader import read_topology
from ingest.agent.grpc_tasks import Task, TaskReport
from ingest.agent.policy import LocalConnection, Policy
from ingest.agent.run_agent import TaskReports
from ingest.fleet.fleet_pb2 import Report
from ingest.records.capture_interfaces import Checkpoint
from ingest.report.http_reports import Reports

TOPOLOGY = """
name: shop
sources:
  shop: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [t], server_id: 1}
tables:
  wide: {query: SELECT a.id FROM shop.t a, row_key: [id]}
"""


@pytest.mark.parametrize(
    ("images", "quarantined", "lines"),
    [
        (0, 0, []),
        (2, 0, [("row images refused", "shop.deadletters")]),
        (0, 3, [("rows quarantined", "shop.quarantine")]),
        (2, 3, [("row images refused", "shop.deadletters"), ("rows quarantined", "shop.quarantine")]),
    ],
)
def test_refused_and_quarantined_rows_are_reported(images: int, quarantined: int, lines: list[tuple[str, str]]) -> None:
    """Log lines name the topic that has the rows; counters count both kinds separately."""
    log = LogCapture()
    source = read_topology(TOPOLOGY, file="shop.yml", environ={}).sources["shop"]
    reports = Reports("shop", source, structlog.wrap_logger(None, processors=[log]))
    names = {"tailorbird_dead_letters_total": {"stage": "capture"}, "tailorbird_quarantined_total": {"source": "shop"}}
    before = [REGISTRY.get_sample_value(name, labels) or 0.0 for name, labels in names.items()]
    reports.refused(images, quarantined)
    after = [REGISTRY.get_sample_value(name, labels) or 0.0 for name, labels in names.items()]
    assert [now - then for now, then in zip(after, before, strict=True)] == [images, quarantined]
    assert [(entry["event"], entry["topic"]) for entry in log.entries] == lines


def test_a_table_that_waits_is_logged_when_its_reason_changes() -> None:
    """Not at each attempt to read it. When it does not wait any more, that is logged, too."""
    log = LogCapture()
    source = read_topology(TOPOLOGY, file="shop.yml", environ={}).sources["shop"]
    reports = Reports("shop", source, structlog.wrap_logger(None, processors=[log]))
    for tables in ({}, {"d.t": "late"}, {"d.t": "late"}, {"d.t": "late", "d.u": "late"}, {"d.t": "stopped"}, {}, {}):
        reports.waits(tables)
    assert [(entry["event"], entry["table"], entry.get("why")) for entry in log.entries] == [
        ("tables are not read", "d.t", "late"),
        ("tables are not read", "d.u", "late"),
        ("tables are not read", "d.t", "stopped"),
        ("tables do not wait any more", "d.u", None),
        ("tables do not wait any more", "d.t", None),
    ]


def test_an_agent_reports_why_tables_wait() -> None:
    """With the progress, also after the stream was opened again, and before the restrictions of its policy."""
    source = read_topology(TOPOLOGY, file="shop.yml", environ={}).sources["shop"]
    sent = list[str]()
    task = Task(
        "shop", cast(Policy, None), cast(LocalConnection, None), source, "without table u", cast(Any, None),
        threading.Event(), TaskReport(Report(), lambda report: sent.append(report.reason)),
    )  # fmt: skip
    reports = TaskReports(task)
    place = Position(file="f", pos=1, gtid_set="", sequence=1)
    reports.resumed(place)
    reports.waits({f"d.{name}": "it is late" for name in "abcd"})
    reports.resumed(place)
    reports.waits({})
    shown = "not read: d.a, d.b, d.c, …: it is late; without table u"
    assert [reason for reason, _ in groupby(sent)] == ["", "without table u", shown, "without table u"]


def test_incomplete_tables_have_a_series_until_they_are_complete() -> None:
    """Each reason has its own series, and it is removed at the commit that no longer has the reason."""
    source = read_topology(TOPOLOGY, file="shop.yml", environ={}).sources["shop"]
    reports = Reports("shop", source, structlog.wrap_logger(None, processors=[LogCapture()]))
    place = Position(file="f", pos=4, row=0, gtid_set="", sequence=1)

    def shown(**state: object) -> set[tuple[str, str]]:
        reports.committed(Checkpoint(position=place, snapshot="done", ts_ms=1, state=state))
        samples = (one for family in REGISTRY.collect() for one in family.samples)
        found = (one.labels for one in samples if one.name == "tailorbird_capture_incomplete_tables" and one.value)
        return {(one["table"], one["why"]) for one in found if one["source"] == "shop"}

    assert shown(kept={"d.t": {}}, left_out={"d.u": {}}) == {("d.t", "quarantine"), ("d.u", "left_out")}
    assert shown(left_out={"d.t": {}}, waits={"d.v": {}}) == {("d.t", "left_out"), ("d.v", "waiting")}
    assert shown(reread={"why": "purged", "since_ms": 1}, snapshots={"d.t": {}}) == {("*", "reread")}
    assert shown(snapshots={"d.t": {}}) == set()

"""A capture reports rows that it could not publish: each kind by its own name, with the topic that has them."""

from __future__ import annotations

import pytest
import structlog
from prometheus_client import REGISTRY
from structlog.testing import LogCapture

from cdc.topology.reader import read_topology
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

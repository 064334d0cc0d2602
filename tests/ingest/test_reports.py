"""What a capture tells of what it could not hand on: each kind by its own word, and where it lies."""

from __future__ import annotations

import pytest
import structlog
from prometheus_client import REGISTRY
from structlog.testing import LogCapture

from cdc.topology.reader import read_topology
from ingest.report.http_reports import Reports

TOPOLOGY = """
name: told
sources:
  told: {type: mysql, hostname: h, username: u, password: p, database: d, tables: [t], server_id: 1}
tables:
  wide: {query: SELECT a.id FROM told.t a, row_key: [id]}
"""


@pytest.mark.parametrize(
    ("images", "quarantined", "lines"),
    [
        (0, 0, []),
        (2, 0, [("row images refused", "told.deadletters")]),
        (0, 3, [("rows quarantined", "told.quarantine")]),
        (2, 3, [("row images refused", "told.deadletters"), ("rows quarantined", "told.quarantine")]),
    ],
)
def test_what_is_refused_and_what_is_in_quarantine(images: int, quarantined: int, lines: list[tuple[str, str]]) -> None:
    """Lines name the topic in which the rows lie; counters count them apart."""
    log = LogCapture()
    source = read_topology(TOPOLOGY, file="told.yml", environ={}).sources["told"]
    reports = Reports("told", source, structlog.wrap_logger(None, processors=[log]))
    names = {"tailorbird_dead_letters_total": {"stage": "capture"}, "tailorbird_quarantined_total": {"source": "told"}}
    before = [REGISTRY.get_sample_value(name, labels) or 0.0 for name, labels in names.items()]
    reports.refused(images, quarantined)
    after = [REGISTRY.get_sample_value(name, labels) or 0.0 for name, labels in names.items()]
    assert [now - then for now, then in zip(after, before, strict=True)] == [images, quarantined]
    assert [(entry["event"], entry["topic"]) for entry in log.entries] == lines

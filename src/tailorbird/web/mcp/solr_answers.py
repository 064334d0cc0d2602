"""Read what the MCP server's tools answer: rows and barriers from Solr, traces from the log, verdicts from Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from cdc.topology.topology import Dashboard, Topology
from indexer.engine.engine import visible_positions, visible_timestamp, visible_version
from tailorbird.verify.checks.check_status import check_statuses
from tailorbird.verify.checks.kafka_runs import RunsReader
from tailorbird.verify.findings import WORST_FIRST
from tailorbird.web.dashboard.panels.fitting import FitBoard, fit
from tailorbird.web.dashboard.query import Params
from tailorbird.web.dashboard.solr_view import SolrView

ExplainRow = Callable[[Topology, str, bytes], Mapping[str, Any] | None]


class DashboardAnswers:
    """Answers about one dashboard. `explain` traces a row of a table (`tailorbird explain`)."""

    def __init__(self, topology: Topology, dashboard: Dashboard, explain: ExplainRow) -> None:
        self._topology, self._dashboard, self._explain = topology, dashboard, explain
        self._index = topology.indexes[dashboard.index]
        self._view = SolrView(topology.solr, self._index.collection)

    def board(self) -> FitBoard:
        """Return the dashboard with the current fields of its index."""
        return fit(self._topology, self._dashboard, self._view.fields())

    def select(self, params: Params) -> Mapping[str, Any]:
        """Return Solr's answer to a query."""
        return self._view.select(params)

    def cut(self) -> Mapping[str, Any]:
        """Return the position of each source up to which queries of the index see every commit, and the time of it."""
        positions = visible_positions(self._topology, self._index)
        return {
            "sources": {source: dict(one) for source, one in positions.items()},
            "timestamp_ms": visible_timestamp(self._topology, self._index) if positions else None,
        }

    def version(self) -> int | None:
        """Return the version of rows (`_fence`) up to which queries of the index see every row, None before that."""
        return visible_version(self._topology, self._index)

    def verification(self) -> Mapping[str, Any]:
        """Return the last result of each stage of the topology's checks that compares this table and index."""
        if not self._topology.checks:
            return {"verdict": "unknown", "why": "the topology declares no `checks`", "results": []}
        with RunsReader(self._topology) as reader:
            statuses = check_statuses(self._topology, reader.read(), time.time_ns() // 1_000_000)
        wanted = {("table", self._index.table), ("index", self._index.table), ("index", self._index.name)}
        found = [
            {
                "check": status.check, "stage": one.stage, "verdict": one.outcome, "rows": one.rows,
                "differing": one.differing, "at_ms": one.at_ms, "cut": one.cut, "not_compared": list(one.unknown),
            }
            for status in statuses
            if status.run is not None
            for one in status.run.checked
            if (one.stage, one.table) in wanted
        ]  # fmt: skip
        verdicts = {one["verdict"] for one in found}
        worst = next((one for one in WORST_FIRST if one in verdicts), "unknown")
        return {"verdict": worst, "results": found}

    def explain(self, key: bytes) -> Mapping[str, Any] | None:
        """Return the sources of a row's cells, None if there is no such row."""
        return self._explain(self._topology, self._index.table, key)

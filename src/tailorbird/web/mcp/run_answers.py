"""Read what the MCP server and the REST API answer: rows and barriers from the search engine, traces from the log,
verdicts from Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cdc.model.extras import extras_named
from cdc.topology.topology import Dashboard, Index, Topology
from indexer.engine.engine import visible_progress
from indexer.index.barriers import IndexProgress
from tailorbird.verify.checks.check_status import check_statuses
from tailorbird.verify.checks.kafka_runs import RunsReader
from tailorbird.verify.findings import WORST_FIRST
from tailorbird.web.dashboard.panels.fitting import FitBoard, fit
from tailorbird.web.mcp.searches import Documents, RowsChanged, RowsFound, RowsReader, RowsSearch
from tailorbird.web.mcp.solr_rows import SolrRows

ExplainRow = Callable[[Topology, str, bytes], Mapping[str, Any] | None]


class DashboardAnswers:
    """Answers about one dashboard. `explain` traces a row of a table (`tailorbird explain`)."""

    def __init__(self, topology: Topology, dashboard: Dashboard, explain: ExplainRow) -> None:
        self._topology, self._dashboard, self._explain = topology, dashboard, explain
        self._index = topology.indexes[dashboard.index]
        self._rows = rows_reader(topology, self._index)

    def board(self) -> FitBoard:
        """Return the dashboard with the current fields of its index."""
        return fit(self._topology, self._dashboard, self._rows.fields())

    def found(self, search: RowsSearch) -> RowsFound:
        """Return the rows that match a search."""
        return self._rows.found(search)

    def changed(self, asked: RowsChanged) -> Iterator[Documents]:
        """Yield pages of changed documents."""
        return self._rows.changed(asked)

    def progress(self) -> IndexProgress:
        """Return up to where queries of the index see everything."""
        return visible_progress(self._topology, self._index)

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


def rows_reader(topology: Topology, index: Index) -> RowsReader:
    """Return the reader of an index's rows for its search engine."""
    if index.type == "opensearch":
        # imported here: its library would slow down every command, and not every extra installs it
        with extras_named("indexer"):
            from tailorbird.web.mcp.opensearch_rows import OpenSearchRows
        return OpenSearchRows(topology.opensearch, index.collection)
    return SolrRows(topology.solr, index.collection)

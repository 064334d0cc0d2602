"""The state of a dashboard that all browsers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cdc.topology.topology import Dashboard, Topology
from tailorbird.verify.checks.check_status import PageCheck
from tailorbird.web.dashboard.panels.fitting import FitBoard, fit
from tailorbird.web.dashboard.solr_view import SolrView
from tailorbird.web.dashboard.view import IndexField


class Board:
    """State that all browsers of one dashboard share: the location of its index and, once known, its columns.

    `waiting` returns how many rows the index lacks because of dead letters, or None if that is unknown. `checked`
    returns the results of checks of its tables. `columns` are the columns in the order of the query, if it names
    them, because Solr orders columns alphabetically."""

    def __init__(
        self,
        topology: Topology,
        dashboard: Dashboard,
        waiting: Callable[[], int | None] = lambda: None,
        checked: Callable[[], PageCheck] = PageCheck,
        columns: Sequence[str] = (),
    ) -> None:
        self._order = {name: i for i, name in enumerate(columns)}
        self.topology, self.dashboard, self.waiting, self.checked = topology, dashboard, waiting, checked
        self.solr = SolrView(topology.solr, topology.indexes[dashboard.index].collection)
        self._fields: dict[str, IndexField] = {}
        self._fit: FitBoard | None = None

    def fit(self) -> FitBoard | None:
        """Return the dashboard over its index, read from Solr until the index has columns; None until then. Raises
        TopologyError for a column that the index does not have."""
        if self._fit is None and _has_columns(self._known()):
            self._fit = fit(self.topology, self.dashboard, self._fields)
        return self._fit

    def _known(self) -> dict[str, IndexField]:
        if not _has_columns(self._fields):
            found = self.solr.fields()
            last = len(self._order)
            self._fields = dict(sorted(found.items(), key=lambda pair: self._order.get(pair[0], last)))
        return self._fields


def _has_columns(fields: Mapping[str, IndexField]) -> bool:
    """Return whether the index has a column of any table, besides the fields that every index has."""
    return any(not name.startswith("_") for name in fields)

"""The state of a dashboard that all browsers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cdc.topology.topology import Dashboard, Topology
from tailorbird.verify.checks.check_status import PageCheck
from tailorbird.web.dashboard.panels.fitting import FitBoard, fit
from tailorbird.web.dashboard.solr_view import SolrView
from tailorbird.web.dashboard.view import IndexField, View, view_of


class Board:
    """The state of a dashboard that all browsers share: its index and, once known, the columns.

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
        self._view: View | None = None
        self._fit: FitBoard | None = None

    def view(self) -> View | None:
        """Return the dashboard's columns, or None while the index has no columns.

        They are read from Solr until the index has some. Raises TopologyError if the dashboard names a column that
        the index lacks."""
        if self._view is None:
            self._view = view_of(self.topology, self.dashboard, self._known())
        return self._view

    def fit(self) -> FitBoard | None:
        """Return the panels with their columns, or None while the index has no columns.

        They are read from Solr until the index has columns. Raises TopologyError if a panel names a column that the
        index lacks."""
        if self._fit is None and self.view() is not None:
            self._fit = fit(self.topology, self.dashboard, self._known())
        return self._fit

    def _known(self) -> dict[str, IndexField]:
        if not any(not name.startswith("_") for name in self._fields):
            found = self.solr.fields()
            last = len(self._order)
            self._fields = dict(sorted(found.items(), key=lambda pair: self._order.get(pair[0], last)))
        return self._fields

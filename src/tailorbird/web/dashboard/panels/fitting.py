"""Check a dashboard's panels against the fields of its index, so that all later code can rely on every column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc.stored.fields import words_field
from cdc.topology.panels import Panel, PanelFilter
from cdc.topology.topology import Dashboard, Topology
from tailorbird.web.dashboard.panels.columns import Misfit, PanelColumn, column_of, filtered, measured
from tailorbird.web.dashboard.view import IndexField, heading

Finder = Callable[[str], PanelColumn]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPanel:
    """A panel with the columns of its index.

    `sums` are the Solr aggregations of its measures (empty: a count), `measured` their columns. `fields` are the
    columns that group the rows or are shown, `where` its own filters. `by` is the column that splits it."""

    panel: Panel
    sums: tuple[str, ...]
    measured: tuple[PanelColumn | None, ...]
    fields: tuple[PanelColumn, ...]
    by: PanelColumn | None
    where: tuple[tuple[PanelColumn, PanelFilter], ...]

    @property
    def split(self) -> PanelColumn | None:
        """Return the column that splits a series or a heatmap, or None."""
        return self.fields[0] if self.panel.type == "heatmap" else self.by


@dataclass(frozen=True, slots=True, kw_only=True)
class FitBoard:
    """A dashboard ready to be queried. `time`, and `timeline`, the number of rows over it, are None if it has no time
    column. `words` are the fields that a text search covers. `keys` are the columns of the row key."""

    dashboard: Dashboard
    panels: tuple[FitPanel, ...]
    time: PanelColumn | None
    timeline: FitPanel | None
    words: tuple[str, ...]
    fields: Mapping[str, IndexField]
    keys: frozenset[str] = frozenset()

    def column(self, name: str) -> PanelColumn:
        """Return a column of the index. Raises Misfit if the index does not have it."""
        return column_of(name, self.fields)


def fit(topology: Topology, dashboard: Dashboard, fields: Mapping[str, IndexField]) -> FitBoard:
    """Return the dashboard over an index with these fields. Raises TopologyError, with line and path, if a column or a
    panel does not fit."""
    base, index = f"dashboards.{dashboard.name}", topology.indexes[dashboard.index]

    def found(path: str, name: str) -> PanelColumn:
        try:
            return column_of(name, fields)
        except Misfit as misfit:
            raise topology.error(path, str(misfit), misfit.expected) from misfit

    def time(path: str, name: str) -> PanelColumn:
        column = found(path, name)
        if column.look != "time" or not column.ordered:
            raise topology.error(path, f"column {name} holds no times", "a date, datetime or timestamp")
        return column

    def one(path: str, panel: Panel) -> FitPanel:
        try:
            return _fit_panel(panel, lambda name: column_of(name, fields))
        except Misfit as misfit:
            raise topology.error(path, str(misfit), misfit.expected) from misfit

    for i, name in enumerate(dashboard.columns):
        found(f"{base}.columns[{i}]", name)
    for i, name in enumerate(dashboard.facets):
        if not found(f"{base}.facets[{i}]", name).counted:
            path = f"{base}.facets[{i}]"
            raise topology.error(path, f"column {name} is only stored, not counted", "a column of another type")
    over = None if dashboard.time is None else time(f"{base}.time", dashboard.time)
    table = topology.tables.get(index.table)
    return FitBoard(
        dashboard=dashboard,
        panels=tuple(one(f"{base}.panels[{i}]", panel) for i, panel in enumerate(dashboard.panels)),
        time=over,
        timeline=None if over is None else _fit_panel(timeline_of(over.name), lambda name: column_of(name, fields)),
        words=tuple(words_field(name) for name in index.search if words_field(name) in fields),
        fields=fields,
        keys=frozenset(table.row_key if table is not None else ()),
    )


def timeline_of(time: str) -> Panel:
    """Return the panel above a list of rows: how many there are over time."""
    return Panel(type="timeseries", title=f"{heading(time)}: rows over time", width=12)


def _fit_panel(panel: Panel, column: Finder) -> FitPanel:
    fields = tuple(column(name) for name in panel.fields)
    by = column(panel.by) if panel.by else None
    parted = panel.type in ("terms", "heatmap") or (panel.type == "table" and panel.measures)
    for one in (*(fields if parted else ()), *((by,) if by else ())):
        if not one.counted:
            raise Misfit(f"column {one.name} is only stored, not counted", "a column of another type")
    if panel.type == "histogram" and not fields[0].number:
        raise Misfit(f"column {fields[0].name} holds no numbers", "a column of numbers; times: `timeseries`")
    measured_columns = tuple(column(one.field) if one.field else None for one in panel.measures)
    where = tuple((column(one.field), one) for one in panel.where)
    for of, one in where:
        filtered(of, one.operator, one.values, "w")  # raises Misfit for a value that the column cannot have
    return FitPanel(
        panel=panel,
        sums=tuple(measured(one, of) for one, of in zip(panel.measures, measured_columns, strict=True)),
        measured=measured_columns,
        fields=fields,
        by=by,
        where=where,
    )

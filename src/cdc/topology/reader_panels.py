"""Read `dashboards:`: a page of rows, and above it panels if some are declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, get_args

import yaml

from cdc.topology.panels import (
    ALL_TIMES,
    COLUMNS,
    COUNT,
    NUMBER_FORM,
    WIDTHS,
    Interval,
    Panel,
    PanelFilter,
    PanelMeasure,
    PanelType,
    filter_of,
    measure_of,
    range_of,
)
from cdc.topology.topology import Dashboard
from cdc.topology.values import Section, Value

T = TypeVar("T")
TYPES: tuple[PanelType, ...] = get_args(PanelType)
MOST_PANELS, MOST_FIELDS, MOST_MEASURES, MOST_TOP = 50, 2, 8, 200


def read_dashboard(name: str, s: Section) -> Dashboard:
    """Read one dashboard. `validate` and the page check that its columns exist."""
    time = s.take("time", Value.text, None)
    none: tuple[Panel, ...] = ()
    panels = s.take("panels", lambda v: _panels(v, timed=time is not None), none)
    if "range" in s.pairs and time is None:
        s.pairs["range"].fail("a range without `time`", "time: the column that holds a row's time")
    return Dashboard(
        name=name,
        index=s.take("index", Value.name),
        title=s.take("title", Value.text, name),
        facets=s.take("facets", Value.texts, ()),
        time=time,
        columns=s.take("columns", Value.texts, ()),
        refresh=s.take("refresh", Value.duration, 1.0),
        range=s.take("range", lambda v: _parsed(v, range_of, "all, or last 30 days (minutes, …, years)"), ALL_TIMES),
        panels=panels,
    )


def _panels(value: Value, *, timed: bool) -> tuple[Panel, ...]:
    items = value.items()
    if not 0 < len(items) <= MOST_PANELS:
        value.fail(f"{len(items)} panels", f"1 to {MOST_PANELS}")
    found = []
    for item in items:
        section = item.section()
        found.append(_panel(item, section, timed=timed))
        section.end()
    return tuple(found)


def _panel(value: Value, s: Section, *, timed: bool) -> Panel:
    named = [one for one in TYPES if one in s.pairs]
    if len(named) != 1:
        value.fail(f"a panel with {' and '.join(named) or 'no type'}", "one of " + ", ".join(f"{t}: …" for t in TYPES))
    kind = named[0]
    if kind in ("timeseries", "heatmap") and not timed:
        s.pairs[kind].fail(f"{kind} of a dashboard without `time`", "time: the column that holds a row's time")
    own = s.pairs[kind]
    nothing: tuple[PanelFilter, ...] = ()
    width = s.take("width", lambda v: v.number(1, COLUMNS), WIDTHS[kind])
    title = s.take("title", Value.text, "")
    if kind == "text":
        return Panel(type=kind, title=title, width=width, text=s.take(kind, Value.text))
    where = s.take("where", _filters, nothing)
    form = s.take("format", _format, "")
    if kind == "number":
        measures = (s.take(kind, _measure),)
        return Panel(
            type=kind, title=title or str(measures[0]), width=width, measures=measures, where=where, format=form
        )
    if kind == "timeseries":
        return _series(s, Panel(type=kind, title=title, width=width, where=where, format=form))
    if kind == "table":
        return _table(s, own, Panel(type=kind, title=title, width=width, where=where, format=form))
    field = s.take(kind, Value.text)
    measure = s.take("measure", _measure, COUNT)
    panel = Panel(
        type=kind,
        title=title or f"{measure} by {field}",
        width=width,
        measures=(measure,),
        fields=(field,),
        where=where,
        format=form,
        top=s.take("top", lambda v: v.number(1, MOST_TOP), 10) if kind != "histogram" else 10,
        buckets=s.take("buckets", lambda v: v.number(2, 100), 20) if kind == "histogram" else 20,
        interval=s.take("interval", _interval, "auto") if kind == "heatmap" else "auto",
    )
    return panel


def _series(s: Section, panel: Panel) -> Panel:
    measures = s.take("timeseries", _measures)
    by = s.take("by", Value.text, "")
    if by and len(measures) > 1:
        s.pairs["by"].fail(f"{len(measures)} measures split by a column", "one measure, or no `by`")
    named = ", ".join(map(str, measures)) + (f" by {by}" if by else "")
    return Panel(
        type=panel.type,
        title=panel.title or named,
        width=panel.width,
        measures=measures,
        by=by,
        top=s.take("top", lambda v: v.number(1, 20), 5) if by else 5,
        interval=s.take("interval", _interval, "auto"),
        where=panel.where,
        format=panel.format,
    )


def _table(s: Section, own: Value, panel: Panel) -> Panel:
    fields = s.take("table", _columns)
    nothing: tuple[PanelMeasure, ...] = ()
    measures = s.take("measures", _measures, nothing)
    if measures and len(fields) > MOST_FIELDS:
        own.fail(f"{len(fields)} columns to group by", f"{MOST_FIELDS} at most, or no `measures` for a table of rows")
    named = ", ".join(map(str, measures)) + " by " if measures else ""
    return Panel(
        type=panel.type,
        title=panel.title or named + ", ".join(fields),
        width=panel.width,
        measures=measures,
        fields=fields,
        top=s.take("top", lambda v: v.number(1, MOST_TOP), 10),
        where=panel.where,
        format=panel.format,
    )


def _parsed(value: Value, read: Callable[[str], T], expected: str) -> T:
    try:
        return read(value.text())
    except ValueError as error:
        value.fail(str(error), expected)


def _measure(value: Value) -> PanelMeasure:
    return _parsed(value, measure_of, "count, sum(amount), avg, min, max, unique, or percentile(amount, 95)")


def _measures(value: Value) -> tuple[PanelMeasure, ...]:
    items = value.items() if isinstance(value.node, yaml.SequenceNode) else [value]
    if not 0 < len(items) <= MOST_MEASURES:
        value.fail(f"{len(items)} measures", f"1 to {MOST_MEASURES}")
    return tuple(_measure(item) for item in items)


def _columns(value: Value) -> tuple[str, ...]:
    found = value.texts() if isinstance(value.node, yaml.SequenceNode) else (value.text(),)
    return found or value.fail("an empty list", "one column at least")


def _filters(value: Value) -> tuple[PanelFilter, ...]:
    items = value.items() if isinstance(value.node, yaml.SequenceNode) else [value]
    expected = "column, operator, value: status = paid, amount >= 10, country in (DE, AT), note is null"
    return tuple(_parsed(item, filter_of, expected) for item in items)


def _format(value: Value) -> str:
    text = value.text()
    return text if NUMBER_FORM.fullmatch(text) else value.fail(repr(text), "a form of numbers: 0,0.00 €")


def _interval(value: Value) -> Interval:
    found: Interval = value.one_of(*get_args(Interval))
    return found

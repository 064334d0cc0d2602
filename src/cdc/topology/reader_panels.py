"""Read `dashboards:`: a page of rows, and above it panels if some are declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, get_args

import yaml

from cdc.grammar.forms import (
    DURATION,
    NAMED,
    TEXT,
    TEXTS,
    ValueForm,
    escaped,
    listed,
    matching,
    number,
    one_of,
    read_elsewhere,
)
from cdc.grammar.keys import DeclaredKey, Keys, Section, schema_of
from cdc.grammar.values import Value
from cdc.topology.panels import (
    ALL_TIMES,
    COLUMNS,
    NUMBER_FORM,
    WIDTHS,
    Interval,
    MeasureFunction,
    Panel,
    PanelFilter,
    PanelMeasure,
    PanelType,
    TimeRange,
    filter_of,
    measure_of,
    range_of,
)
from cdc.topology.topology import Dashboard

T = TypeVar("T")
TYPES: tuple[PanelType, ...] = get_args(PanelType)
MOST_PANELS, MOST_FIELDS, MOST_MEASURES, MOST_TOP = 50, 2, 8, 200


def _parsed(value: Value, read: Callable[[str], T], expected: str) -> T:
    try:
        return read(value.text())
    except ValueError as error:
        value.fail(str(error), expected)


def _measure(value: Value) -> PanelMeasure:
    return _parsed(value, measure_of, "count, sum(amount), avg, min, max, unique, or percentile(amount, 95)")


def _filter(value: Value) -> PanelFilter:
    expected = "column, operator, value: status = paid, amount >= 10, country in (DE, AT), note is null"
    return _parsed(value, filter_of, expected)


def _format(value: Value) -> str:
    text = value.text()
    return text if NUMBER_FORM.fullmatch(text) else value.fail(repr(text), "a form of numbers: 0,0.00 €")


def _range(value: Value) -> TimeRange:
    return _parsed(value, range_of, "all, or last 30 days (minutes, …, years)")


_MEASURE = matching(rf"\s*({escaped(get_args(MeasureFunction))})\s*(\(.*\))?\s*", _measure, "count", "sum(amount)")
_MEASURES = listed(_MEASURE, most=MOST_MEASURES, alone=True)
_WHERE = listed(matching(r"\s*\w+\s*\W(.|\n)*", _filter, "status = paid"), least=0, most=10_000, alone=True)
_TOP = DeclaredKey(form=number(1, MOST_TOP), about="The number of bars, values or rows.", default="10")
_ONE = DeclaredKey(
    form=_MEASURE,
    about="`count`, `sum(c)`, `avg(c)`, `min(c)`, `max(c)`, `unique(c)` or `percentile(c, 95)`.",
    default="count",
)
_INTERVAL = DeclaredKey(form=one_of(*get_args(Interval)), about="The length of a step in time.", default="auto")
_TITLED: Keys = {
    "title": DeclaredKey(form=TEXT, about="The heading."),
    "width": DeclaredKey(form=number(1, COLUMNS), about=f"The width in columns of a grid of {COLUMNS}."),
}
_COMMON: Keys = {
    **_TITLED,
    "where": DeclaredKey(
        form=_WHERE, about="A filter or a list of filters of the rows, such as `status = paid`; all must hold."
    ),
    "format": DeclaredKey(
        form=matching(NUMBER_FORM.pattern, _format, "0,0.00 €", digits=True), about="The number format."
    ),
}


def _shows(form: ValueForm, about: str) -> DeclaredKey:
    return DeclaredKey(form=form, about=about, required=True)


PANELS: Mapping[PanelType, Keys] = {
    "number": {"number": _shows(_MEASURE, "One figure: a measure."), **_COMMON},
    "timeseries": {
        "timeseries": _shows(_MEASURES, "Lines over time: a measure or a list."),
        "by": DeclaredKey(
            form=TEXT, about="The column that splits one measure into lines of its most frequent values."
        ),
        "top": DeclaredKey(form=number(1, 20), about="The number of lines, with `by`.", default="5", needs="by"),
        "interval": _INTERVAL,
        **_COMMON,
    },
    "terms": {"terms": _shows(TEXT, "Bars of a column's values."), "measure": _ONE, "top": _TOP, **_COMMON},
    "histogram": {
        "histogram": _shows(TEXT, "Bars of ranges of a column's values."),
        "measure": _ONE,
        "buckets": DeclaredKey(form=number(2, 100), about="The number of bars.", default="20"),
        **_COMMON,
    },
    "heatmap": {
        "heatmap": _shows(TEXT, "A column's values over time."),
        "measure": _ONE,
        "top": _TOP,
        "interval": _INTERVAL,
        **_COMMON,
    },
    "table": {
        "table": _shows(listed(TEXT, most=10_000, alone=True), "A table of these columns."),
        "measures": DeclaredKey(
            form=_MEASURES, about="Group by the columns (at most 2). Without measures it shows rows."
        ),
        "top": _TOP,
        **_COMMON,
    },
    "text": {"text": _shows(TEXT, "A text."), **_TITLED},
}
_PANEL = ValueForm(
    read=read_elsewhere, schema={"type": "object", "oneOf": [schema_of(keys) for keys in PANELS.values()]}
)
DASHBOARD: Keys = {
    "index": DeclaredKey(form=NAMED, about="The index.", required=True),
    "title": DeclaredKey(form=TEXT, about="The heading. Default: the name."),
    "facets": DeclaredKey(form=TEXTS, about="Columns to filter by, with counts."),
    "time": DeclaredKey(form=TEXT, about="The column with the time of a row: for the histogram and the order of rows."),
    "columns": DeclaredKey(form=TEXTS, about="Columns of the newest rows, in order. Default: all."),
    "refresh": DeclaredKey(form=DURATION, about="The refresh interval.", default="1s"),
    "range": DeclaredKey(
        form=matching(r"all|last 0*[1-9]\d{0,5} (minute|hour|day|week|month|year)s?", _range, "all", "last 30 days"),
        about="With `panels` and `time`: the initial time range.",
        default="all",
        needs="time",
    ),
    "panels": DeclaredKey(form=listed(_PANEL, most=MOST_PANELS), about="The panels, in order."),
}


def read_dashboard(name: str, s: Section) -> Dashboard:
    """Read one dashboard. `validate` and the page check that its columns exist."""
    time = s.take("time")
    none: tuple[Panel, ...] = ()
    panels = s.take("panels", none, read=lambda v: _panels(v, timed=time is not None))
    if "range" in s.pairs and time is None:
        s.pairs["range"].fail("a range without `time`", "time: the column that holds a row's time")
    return Dashboard(
        name=name,
        index=s.take("index"),
        title=s.take("title", name),
        facets=s.take("facets", ()),
        time=time,
        columns=s.take("columns", ()),
        refresh=s.take("refresh"),
        range=s.take("range") if time is not None else ALL_TIMES,
        panels=panels,
    )


def _panels(value: Value, *, timed: bool) -> tuple[Panel, ...]:
    items = value.items()
    if not 0 < len(items) <= MOST_PANELS:
        value.fail(f"{len(items)} panels", f"1 to {MOST_PANELS}")
    found = []
    for item in items:
        found.append(_panel(item, timed=timed))
    return tuple(found)


def _panel(value: Value, *, timed: bool) -> Panel:
    pairs = value.pairs()
    named = [one for one in TYPES if one in pairs]
    if len(named) != 1:
        value.fail(f"a panel with {' and '.join(named) or 'no type'}", "one of " + ", ".join(f"{t}: …" for t in TYPES))
    kind = named[0]
    if kind in ("timeseries", "heatmap") and not timed:
        pairs[kind].fail(f"{kind} of a dashboard without `time`", "time: the column that holds a row's time")
    section = Section(value, PANELS[kind])
    found = _panel_of(kind, section)
    section.end()
    return found


def _panel_of(kind: PanelType, s: Section) -> Panel:
    width, title = s.take("width", WIDTHS[kind]), s.take("title", "")
    if kind == "text":
        return Panel(type=kind, title=title, width=width, text=s.take(kind))
    where, form = s.take("where", (), read=_filters), s.take("format", "")
    if kind == "number":
        measures = (s.take(kind),)
        return Panel(
            type=kind, title=title or str(measures[0]), width=width, measures=measures, where=where, format=form
        )
    if kind == "timeseries":
        return _series(s, Panel(type=kind, title=title, width=width, where=where, format=form))
    if kind == "table":
        return _table(s, Panel(type=kind, title=title, width=width, where=where, format=form))
    field, measure = s.take(kind), s.take("measure")
    return Panel(
        type=kind,
        title=title or f"{measure} by {field}",
        width=width,
        measures=(measure,),
        fields=(field,),
        where=where,
        format=form,
        top=s.take("top") if kind != "histogram" else 10,
        buckets=s.take("buckets") if kind == "histogram" else 20,
        interval=s.take("interval") if kind == "heatmap" else "auto",
    )


def _series(s: Section, panel: Panel) -> Panel:
    measures = s.take("timeseries", read=_measures)
    by = s.take("by", "")
    if by and len(measures) > 1:
        s.pairs["by"].fail(f"{len(measures)} measures split by a column", "one measure, or no `by`")
    named = ", ".join(map(str, measures)) + (f" by {by}" if by else "")
    return Panel(
        type=panel.type,
        title=panel.title or named,
        width=panel.width,
        measures=measures,
        by=by,
        top=s.take("top", 5),
        interval=s.take("interval"),
        where=panel.where,
        format=panel.format,
    )


def _table(s: Section, panel: Panel) -> Panel:
    fields = s.take("table", read=_columns)
    nothing: tuple[PanelMeasure, ...] = ()
    measures = s.take("measures", nothing, read=_measures)
    if measures and len(fields) > MOST_FIELDS:
        s.pairs["table"].fail(
            f"{len(fields)} columns to group by", f"{MOST_FIELDS} at most, or no `measures` for a table of rows"
        )
    named = ", ".join(map(str, measures)) + " by " if measures else ""
    return Panel(
        type=panel.type,
        title=panel.title or named + ", ".join(fields),
        width=panel.width,
        measures=measures,
        fields=fields,
        top=s.take("top"),
        where=panel.where,
        format=panel.format,
    )


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
    return tuple(_filter(item) for item in items)

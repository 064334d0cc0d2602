"""Export the current view of a dashboard as YAML for the topology's `dashboards:`."""

from __future__ import annotations

from typing import Any

import yaml

from cdc.topology.panels import COUNT, WIDTHS, Panel, PanelFilter, TimeRange
from cdc.topology.topology import Dashboard
from tailorbird.web.dashboard.panels.columns import Misfit
from tailorbird.web.dashboard.panels.state import Selection


def view_yaml(dashboard: Dashboard, chosen: Selection) -> str:
    """Return the dashboard with the current selection as YAML. Words and a dragged time range become comments.

    Raises Misfit if a value and "no value" of one column are selected, because `where:` has no `or`."""
    filters = [_text(_filter(name, values)) for name, values in sorted(chosen.picks.items()) if values]
    for name, ends in sorted(chosen.between.items()):
        filters += [f"{name} {operator} '{end}'" for operator, end in zip((">=", "<"), ends, strict=True)]
    declared: dict[str, Any] = {"title": dashboard.title, "index": dashboard.index}
    if dashboard.time:
        declared["time"] = dashboard.time
    wanted = chosen.range if chosen.range is not None and chosen.span is None else dashboard.range
    if wanted != TimeRange():
        declared["range"] = str(wanted)
    for key, names in (("facets", dashboard.facets), ("columns", dashboard.columns)):
        if names:
            declared[key] = list(names)
    declared["panels"] = [_panel(panel, filters) for panel in dashboard.panels]
    text = yaml.safe_dump({dashboard.name: declared}, sort_keys=False, allow_unicode=True, width=110)
    left = [f"the words {chosen.words!r}"] if chosen.words else []
    left += ["the dragged time range"] if chosen.span is not None else []
    return (f"# not in it: {', '.join(left)}\n" if left else "") + text


def _filter(name: str, values: frozenset[str | None]) -> PanelFilter:
    texts = sorted(value for value in values if value is not None)
    if None in values:
        if texts:
            raise Misfit(f"column {name}: a value or none", "one of the two: `where:` has no `or`")
        return PanelFilter(field=name, operator="is null")
    if len(texts) == 1:
        return PanelFilter(field=name, operator="=", values=(texts[0],))
    return PanelFilter(field=name, operator="in", values=tuple(texts))


def _text(one: PanelFilter) -> str:
    quoted = ["'" + value.replace("'", "''") + "'" for value in one.values]
    if one.operator in ("in", "not in"):
        return f"{one.field} {one.operator} ({', '.join(quoted)})"
    return f"{one.field} {one.operator} {''.join(quoted)}".rstrip()


def _panel(panel: Panel, filters: list[str]) -> dict[str, Any]:
    if panel.type == "text":
        return {"text": panel.text, **_about(panel)}
    measures = [str(one) for one in panel.measures]
    one_or_all = measures[0] if len(measures) == 1 else measures
    declared: dict[str, Any]
    if panel.type in ("number", "timeseries"):
        declared = {panel.type: one_or_all}
    elif panel.type == "table":
        declared = {"table": list(panel.fields), **({"measures": measures} if measures else {}), "top": panel.top}
    else:
        declared = {panel.type: panel.fields[0]}
        if panel.measures != (COUNT,):
            declared["measure"] = one_or_all
        declared |= {"buckets": panel.buckets} if panel.type == "histogram" else {"top": panel.top}
    if panel.by:
        declared |= {"by": panel.by, "top": panel.top}
    if panel.interval != "auto":
        declared["interval"] = panel.interval
    where = [*(_text(one) for one in panel.where), *filters]
    return {**declared, **_about(panel), **({"where": where} if where else {})}


def _about(panel: Panel) -> dict[str, Any]:
    declared: dict[str, Any] = {"title": panel.title} if panel.title else {}
    if panel.width != WIDTHS[panel.type]:
        declared["width"] = panel.width
    if panel.format:
        declared["format"] = panel.format
    return declared

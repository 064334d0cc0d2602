"""The shipped files for Grafana's PostgreSQL data source, and its macros as Grafana's documentation describes them."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "grafana"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def dashboard() -> dict[str, Any]:
    """Return the dashboard over a joined table."""
    found: dict[str, Any] = json.loads((FOLDER / "dashboards" / "orders.json").read_text(encoding="utf-8"))
    return found


def provisioned(kind: str) -> dict[str, Any]:
    """Return the only entry of a provisioning file: `datasources` or `providers`."""
    folder = "dashboards" if kind == "providers" else kind
    found = yaml.safe_load((FOLDER / "provisioning" / folder / "tailorbird.yml").read_text(encoding="utf-8"))
    assert found["apiVersion"] == 1
    (one,) = found[kind]
    assert isinstance(one, dict)
    return one


def queries() -> Iterator[tuple[str, str]]:
    """Yield title and SQL of each panel."""
    for panel in dashboard()["panels"]:
        (target,) = panel["targets"]
        yield panel["title"], target["rawSql"]


def expanded(sql: str, begin: dt.datetime, end: dt.datetime, interval: str) -> str:
    """Return a panel's query as Grafana sends it for a range of time; ValueError for an unknown macro or variable.

    `interval` is a number with a unit, e.g. `5m`.
    """
    seconds = int(interval[:-1]) * _SECONDS[interval[-1]]
    sql = sql.replace("$__interval", interval)
    grouped = rf'floor(extract(epoch from \1)/{seconds})*{seconds} AS "time"'
    rules = {
        r"\$__timeFilter\(([^(),]+)\)": rf"\1 BETWEEN '{_text(begin)}' AND '{_text(end)}'",
        rf"\$__timeGroupAlias\(([^(),]+), {interval}\)": grouped,
        r"\$__time\(([^(),]+)\)": r'\1 AS "time"',
    }
    for macro, text in rules.items():
        sql = re.sub(macro, text, sql)
    if "$" in sql:
        raise ValueError(f"unknown macro: {sql[sql.index('$') :]}")
    return sql


def _text(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

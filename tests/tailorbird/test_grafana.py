"""The files for Grafana: they have the form of Grafana's data model, the dashboard of metrics asks for metrics that our
processes export, and the dashboard of a joined table asks for columns of the demo's table."""

from __future__ import annotations

import ast
import datetime as dt
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from cdc.process.file_topology import load_topology
from tests.support.grafana import dashboard, expanded, provisioned, queries

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "examples" / "grafana.json").read_text(encoding="utf-8"))
_KINDS = {"Gauge", "Counter", "gauge"}
_FUNCTIONS = {"rate", "increase", "sum", "time", "by"}


def exported() -> Iterator[tuple[str, set[str]]]:
    """Every metric that the sources declare, under the name by which Prometheus sees it, with its labels."""
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "prometheus_client" not in text:
            continue
        tree = ast.parse(text)
        constants = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            name = getattr(getattr(node, "func", None), "id", "")
            if isinstance(node, ast.Call) and name in _KINDS and isinstance(node.args[0], ast.Constant):
                yield _seen(node, name, constants)


def _seen(node: ast.Call, kind: str, constants: dict[str, ast.expr]) -> tuple[str, set[str]]:
    said = str(node.args[0].value) if isinstance(node.args[0], ast.Constant) else ""
    name = f"tailorbird_join_{said}" if kind == "gauge" else said
    labels = {one.value for arg in node.args[2:] for one in ast.walk(arg) if isinstance(one, ast.Constant)}
    for arg in node.args[2:]:
        for one in ast.walk(arg):
            if isinstance(one, ast.Name) and one.id in constants:
                labels |= {inner.value for inner in ast.walk(constants[one.id]) if isinstance(inner, ast.Constant)}
    if kind == "gauge":
        labels.add("table")
    return (name if kind != "Counter" or name.endswith("_total") else f"{name}_total"), {str(one) for one in labels}


def test_every_query_names_what_is_exported() -> None:
    """Each metric, and each label of a legend or a sum, is exported by Tailorbird."""
    known = dict(exported())
    assert len(known) > 40
    asked = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
    assert len(asked) > 15
    for target in asked:
        words = set(re.findall(r"[a-zA-Z_]\w+", re.sub(r"\[\w+\]", "", target["expr"])))
        names = {word for word in words if word.startswith(("tailorbird_", "debezium_", "kafka_connect_"))}
        assert len(names) == 1, target
        (name,) = names
        assert name in known, target
        labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"])) | (words - names - _FUNCTIONS)
        assert labels <= known[name], (target, known[name])


def test_names_are_read_as_prometheus_writes_them() -> None:
    """The rule above for the ending of counters is prometheus_client's own."""
    registry = CollectorRegistry()
    Counter("a_counter", "x", registry=registry)
    Counter("b_total", "x", registry=registry)
    Gauge("c_gauge", "x", registry=registry)
    text = generate_latest(registry).decode()
    assert re.findall(r"^(\w+) 0\.0$", text, re.MULTILINE) == ["a_counter_total", "b_total", "c_gauge"]


BOTH = pytest.mark.parametrize("one", [DASHBOARD, dashboard()], ids=["metrics", "joined table"])


@BOTH
def test_panels_do_not_overlap(one: dict[str, Any]) -> None:
    """No panel covers another one or exceeds Grafana's 24 columns, and no two share an id."""
    places = [panel["gridPos"] for panel in one["panels"]]
    fields = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(fields) == len(set(fields))
    assert all(at["x"] + at["w"] <= 24 for at in places)
    assert len({panel["id"] for panel in one["panels"]}) == len(places)


@BOTH
def test_dashboards_have_the_form_of_grafanas_model(one: dict[str, Any]) -> None:
    """Every key of a dashboard and of its panels' options is one of Grafana's: grafana-foundation-sdk keeps it."""
    assert list(_lost(one, _read(one))) == []


def test_a_misspelled_key_is_found() -> None:
    """The rule above finds a wrong key of a dashboard, of a panel, and of a panel's options."""
    wrong = dashboard()
    wrong["refreshh"] = "10s"
    wrong["panels"][0]["gridPoss"] = {}
    wrong["panels"][0]["options"]["colourMode"] = "value"
    found = set(_lost(wrong, _read(wrong)))
    assert found == {"/refreshh", "/panels/0/gridPoss", "/panels/0/options/colourMode"}


def _read(one: dict[str, Any]) -> Any:
    register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(one)))


def _lost(ours: Any, read: Any, at: str = "") -> Iterator[str]:
    """Yield the paths of what is not the same after it was read."""
    if isinstance(ours, dict) and isinstance(read, dict):
        for key, value in ours.items():
            yield from _lost(value, read[key], f"{at}/{key}") if key in read else [f"{at}/{key}"]
    elif isinstance(ours, list) and isinstance(read, list) and len(ours) == len(read):
        for number, (first, second) in enumerate(zip(ours, read, strict=True)):
            yield from _lost(first, second, f"{at}/{number}")
    elif ours != read:
        yield at


def test_queries_ask_for_the_table_of_the_demo() -> None:
    """The provisioned data source is the demo's sink, all panels use it, and they name its table and macros that
    Grafana has."""
    topology = load_topology(str(ROOT / "topologies" / "postgres.yml"))
    source, sink = provisioned("datasources"), topology.postgres
    assert sink is not None
    assert (source["url"], source["jsonData"]["database"]) == (f"{sink.hostname}:5433", sink.dbname)
    assert source["user"] != sink.username, "it may only read"
    assert source["secureJsonData"]["password"].startswith("$"), "no password in a file"
    assert provisioned("providers")["options"]["path"].endswith("/dashboards")
    (table,) = [name for name, one in topology.tables.items() if one.sink == "postgres"]
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    for panel in dashboard()["panels"]:
        for uid in (panel["datasource"]["uid"], *(one["datasource"]["uid"] for one in panel["targets"])):
            assert uid == source["uid"]
    kinds = {panel["type"] for panel in dashboard()["panels"]}
    assert kinds == {"stat", "table", "timeseries"}
    for title, sql in queries():
        assert re.findall(r"FROM (\w+\.\w+)", expanded(sql, moment, moment, "5m")) in (
            [f"{sink.schema}.{table}"],
            [f"{sink.schema}._progress"],
        ), title
    with pytest.raises(ValueError, match="unknown macro"):
        expanded("SELECT $__timeGroup(a, '5m')", moment, moment, "5m")

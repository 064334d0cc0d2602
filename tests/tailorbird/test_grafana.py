"""The dashboard for Grafana asks for metrics that our processes export, by names and labels that they have."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

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


def test_panels_stand_during_one_another() -> None:
    """No two overlap, none stands out of Grafana's 24 columns, and no two share an id."""
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    fields = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(fields) == len(set(fields))
    assert all(at["x"] + at["w"] <= 24 for at in places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)

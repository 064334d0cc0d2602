"""The Helm chart's values are described once, and its pods run as the images are tested.

`make check-chart` renders it with Helm; these tests need no Helm."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.chart import CHART, EXAMPLES, differences_from_compose, open_pods

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEXT = (CHART / "values.yaml").read_text()
VALUES = yaml.safe_load(TEXT)


def keys(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the keys that a schema names, nested."""
    return {name: keys(one) for name, one in schema.get("properties", {}).items()}


def declared(values: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of values as far as the schema has properties for them."""
    return {name: declared(one, schema["properties"][name]) for name, one in values.items()} if keys(schema) else {}


def test_schema_and_defaults_name_the_same_values() -> None:
    """A value that the schema permits is in values.yaml with its default, and no other is."""
    jsonschema.validate(VALUES, SCHEMA)
    wanted = keys(SCHEMA)
    del wanted["global"]  # Helm sets it for charts in charts
    assert declared(VALUES, SCHEMA) == wanted


def test_every_value_is_documented() -> None:
    """A comment explains each group of values in values.yaml, and each key of the lists' items."""
    lines = TEXT.splitlines()
    tops = [number for number, line in enumerate(lines) if re.match(r"\w+:", line)]
    bare = {lines[number].split(":")[0] for number in tops if not lines[number - 1].startswith("#")}
    assert bare - {"tolerations", "affinity"} == set()  # with nodeSelector
    for group in ("captures", "joins", "indexes"):
        for key in SCHEMA["properties"][group]["items"]["properties"]:
            assert re.search(rf"^#.*\b{key}\b", TEXT, re.MULTILINE), key


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_valid(example: Path) -> None:
    """The files that the documentation names can be used as they are."""
    jsonschema.validate(yaml.safe_load(example.read_text()), SCHEMA)


def test_versions_are_those_of_the_project() -> None:
    """The chart installs the images of the same version."""
    project = (CHART.parents[2] / "pyproject.toml").read_text()
    [version] = re.findall(r'^version = "(.+)"', project, re.MULTILINE)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {version}


def pod(**container: Any) -> str:
    """Return a rendered job whose container has other values than a right one."""
    right = {
        "image": "registry.example.org/tailorbird-join:0.1.0",
        "args": ["join", "/etc/tailorbird/topology.yml", "--table", "orders_wide"],
        "ports": [{"containerPort": 9464}],
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"mountPath": "/tmp"}, {"mountPath": "/var/lib/tailorbird"}],
    }  # fmt: skip
    security = {"runAsUser": 10001, "runAsGroup": 10001, "runAsNonRoot": True}
    spec = {"securityContext": security, "containers": [{**right, **container}]}
    return yaml.safe_dump({"kind": "Job", "metadata": {"name": "x"}, "spec": {"template": {"spec": spec}}})


def test_a_pod_without_restrictions_is_found() -> None:
    """The check of `make check-chart` is not satisfied by a root user, a writable root, a missing volume, or by a
    command, an image or a port that do not fit together."""
    assert open_pods(pod()) == []
    assert len(open_pods(pod(securityContext={}))) == 3
    assert len(open_pods(pod(volumeMounts=[]))) == 3
    assert len(open_pods(pod().replace("runAsUser: 10001", "runAsUser: 0"))) == 2
    assert len(open_pods(pod(image="tailorbird-index:0.1.0"))) == 1
    assert len(open_pods(pod(args=["join", "--tables", "t"]))) == 1
    assert len(open_pods(pod(ports=[{"containerPort": 80}]))) == 1


def test_the_chart_runs_the_processes_of_docker_compose() -> None:
    """A process that only one of them runs is found, as `make check-chart` renders the chart."""
    found = differences_from_compose(pod())
    assert not [one for one in found if " join FILE " in one]
    assert sum(" capture FILE " in one for one in found) == 2
    [extra] = [one for one in differences_from_compose(pod(args=["join", "x"])) if ": join x in tailorbird-join" in one]
    assert extra

"""The alert rules for Prometheus: promtool's own tests of them, and the metrics that they name."""

from __future__ import annotations

import re
import subprocess

import yaml

from tests.support.prometheus import RULES, programs
from tests.tailorbird.test_grafana import exported


def test_each_alert_fires_when_it_must() -> None:
    """promtool evaluates the rules on series of each fault, and on those of a healthy pipeline."""
    tests = RULES.with_name("tailorbird.rules.test.yml")
    done = subprocess.run(
        [str(programs() / "promtool"), "test", "rules", str(tests)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    named = set(re.findall(r"Tailorbird[A-Z]\w+", tests.read_text(encoding="utf-8")))
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    assert named == {rule["alert"] for rule in group["rules"] if "alert" in rule}, "an alert without a test"


def test_the_rules_name_what_is_exported() -> None:
    """Each metric of an expression, and each label of an annotation, is exported by Tailorbird or Prometheus."""
    known = {**dict(exported()), "up": {"job"}}
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]:
        names = set(re.findall(r"\b(?:tailorbird_\w+|up)\b", rule["expr"]))
        assert names <= known.keys(), rule
        assert names, rule
        labels = set(re.findall(r"\$labels\.(\w+)", str(rule.get("annotations", {}))))
        assert labels <= {"job", "instance"}.union(*(known[name] for name in names)), rule

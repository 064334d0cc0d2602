"""The real Prometheus: it scrapes processes of a test and evaluates the alert rules that ship with the project."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.ports import free_port
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "tailorbird.rules.yml"
_EVERY = "300ms"


def programs() -> Path:
    """Return the folder of `prometheus` and `promtool`; they are unpacked if they are not on the path."""
    script, folder = ROOT / "tests" / "install-prometheus.sh", ROOT / "build" / "prometheus"
    done = subprocess.run([str(script), str(folder)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def hastened(rules: str, thresholds: Mapping[str, str]) -> str:
    """Return the rules without their patience: an alert fires after a second. `thresholds`: texts of expressions that
    the test's servers reach within seconds, by those that ship."""
    for shipped, short in thresholds.items():
        assert shipped in rules, shipped
        rules = rules.replace(shipped, short)
    return re.sub(r"^( +for:) \d+m$", r"\1 1s", rules, flags=re.MULTILINE)


class RunningPrometheus:
    """A Prometheus that scrapes processes three times a second."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, path: str) -> Any:
        """Return the data of an answer of its API."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def firing(self) -> dict[str, dict[str, str]]:
        """Return the labels of each alert that fires, by its name."""
        found = self.ask("alerts")["alerts"]
        return {one["labels"]["alertname"]: one["labels"] for one in found if one["state"] == "firing"}

    def wait(self, *names: str) -> dict[str, dict[str, str]]:
        """Wait until exactly these alerts fire, and return their labels."""
        wait_for(lambda: self.firing().keys() == set(names), f"alerts {sorted(names)} do not fire alone", 60)
        return self.firing()

    def ready(self) -> bool:
        """Return whether every target was scraped."""
        try:
            return all(one["health"] == "up" for one in self.ask("targets")["activeTargets"])
        except OSError:
            return False


@contextmanager
def prometheus(folder: Path, *ports: int, thresholds: Mapping[str, str] | None = None) -> Iterator[RunningPrometheus]:
    """Run a Prometheus with the shipped rules, until the block ends. It scrapes these ports as job `tailorbird`."""
    (folder / "rules.yml").write_text(hastened(RULES.read_text(encoding="utf-8"), thresholds or {}))
    targets = [f"127.0.0.1:{port}" for port in ports]
    config = {
        "global": {"scrape_interval": _EVERY, "scrape_timeout": _EVERY, "evaluation_interval": _EVERY},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{"job_name": "tailorbird", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        str(programs() / "prometheus"), f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        found = RunningPrometheus(port)
        wait_for(found.ready, f"Prometheus does not scrape, see {folder / 'prometheus.log'}", 60)
        yield found
    finally:
        process.terminate()
        process.wait(30)

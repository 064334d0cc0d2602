"""`tailorbird versions` shows and stores the versions that run, for machines where no `apply` ran."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc.process.file_topology import kept_versions, read_file
from cdc.topology.versions import TableVersions, Versions
from tailorbird.deploy.plan import kafka_versions
from tests.support.commands import tailorbird

FILE = str(Path(__file__).parents[2] / "topologies" / "shop.yml")


def test_versions_of_another_machine_are_stored_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Kafka has is printed, and a process on this machine finds it in TAILORBIRD_HOME."""
    table = read_file(FILE).tables["orders_wide"]
    stored = Versions(epoch=3, tables={"orders_wide": TableVersions(serving=1, tables={1: table, 2: table})})
    monkeypatch.setattr(kafka_versions, "read_versions", lambda topology: stored)
    environ = {"TAILORBIRD_HOME": str(tmp_path)}
    done = tailorbird("versions", FILE, environ=environ)
    assert (done.returncode, done.stdout) == (0, "orders_wide: version 1 serves, 1, 2 running\n")
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    assert kept_versions("shop").epoch == 3
    monkeypatch.setattr(kafka_versions, "read_versions", lambda topology: Versions())
    again = tailorbird("versions", FILE, "--json", environ=environ)
    assert json.loads(again.stdout) == {"orders_wide": {"serving": 1, "running": [1, 2]}}

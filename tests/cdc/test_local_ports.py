"""Variables of a topology: the environment, and as defaults the ports of the local stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.model.errors import UsageError
from cdc.process.file_topology import PORTS, load_topology, local_ports

TOPOLOGY = str(Path(__file__).parents[2] / "topologies" / "shop.yml")


def test_a_topology_finds_the_stack_wherever_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `stack up --port-offset 3000`, `doctor`, `run` and `apply` use those ports, unless the environment
    differs."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    for name in ("KAFKA", "SOLR"):
        monkeypatch.delenv(f"TAILORBIRD_PORT_{name}", raising=False)
    assert load_topology(TOPOLOGY).log.bootstrap_servers == "127.0.0.1:9092"
    (tmp_path / PORTS).write_text('{"kafka": 12092, "solr": 11983}')
    assert load_topology(TOPOLOGY).log.bootstrap_servers == "127.0.0.1:12092"
    assert load_topology(TOPOLOGY).solr.url == "http://127.0.0.1:11983/solr"
    monkeypatch.setenv("TAILORBIRD_PORT_KAFKA", "19092")
    assert load_topology(TOPOLOGY).log.bootstrap_servers == "127.0.0.1:19092"


@pytest.mark.parametrize("text", ["", "[]", '{"kafka": "x"}', "{"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    """The error for a damaged file names the remedy, and no wrong ports are used."""
    (tmp_path / PORTS).write_text(text)
    with pytest.raises(UsageError, match=PORTS) as refused:
        local_ports(tmp_path)
    assert "stack up" in refused.value.hint

"""Run the demo as a new user does, through gateway and agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tailorbird.devtools.stack.proc_stack import Stack
from tests.support.ports import free_port

SHOP = Path(__file__).parents[2] / "topologies" / "shop.yml"


@pytest.mark.matrix
@pytest.mark.integration
@pytest.mark.timeout(1200)
def test_the_demo_through_a_fleet(stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> None:
    """`make demo ARGS="--fleet …"` uses mTLS, leases and policies between the databases and Kafka, with the same
    outcome: HBase and Solr equal both databases, field by field.
    """
    name = unique("shop")
    file = tmp_path / "shop.yml"
    file.write_text(SHOP.read_text().replace("\nname: shop\n", f"\nname: {name}\n"))
    sizes = ("--customers", "500", "--products", "200", "--orders", "3000")
    command = ("demo", "--fleet", "--for", "20s", "--json", "--keep", "--topology", str(file), *sizes)
    done = subprocess.run(
        [sys.executable, "-m", "tailorbird", *command, "--port", str(free_port())], capture_output=True, text=True,
        env={**os.environ, **stack.settings.environ()}, timeout=1000, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    outcome = json.loads(done.stdout.splitlines()[-1])
    nothing = {"missing": 0, "extra": 0, "different": 0}
    assert (outcome["hbase"], outcome["solr"]) == (nothing, nothing)
    assert outcome["captured"] > 3000
    assert "started agent shop" in done.stderr

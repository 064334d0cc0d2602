"""The demo over two engines with a fleet: everything is killed while it runs, and it ends without a difference."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import SERVICES, ServiceName
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(1200)]
SIZES = ("--customers", "300", "--products", "150", "--orders", "3000", "--rate", "60")
FLEET = ("gateway", "agent shop", "agent catalog", "agent crm")
SERVERS: tuple[ServiceName, ...] = ("kafka", "mysql-shop", "mysql-crm", "postgres", "solr", "hbase")
UP = (*SERVICES, "postgres")


def part_of(demo: int, name: str) -> int | None:
    """Return the process id of a part of the demo, or None while it does not run."""
    words = ["tailorbird gateway"] if name == "gateway" else ["tailorbird agent", name.replace(" ", "-")]
    for found in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((found / "stat").read_text().rpartition(")")[2].split()[1])
            command = (found / "cmdline").read_bytes().decode().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == demo and all(word in command for word in words):
            return int(found.name)
    return None


def test_the_demo_ends_without_a_difference(stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> None:
    """Gateway, agents, Kafka, both MySQLs, PostgreSQL, Solr and HBase are killed in turn under traffic. The traffic
    repeats what a killed database has not answered; `stack up` and the demo start again what was killed."""
    said = tmp_path / "stderr"
    command = [sys.executable, "-m", "tailorbird", "demo", "--topology", "two-engines", "--fleet", "--json", *SIZES]
    with said.open("wb") as errors:
        demo = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, stderr=errors)
    try:
        wait_for(lambda: "freshness p50" in said.read_text() or demo.poll() is not None, "no traffic", 500)
        assert demo.poll() is None, said.read_text()
        for part in FLEET:
            found = part_of(demo.pid, part)
            assert found is not None, part
            os.kill(found, signal.SIGKILL)
            wait_for(lambda part=part, found=found: part_of(demo.pid, part) not in (None, found), part, 60)  # type: ignore[misc]
        for server in SERVERS:
            stack.kill(server)
            time.sleep(3.0)
            stack.up(services=UP)
        time.sleep(5.0)
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate(timeout=500)
    finally:
        demo.kill()
    assert demo.returncode == 0, said.read_text()[-4000:]
    outcome = json.loads(output.splitlines()[-1])
    assert outcome["hbase"] == outcome["solr"] == {"missing": 0, "extra": 0, "different": 0}
    assert outcome["tables"]["orders_wide"]["rows"] > 2000

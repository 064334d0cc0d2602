"""Commands while every server is unavailable: one line with the server and the remedy, without client messages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port

pytestmark = pytest.mark.long  # waits for each client's timeout

COMMANDS = {
    "index reindex": "ZooKeeper at {unavailable} does not answer; is HBase running? `tailorbird stack status`",
    "index rm --yes": "ZooKeeper at {unavailable} does not answer; is HBase running? `tailorbird stack status`",
    "apply": "ZooKeeper at {unavailable} does not answer; is HBase running? `tailorbird stack status`",
    "dead-letters list": "Kafka at {unavailable}: the dead letters cannot be read: ",
    "explain-plan": "no schema of shop.shop.orders in the log at {unavailable}, or on its server; ",
    "verify": "Kafka at {unavailable}: ",
    "state inspect": "Kafka at {unavailable} has no schema of shop.shop.orders; check that Kafka runs, ",
}


@pytest.fixture
def unavailable(tmp_path: Path) -> str:
    """An address where no process listens."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    (tmp_path / "away.yml").write_text(f"""name: away
sources:
  shop: {{type: mysql, hostname: 127.0.0.1, port: {port}, username: u, password: p, database: shop, tables: [orders],
          server_id: 1}}
log: {{bootstrap_servers: '{address}'}}
hbase: {{thrift: '{address}', zookeeper: '{address}'}}
solr: {{url: 'http://{address}/solr'}}
tables: {{wide: {{query: 'SELECT o.id, o.status FROM shop.orders o', row_key: [id]}}}}
indexes: {{wide: {{table: wide}}}}
""")
    (tmp_path / "checkpoints" / "away" / "wide" / "spark" / "state").mkdir(parents=True)
    return address


def begin(command: str, folder: Path) -> subprocess.Popen[str]:
    more = ["wide", "1"] if command == "state inspect" else []
    name, _, option = command.partition(" --")
    words = [*name.split(), str(folder / "away.yml"), *more, *([f"--{option}"] if option else [])]
    environ = {**os.environ, "TAILORBIRD_HOME": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-m", "tailorbird", *words],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_server_that_is_away_is_reported_in_one_line(unavailable: str, tmp_path: Path) -> None:
    """Each command ends by itself: verify with 3 for an incomplete comparison, the others with 1 or 2.

    Its line begins with the unavailable server. There are no client retries and no stack trace. `status` reports the
    processes, and an unavailable Kafka once, although three readers need it.
    """
    begun = {command: begin(command, tmp_path) for command in COMMANDS}
    status = begin("status", tmp_path)
    for command, process in begun.items():
        output, errors = process.communicate(timeout=120)
        said = errors.strip().splitlines()
        codes = (3,) if command == "verify" else (1, 2)
        assert (process.returncode in codes, len(said), output.strip()) == (True, 1, ""), f"{command}: {output}{errors}"
        assert said[0].startswith("tailorbird: " + COMMANDS[command].format(unavailable=unavailable)), (
            f"{command}: {errors}"
        )
    output, errors = status.communicate(timeout=120)
    assert status.returncode == 1
    assert [line.split()[0] for line in output.splitlines()] == ["elsewhere"] * 3
    first, second = errors.strip().splitlines()
    assert first.startswith(f"away       Kafka at {unavailable}: ")
    assert first.endswith("; tailorbird stack status")
    assert second.startswith(f"away       indexes: ZooKeeper at {unavailable} does not answer")

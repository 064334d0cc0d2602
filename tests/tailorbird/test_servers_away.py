"""Commands while every server is unavailable: one line with the server and the remedy, without client messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

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

# Loads all commands once, which takes most of a command's CPU; then each runs in a child, all at the same time.
TOGETHER = """
import json, os, sys
from tailorbird.__main__ import main
import tailorbird.cli.app
children = {}
for name, words in json.loads(sys.argv[1]).items():
    child = os.fork()
    if not child:
        for stream in (1, 2):
            os.dup2(os.open(f"{name}.{stream}", os.O_CREAT | os.O_WRONLY), stream)
        sys.argv = ["tailorbird", *words]
        main()
        sys.exit(0)
    children[name] = child
codes = {name: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for name, child in children.items()}
print(json.dumps(codes))
"""


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


class Ended(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    output: str
    errors: str


def words_of(command: str, folder: Path) -> list[str]:
    more = ["wide", "1"] if command == "state inspect" else []
    name, _, option = command.partition(" --")
    return [*name.split(), str(folder / "away.yml"), *more, *([f"--{option}"] if option else [])]


def together(folder: Path, *commands: str) -> dict[str, Ended]:
    """Run commands at the same time."""
    words = {command: words_of(command, folder) for command in commands}
    asked = [sys.executable, "-c", TOGETHER, json.dumps(words)]
    environ = {**os.environ, "TAILORBIRD_HOME": str(folder)}
    ran = subprocess.run(asked, capture_output=True, text=True, timeout=120, cwd=folder, env=environ, check=False)
    assert ran.returncode == 0, ran.stderr
    return {
        command: Ended(code, *((folder / f"{command}.{stream}").read_text() for stream in (1, 2)))
        for command, code in json.loads(ran.stdout).items()
    }


def test_a_server_that_is_away_is_reported_in_one_line(unavailable: str, tmp_path: Path) -> None:
    """Each command ends by itself: verify with 3 for an incomplete comparison, the others with 1 or 2.

    Its line begins with the unavailable server. There are no client retries and no stack trace. `status` reports the
    processes, and an unavailable Kafka once, although three readers need it.
    """
    ended = together(tmp_path, *COMMANDS, "status")
    status = ended.pop("status")
    for command, (code, output, errors) in ended.items():
        said = errors.strip().splitlines()
        codes = (3,) if command == "verify" else (1, 2)
        assert (code in codes, len(said), output.strip()) == (True, 1, ""), f"{command}: {output}{errors}"
        assert said[0].startswith("tailorbird: " + COMMANDS[command].format(unavailable=unavailable)), (
            f"{command}: {errors}"
        )
    assert status.code == 1
    assert [line.split()[0] for line in status.output.splitlines()] == ["elsewhere"] * 3
    first, second = status.errors.strip().splitlines()
    assert first.startswith(f"away       Kafka at {unavailable}: ")
    assert first.endswith("; tailorbird stack status")
    assert second.startswith(f"away       indexes: ZooKeeper at {unavailable} does not answer")

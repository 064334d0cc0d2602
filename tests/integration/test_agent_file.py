"""The single-file agent captures MySQL through a gateway, on a host that has Python and nothing else.

`make agent-file` builds the file. The host is the common base of the images: Debian with python3, without pip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailorbird.devtools.stack.proc_stack import Stack
from tests.images import mounted
from tests.integration.conftest import CapturedDatabase
from tests.support.contained import USER, Container, writable_folder
from tests.support.fleet_on_servers import FleetOnServers, policy, rows

ROOT = Path(__file__).parents[2]
FILE = ROOT / "build" / "tailorbird"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka("mysql-shop"),
    pytest.mark.matrix,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        shutil.which("buildah") is None or os.geteuid() != 0 or not FILE.exists(),
        reason="needs root, buildah, `make images` and `make agent-file`",
    ),
]


class ContainedFleet(FleetOnServers):
    """A fleet whose agents run from the single file, in a root file system without pip."""

    root: Path
    contained: Container | None = None

    def start(self, name: str, *command: str) -> None:
        """Start agents contained, gateways as usual."""
        if command[0] != "agent":
            super().start(name, *command)
            return
        state = writable_folder(self.folder / "home")
        for path in [self.folder / name, *(self.folder / name).iterdir()]:
            shutil.chown(path, USER, USER)
        environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/var/lib/tailorbird"}
        volumes = {
            "/usr/local/bin": (FILE.parent, False), "/var/lib/tailorbird": (state, True),
            str(self.folder): (self.folder, False),
        }  # fmt: skip
        self.contained = Container(self.root, environ, volumes)
        tools = self.contained.run(
            ["sh", "-c", "command -v pip pip3; python3 -m pip --version; python3 -c 'import grpc'"]
        )
        assert (tools.stdout, tools.stderr.count("No module named")) == ("", 2)
        self.contained.start(["tailorbird", *command], self.folder / f"{name}.log")


@pytest.fixture
def fleet(stack: Stack, capture: Callable[..., CapturedDatabase], tmp_path: Path) -> Iterator[ContainedFleet]:
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, mail VARCHAR(20))", "INSERT INTO t VALUES (1, 'a')")
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    with mounted("base") as root:
        made = ContainedFleet(captured, tmp_path)
        made.root = root
        yield made
        if made.contained is not None:
            made.contained.kill()
        made.close()


def test_a_host_without_pip_captures(fleet: ContainedFleet) -> None:
    """The file unpacks itself, dials the gateway, captures a snapshot and later changes, and ends cleanly."""
    captured = fleet.captured
    fleet.token = fleet.ask("token", "issue", "anna", "--role", "admin", "--topology", str(captured.file)).split()[0]
    fleet.gateway("g1")
    fleet.agent("paris", policy(captured), fleet.streams["g1"])
    fleet.until(lambda: fleet.api("map"), "nothing is mapped")
    fleet.ask("source", "add", "shop", "--agent", "paris", "--connection", "db", "--database", captured.name)
    fleet.ask("sync", "start", "shop", "t", "--wait", "60")
    fleet.until(lambda: rows(captured, "t").keys() == {1}, "the snapshot did not arrive")
    captured.sql("INSERT INTO t VALUES (2, 'b')")
    fleet.until(lambda: rows(captured, "t").keys() == {1, 2}, "the change did not arrive")
    assert fleet.contained is not None
    assert fleet.contained.stop() == 0

"""Agents capture MySQL through a gateway: from the single file on a host without pip, and in the images.

`make agent-file` builds the file, `make images` the images and their common base, which is the host: Debian with
python3."""

from __future__ import annotations

import os
import shutil
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tailorbird.devtools.stack.proc_stack import Stack
from tests.images import built, config_of, mounted
from tests.integration.conftest import CapturedDatabase
from tests.support.contained import USER, Container, writable_folder
from tests.support.fleet_on_servers import FleetOnServers, policy, rows
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
FILE = ROOT / "build" / "tailorbird"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka("mysql-shop"),
    pytest.mark.matrix,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        shutil.which("buildah") is None or os.geteuid() != 0,
        reason="needs root, buildah, `make images` and `make agent-file`",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where processes of a command run: a root file system, their environment, and folders of this machine in it."""

    root: Path
    environ: Mapping[str, str]
    volumes: Mapping[str, tuple[Path, bool]]


class ContainedFleet(FleetOnServers):
    """A fleet with contained processes: those whose command, `agent` or `gateway`, is in `hosts`."""

    def __init__(self, captured: CapturedDatabase, folder: Path, hosts: Mapping[str, Host]) -> None:
        super().__init__(captured, folder)
        self.hosts, self.contained = hosts, dict[str, Container]()

    def start(self, name: str, *command: str) -> None:
        """Start a process, contained if its command has a host."""
        host = self.hosts.get(command[0])
        if host is None:
            super().start(name, *command)
            return
        state = writable_folder(self.folder / "homes" / name)
        for path in [self.folder / name, *(self.folder / name).iterdir()]:
            shutil.chown(path, USER, USER)
        ports = {key: value for key, value in os.environ.items() if key.startswith("TAILORBIRD_PORT_")}
        environ = {**host.environ, **ports, "TAILORBIRD_METRICS_PORT": str(free_port())}
        volumes = {**host.volumes, "/var/lib/tailorbird": (state, True), str(self.folder): (self.folder, False)}
        self.contained[name] = Container(host.root, environ, volumes)
        self.contained[name].start(["tailorbird", *command], self.folder / f"{name}.log")

    def close(self) -> None:
        for one in self.contained.values():
            one.kill()
        super().close()


@contextmanager
def single_file() -> Iterator[dict[str, Host]]:
    """Context manager: a host for the single file, with Python and without pip."""
    if not FILE.exists() or not built("base"):
        pytest.skip("needs `make images` and `make agent-file`")
    with mounted("base") as root:
        environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/var/lib/tailorbird"}
        host = Host(root=root, environ=environ, volumes={"/usr/local/bin": (FILE.parent, False)})
        command = "command -v pip pip3; python3 -m pip --version; python3 -c 'import grpc'"
        tools = Container(host.root, environ, host.volumes).run(["sh", "-c", command])
        assert (tools.stdout, tools.stderr.count("No module named")) == ("", 2)
        yield {"agent": host}


@contextmanager
def own_images() -> Iterator[dict[str, Host]]:
    """Context manager: hosts of the images that docs/install.md names for agents and gateways."""
    targets = {"agent": "capture", "gateway": "console"}
    if not all(map(built, targets.values())):
        pytest.skip("needs `make images`")
    with ExitStack() as closing:
        roots = {target: closing.enter_context(mounted(target)) for target in targets.values()}
        environ = {one: dict(word.split("=", 1) for word in config_of(one)["Env"]) for one in roots}
        yield {
            command: Host(root=roots[target], environ=environ[target], volumes={})
            for command, target in targets.items()
        }


@pytest.fixture(params=[single_file, own_images], ids=["single file", "images"])
def fleet(
    request: pytest.FixtureRequest, stack: Stack, capture: Callable[..., CapturedDatabase], tmp_path: Path
) -> Iterator[ContainedFleet]:
    with request.param() as hosts:
        captured = capture("t")
        captured.sql("CREATE TABLE t (id INT PRIMARY KEY, mail VARCHAR(20))", "INSERT INTO t VALUES (1, 'a')")
        for folder in (tmp_path, *list(tmp_path.parents)[:3]):
            folder.chmod(folder.stat().st_mode | 0o055)
        made = ContainedFleet(captured, tmp_path, hosts)
        yield made
        made.close()


def test_a_contained_agent_captures(fleet: ContainedFleet) -> None:
    """The agent dials the gateway, captures a snapshot and later changes, and is healthy. All processes end cleanly."""
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
    for name, one in fleet.contained.items():
        port = one.environ["TAILORBIRD_METRICS_PORT"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20) as answer:
            assert answer.status == 200, name
    assert {name: one.stop() for name, one in fleet.contained.items()} == dict.fromkeys(fleet.contained, 0), (
        fleet.logs()
    )
